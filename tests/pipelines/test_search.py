"""Tests of `encode`, and of `Index`: exact search by cosine similarity in memory and in folders."""

import json
from pathlib import Path

import numpy as np
import pytest

import albertkit
from albertkit import Index
from albertkit.errors import ConfigError, DataError
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES
from albertkit.pipelines import Pipeline, pipeline, search

TEXTS = [
    "The butter was bad, and the price shameful.",
    "Until what hour can one have supper?",
    "The garden was lovely, and the children played there all day.",
    "May I reserve the same room for another week?",
]
SUPPER = "At what hour is breakfast?"


@pytest.fixture(scope="module")
def embed() -> Pipeline:
    return pipeline("feature-extraction", BUNDLED_SENTENCES)


class TestEncode:
    def test_returns_float32_vectors_in_order(self, embed):
        vectors = embed.encode(TEXTS)
        assert (vectors.shape, vectors.dtype) == ((4, 384), np.float32)
        np.testing.assert_allclose(vectors, np.array(embed(TEXTS)), atol=1e-7)
        np.testing.assert_array_equal(albertkit.encode(TEXTS), vectors)
        np.testing.assert_array_equal(albertkit.encode(TEXTS, embed), vectors)

    def test_of_a_text_is_its_vector(self, embed):
        np.testing.assert_array_equal(embed.encode(TEXTS[0]), embed.encode(TEXTS)[0])

    def test_of_an_iterator_a_table_a_file_and_nothing(self, embed, tmp_path):
        expected = embed.encode(TEXTS)
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
        unnamed = {"key": ["a1", "b2", "c3", "d4"], "sentence": TEXTS}
        for texts in (iter(TEXTS), {"text": TEXTS}, unnamed, tmp_path / "texts.txt"):
            np.testing.assert_array_equal(embed.encode(texts), expected)
        many = embed.encode(text for text in TEXTS * 300)
        np.testing.assert_array_equal(many, np.tile(expected, (300, 1)))
        assert embed.encode([]).shape == (0, 384)

    def test_options(self, embed):
        long = "It rained. " * 400
        with pytest.raises(DataError, match=r"input 1 \(counted from 0\): the text"):
            embed.encode(["a", long])
        assert embed.encode([long], truncation=True).shape == (1, 384)
        lengths = np.linalg.norm(embed.encode(TEXTS, normalize=False), axis=1)
        assert (abs(lengths - 1) > 0.1).all()

    def test_all_invalid_inputs_of_a_list_are_named_before_any_is_computed(self, embed, monkeypatch):
        long, texts = "It rained. " * 400, TEXTS * 500
        texts[1500] = texts[1900] = long
        monkeypatch.setattr(type(embed.engine), "compute", None)
        with pytest.raises(DataError) as error:
            embed.encode(texts, batch_size=8)
        assert {"1500", "1900"} <= {*str(error.value).replace(":", " ").replace(",", "").split()}

    def test_pools_by_mean_without_a_pooling_of_the_model(self):
        vectors = albertkit.encode(TEXTS[:2], BUNDLED)
        states = [np.array(states[0]) for states in pipeline("feature-extraction")(TEXTS[:2])]
        np.testing.assert_allclose(vectors, [each.mean(axis=0) for each in states], atol=1e-5)

    def test_errors(self, embed):
        with pytest.raises(ConfigError, match="a vector for each token"):
            embed.encode(TEXTS, pooling="none")
        with pytest.raises(ConfigError, match="is for fill-mask"):
            pipeline("fill-mask").encode(TEXTS)


class TestSearch:
    def test_returns_the_most_similar_texts_first(self, embed):
        index = Index.build(TEXTS, embed)
        matches = index.search(SUPPER, 2)
        assert [(match["id"], match["text"]) for match in matches] == [(2, TEXTS[1]), (4, TEXTS[3])]
        cosines = embed.encode(TEXTS) @ embed.encode(SUPPER)
        np.testing.assert_allclose([match["score"] for match in matches], cosines[[1, 3]], atol=1e-6)
        assert [each[0]["id"] for each in index.search([SUPPER, "a garden"], 1)] == [2, 3]
        assert len(index.search(SUPPER, 100)) == 4
        assert index.search([]) == []

    def test_equals_sorting_all_cosines(self, monkeypatch):
        monkeypatch.setattr(search, "_BLOCK", 90)
        monkeypatch.setattr(search, "_QUERIES", 3)
        rng = np.random.default_rng(0)
        vectors, queries = 3 * rng.standard_normal((500, 7)), rng.standard_normal((10, 7))
        index = Index(vectors[:300], ["a"] * 300)
        index._add(vectors[300:], ["b"] * 200, None)
        numbers, scores = index.nearest(queries, 20)
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
        cosines = queries @ vectors.T / lengths
        np.testing.assert_array_equal(numbers, np.argsort(-cosines, axis=1)[:, :20])
        np.testing.assert_allclose(scores, np.take_along_axis(cosines, numbers, axis=1), atol=1e-5)
        np.testing.assert_array_equal(index.nearest(queries[0], 20)[0], numbers[0])
        assert (index[299]["text"], index[300]["text"], index[-1]["id"]) == ("a", "b", 500)

    def test_reads_tables_with_their_own_ids(self, embed, tmp_path):
        rows = [{"key": f"k{number}", "body": text} for number, text in enumerate(TEXTS)]
        index = Index.build(rows, embed, text_column="body", id_column="key")
        assert index.search(SUPPER, 1)[0]["id"] == "k1"
        (tmp_path / "faq.csv").write_text("id,text\n7,a garden\n,\n9,bad butter\n")
        index = Index.build(tmp_path / "faq.csv", embed)
        assert [index[number] for number in range(len(index))] == [
            {"id": "7", "text": "a garden"},
            {"id": "9", "text": "bad butter"},
        ]
        (tmp_path / "one.csv").write_text("body\na garden\n")
        rows = [{"date": f"2026-01-0{number}", "message": text} for number, text in enumerate(TEXTS, 1)]
        assert Index.build(rows, embed)[0] == {"id": 1, "text": TEXTS[0]}
        assert Index.build(str(tmp_path / "one.csv"), embed)[0] == {"id": 1, "text": "a garden"}
        assert Index.build(["", "a"], embed, ids=[np.int64(3), "x"])[0] == {"id": "x", "text": "a"}

    def test_options_of_the_texts_apply_to_queries(self, embed):
        long = "It rained. " * 400
        index = Index.build([*TEXTS, long], embed, truncation=True)
        assert index.search(long, 1)[0]["id"] == 5
        with pytest.raises(DataError, match="maximum is 512"):
            index.search(long, 1, truncation=False)

    def test_errors(self, embed, tmp_path):
        index = Index(np.ones((2, 3)), ["a", "b"])
        with pytest.raises(ConfigError, match="has no model"):
            index.search("a")
        with pytest.raises(ConfigError, match="top_k is 0"):
            index.nearest(np.ones(3), 0)
        with pytest.raises(DataError, match="4 dimensions, but those of the index have 3"):
            index.nearest(np.ones(4))
        for vectors, texts, ids in ((np.ones(3), ["a"], None), (np.ones((2, 3)), ["a"], None)):
            with pytest.raises(DataError, match="Expected equal numbers"):
                Index(vectors, texts, ids)
        with pytest.raises(DataError, match="NaN"):
            Index(np.full((1, 3), np.nan), ["a"])
        with pytest.raises(DataError, match="there is no text"):
            Index.build([" "], embed)
        with pytest.raises(ConfigError, match="are for tables"):
            Index.build(TEXTS, embed, text_column="a")
        with pytest.raises(ConfigError, match="pass id_column"):
            Index.build([{"text": "a"}], embed, ids=[1])
        with pytest.raises(DataError, match=r"no column 'text'. The columns are a, b"):
            Index.build([{"a": "x", "b": "y"}], embed)


class TestFolder:
    @pytest.fixture
    def folder(self, embed, tmp_path) -> Path:
        Index.build(TEXTS, embed, ids=["a", "b", "c", "ü"], normalize=True).save(tmp_path / "index")
        return tmp_path / "index"

    def test_has_the_same_answers(self, folder):
        index = Index.load(folder)
        assert (len(index), index.model, index.options) == (4, BUNDLED_SENTENCES, {"normalize": True})
        assert [match["id"] for match in index.search(SUPPER, 2)] == ["b", "ü"]
        assert isinstance(index.vectors, np.memmap)

    def test_can_be_extended_and_saved_again(self, folder):
        index = Index.load(folder)
        assert index.add(["Supper is at eight o'clock.", "Breakfast is at nine."], ids=["d", 6]) == 2
        expected = index.search(SUPPER, 6)
        index.save(folder)
        again = Index.load(folder)
        assert again.search(SUPPER, 6) == expected
        assert {match["id"] for match in expected} == {"a", "b", "c", "ü", "d", 6}
        np.testing.assert_array_equal(np.load(folder / "vectors.npy"), index.vectors)
        assert not [file for file in folder.iterdir() if file.name.endswith(".tmp")]

    def test_a_text_replaces_the_text_with_the_same_id(self, embed, tmp_path):
        index = Index.build(TEXTS, embed, ids=["a", "b", 7, "d"])
        index.save(tmp_path / "index")
        index = Index.load(tmp_path / "index", embed)
        assert index.add(["The soup was cold.", TEXTS[3]], ids=[np.int64(7), "e"]) == 2
        assert [row["id"] for row in index] == ["a", "b", "d", 7, "e"]
        assert index[3] == {"id": 7, "text": "The soup was cold."}
        np.testing.assert_allclose(index.vectors[:2], embed.encode(TEXTS[:2]), atol=1e-7)
        assert index.search("The soup was cold.", top_k=1)[0]["id"] == 7
        index.add(["A text without an id."])
        assert index[-1]["id"] == 8  # no number of another text

    def test_ids_of_csv_files_and_numbers_are_the_same(self, embed, tmp_path):
        (tmp_path / "texts.csv").write_text("id,text\n1,The soup was cold.\n2,The bed was soft.\n")
        index = Index.build(tmp_path / "texts.csv", embed)
        index.add([{"id": 2, "text": "The bed was hard."}, {"id": 3, "text": "The lamp was broken."}])
        assert [(row["id"], row["text"]) for row in index] == [
            ("1", "The soup was cold."),
            (2, "The bed was hard."),
            (3, "The lamp was broken."),
        ]
        index.add(["A text without an id."])
        assert index[-1]["id"] == 4

    def test_texts_can_be_removed(self, embed, folder, caplog):
        index = Index.load(folder)
        assert index.remove(["b", "x"]) == 1
        assert [row["id"] for row in index] == ["a", "c", "ü"]
        index.save(folder)
        index = Index.load(folder)
        np.testing.assert_allclose(index.vectors, embed.encode([TEXTS[0], *TEXTS[2:]]), atol=1e-7)
        assert index.search(SUPPER, 1)[0]["id"] == "ü"
        with pytest.raises(DataError, match="at least one"):
            index.remove(["a", "c", "ü"])
        assert len(index) == 3
        assert index.remove("ac") == 0
        assert "no text with the id 'ac'" in caplog.text
        assert index.remove("a") == 1

    def test_finds_the_ids_of_a_table(self, embed, caplog):
        caplog.set_level("INFO")
        rows = [{"ID": f"k{number}", "Text": text} for number, text in enumerate(TEXTS)]
        assert [row["id"] for row in Index.build(rows, embed)] == ["k0", "k1", "k2", "k3"]
        assert "no column" not in caplog.text
        numbers = [{"key": row["ID"], "Text": row["Text"]} for row in rows]
        assert [row["id"] for row in Index.build(numbers, embed)] == [1, 2, 3, 4]
        assert "no column 'id'" in caplog.text
        rows[1]["ID"] = ""
        assert [row["id"] for row in Index.build(rows, embed)] == ["k0", 2, "k2", "k3"]
        assert "1 of 4 rows have no id" in caplog.text

    def test_a_list_with_something_else_than_texts(self, embed):
        with pytest.raises(DataError, match="text 2 is None"):
            Index.build(["a bed", None, "a lamp"], embed)

    def test_the_columns_of_the_first_table_are_those_of_the_next(self, embed, tmp_path, caplog):
        rows = [{"key": f"k{number}", "body": text} for number, text in enumerate(TEXTS)]
        Index.build(rows[:3], embed, id_column="key").save(tmp_path / "index")
        index = Index.load(tmp_path / "index", embed)
        index.add(rows[2:])
        assert [row["id"] for row in index] == ["k0", "k1", "k2", "k3"]
        index.add([{"text": "The lamp was broken."}])
        assert index[-1] == {"id": 5, "text": "The lamp was broken."}
        assert "has no column 'key'" in caplog.text
        index.add([{"Key": "k0", "Text": "The lamp was broken again."}])
        assert (len(index), index[-1]["id"]) == (5, "k0")

    def test_knows_its_files(self, embed, tmp_path):
        file, other = tmp_path / "texts.csv", tmp_path / "other.csv"
        file.write_text("key,body\nk0,The soup was cold again.\nk1,The bed was soft.\n")
        other.write_text("key,body\nk2,The lamp was broken again.\n")
        index = Index.build(file, embed, text_column="body", id_column="key")
        assert index.has_file(file)
        assert index.has_file(file, id_column="key")
        assert not index.has_file(other)
        assert index.remove("k7") == 0
        assert index.has_file(file)
        with pytest.raises(DataError, match="ids from the column 'key'"):
            index.has_file(file, id_column="body")
        # An index does not have a file whose texts were replaced.
        other.write_text("key,body\nk1,The lamp was broken again.\n")
        index.add(other)
        assert (index.has_file(file), index.has_file(other)) == (False, True)
        index.add(file)
        assert [row["text"] for row in index] == ["The soup was cold again.", "The bed was soft."]

    def test_repeated_ids_are_counted(self, embed, caplog):
        index = Index.build(TEXTS[:3], embed, ids=["a", "b", "a"])
        assert (len(index), caplog.messages) == (
            3,
            ["new texts with the id of another new text: 1, such as 'a'. All are kept."],
        )

    def test_cut_tokens_are_counted(self, embed, caplog):
        caplog.set_level("INFO")
        Index.build(["word " * 900, "a short text"], embed, truncation=True)
        assert "1 of 2 texts" in caplog.text

    def test_a_text_that_is_too_long_is_named_by_its_row(self, embed, tmp_path):
        file = tmp_path / "texts.csv"
        file.write_text(f"id,text\n7,one\n8,\n9,{'long ' * 600}\n")
        with pytest.raises(DataError, match=r"texts.csv, row 3: .* tokens"):
            Index.build(file, embed)

    def test_replaces_no_other_files(self, folder, tmp_path):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "notes.txt").write_text("mine")
        with pytest.raises(DataError, match=r"holds notes.txt"):
            Index.load(folder).save(tmp_path / "other")

    def test_of_another_model_is_an_error(self, folder):
        for use in (lambda index: index.search(SUPPER), lambda index: index.add(["a"])):
            with pytest.raises(DataError, match="does not compute the vectors of this index"):
                use(Index.load(folder, BUNDLED))
        other = pipeline("feature-extraction", BUNDLED_SENTENCES, pooling="cls")
        with pytest.raises(DataError, match="does not compute the vectors"):
            Index.load(folder, other).search(SUPPER)

    def test_that_is_damaged_is_an_error(self, folder, tmp_path):
        with pytest.raises(DataError, match=r"has no index.json"):
            Index.load(tmp_path)
        about = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps(about | {"texts": 5}))
        with pytest.raises(DataError, match="has 5 texts of 384 dimensions"):
            Index.load(folder)
        (folder / "index.json").write_text(json.dumps(about))
        (folder / "rows.jsonl").write_text("{}\n")
        with pytest.raises(DataError, match=r"rows.jsonl has 3 bytes"):
            Index.load(folder)
        (folder / "vectors.npy").write_bytes(b"damaged")
        with pytest.raises(DataError, match="index"):
            Index.load(folder)
