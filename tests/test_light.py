"""The base install: every pipeline and verb answers without torch as the NumPy reference computes.

The models are made without torch too: random weights of the shapes that a config implies. `make light` runs
this file, and every other that is marked `light`, in an environment that has the base install alone.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from requirements import required

from albertkit import pipeline
from albertkit.checkpoints import formats
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.names import TIED
from albertkit.checkpoints.shapes import expected_shapes
from albertkit.config import AlbertConfig
from albertkit.conversion import convert
from albertkit.heads import HEADS
from albertkit.reference import forward, softmax
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light

SIZES: dict[str, Any] = {
    "vocab_size": 500,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "shared": {},
    "groups": {"num_hidden_groups": 2, "inner_group_num": 2, "pruned_heads": {0: [1], 3: [0, 2]}},
    "gelu": {"hidden_act": "gelu"},
}
TEXT, PAIR = "The captain opened an empty house.", "My sister lost the silver key in 1847."
MASKED = "The captain opened the [MASK] house."
QUESTION, CHOICES = "Who opened it?", ["the captain", "an old fox", "Queen Anne of the harbour"]


def test_nothing_is_written_and_no_telemetry_is_sent(tmp_path: Path) -> None:
    """Without ORT_DISABLE_TELEMETRY, ONNX Runtime writes an identifier and events into the home folder."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "albertkit", "fill-mask", MASKED]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert list(home.rglob("*")) == []
    assert list(temporary.rglob("*")) == []


def test_torch_is_not_importable_in_the_light_environment() -> None:
    if Path(sys.prefix).name != ".venv-light":
        pytest.skip("another environment than that of `make light`")
    installed = {one.metadata["Name"].casefold() for one in importlib.metadata.distributions()}
    extras = {"torch", "tokenizers", "transformers", "pyarrow", "fastapi", "keras", "h5py", "scipy"}
    assert installed & extras == set()
    assert find_spec("torch") is None


def test_the_base_install_needs_neither_torch_nor_tokenizers() -> None:
    needed = required()
    assert {"numpy", "onnxruntime", "sentencepiece", "pyyaml"} <= needed
    assert needed & {"torch", "tokenizers", "transformers", "scipy", "sympy"} == set()


def test_a_tokenizer_json_alone_needs_no_rust_library(tiny_vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    tokenizer.add_tokens(["kiwistan"])
    tokenizer.save_pretrained(tmp_path)
    for file in tmp_path.glob("*"):
        if file.name != "tokenizer.json":
            file.unlink()
    text = f"{PAIR} [MASK] kiwistan"
    code = f"""
import sys
sys.modules["tokenizers"] = None
from albertkit import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer
for cls in (AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer):
    tokenizer = cls.from_pretrained({str(tmp_path)!r})
    print(dict(tokenizer({text!r}, return_offsets_mapping=True)))
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines() == [str(dict(tokenizer(text, return_offsets_mapping=True)))] * 3


def test_a_vocab_txt_needs_no_rust_library(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u751f", "\u6d3b", "play", "##ing", "!", "cafe"]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    code = f"""
import sys
sys.modules["tokenizers"] = None
from albertkit import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({str(tmp_path)!r})
encoded = tokenizer("\u751f\u6d3b Playing, Caf\u00e9!", return_offsets_mapping=True)
print(encoded["input_ids"], encoded["offset_mapping"][1:-1])
tokenizer.save_pretrained({str(tmp_path / "saved")!r})
print(AutoTokenizer.from_pretrained({str(tmp_path / "saved")!r}).decode(encoded["input_ids"]))
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        "[2, 5, 6, 7, 8, 1, 10, 9, 3] [(0, 1), (1, 2), (3, 7), (7, 10), (10, 11), (12, 16), (16, 17)]",
        "[CLS] \u751f \u6d3b playing [UNK] cafe! [SEP]",
    ]


def weights_of(architecture: str, config: AlbertConfig) -> dict[str, np.ndarray]:
    """Return random float32 weights; a tensor of two names is one."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal("orm.weight" in name, 0.4, shape).astype(np.float32)
        for name, shape in expected_shapes(architecture, config).items()
    }
    return weights | {name: weights[of] for name, of in TIED.items() if name in weights}


class Model:
    """A model folder with random weights, and the outputs of its reference."""

    def __init__(self, folder: Path, architecture: str, config: AlbertConfig, vocabulary: Path) -> None:
        self.folder, self.architecture, self.config = folder, architecture, config
        self.weights = weights_of(architecture, config)
        self.tokenizer = AlbertTokenizer(vocabulary)
        self.tokenizer.save_pretrained(folder)
        write_folder(folder, config.replace(architectures=[architecture]).to_dict(), self.weights)

    def outputs(self, text: str, pair: str | None = None) -> dict[str, np.ndarray]:
        shape = (1, 1, -1) if self.architecture == "AlbertForMultipleChoice" else (1, -1)
        encoded = {name: np.reshape(ids, shape) for name, ids in self.tokenizer(text, pair).items()}
        return forward(self.architecture, self.config, self.weights, **encoded)


Make = Callable[..., Model]


@pytest.fixture(scope="module")
def make(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return the model of an architecture and a shape; each is written once."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def made(architecture: str, shape: str = "shared") -> Model:
        labels = {"num_labels": 3} if "Classification" in architecture else {}
        config = AlbertConfig(**SIZES | SHAPES[shape] | labels)
        return Model(root / f"{architecture}-{shape}", architecture, config, tiny_vocabulary)

    return made


class TestPipelines:
    """With one group of layers, and with all that a config can have beside it."""

    pytestmark = pytest.mark.parametrize("shape", SHAPES)

    def test_fill_mask(self, make: Make, shape: str) -> None:
        model = make("AlbertForMaskedLM", shape)
        place = model.tokenizer(MASKED).input_ids.index(model.tokenizer.mask_token_id)
        expected = softmax(model.outputs(MASKED)["logits"][0, place])
        answers = pipeline("fill-mask", model.folder)(MASKED, top_k=len(expected))
        assert len(answers) == len(expected)
        close([one["score"] for one in answers], expected[[one["token"] for one in answers]])

    def test_feature_extraction(self, make: Make, shape: str) -> None:
        model = make("AlbertModel", shape)
        close(pipeline("feature-extraction", model.folder)(TEXT), model.outputs(TEXT)["last_hidden_state"])

    def test_text_classification(self, make: Make, shape: str) -> None:
        model = make("AlbertForSequenceClassification", shape)
        answers = pipeline(None, model.folder)({"text": TEXT, "text_pair": PAIR}, top_k=None)
        expected = softmax(model.outputs(TEXT, PAIR)["logits"][0])
        scores = {one["label"]: one["score"] for one in answers}
        close([scores[f"LABEL_{number}"] for number in range(3)], expected)

    def test_token_classification(self, make: Make, shape: str) -> None:
        model = make("AlbertForTokenClassification", shape)
        text = TEXT.rstrip(".")  # which is a word of its own to the task
        answers = pipeline(None, model.folder)(text)
        expected = softmax(model.outputs(text)["logits"][0])[1:-1]  # without [CLS] and [SEP]
        assert [one["entity"] for one in answers] == [f"LABEL_{row.argmax()}" for row in expected]
        close([one["score"] for one in answers], expected.max(-1))

    def test_question_answering(self, make: Make, shape: str) -> None:
        model = make("AlbertForQuestionAnswering", shape)
        outputs = model.outputs(QUESTION, PAIR)
        first, last = len(model.tokenizer(QUESTION).input_ids), outputs["start_logits"].shape[1] - 1
        start, end = (
            softmax(outputs[f"{name}_logits"][0, [0, *range(first, last)]])[1:] for name in ("start", "end")
        )
        answer = pipeline(None, model.folder)(question=QUESTION, context=PAIR, max_answer_len=99)
        close(answer["score"], np.triu(np.outer(start, end)).max())
        assert answer["answer"] == PAIR[answer["start"] : answer["end"]] != ""

    def test_multiple_choice(self, make: Make, shape: str) -> None:
        model = make("AlbertForMultipleChoice", shape)
        logits = [model.outputs(PAIR, f"{QUESTION} {choice}")["logits"][0, 0] for choice in CHOICES]
        answer = pipeline(None, model.folder)(context=PAIR, question=QUESTION, choices=CHOICES)
        close(answer["scores"], softmax(np.array(logits)))
        assert answer["choice"] == CHOICES[int(np.argmax(logits))]

    def test_sentence_order(self, make: Make, shape: str) -> None:
        model = make("AlbertForPreTraining", shape)
        expected = softmax(model.outputs(TEXT, PAIR)["sop_logits"][0])
        answer = pipeline("sentence-order", model.folder)((TEXT, PAIR))
        close(answer["score"], expected.max())
        assert answer["label"] == ("in order", "swapped")[expected.argmax()]


@pytest.mark.parametrize("task", ["fill-mask", "feature-extraction"])
def test_long_and_short_texts_in_one_call(make: Make, task: str) -> None:
    model = make("AlbertForPreTraining")
    texts = [MASKED, *(f"{TEXT} {MASKED}" for _ in range(20)), MASKED + TEXT]
    pipe = pipeline(task, model.folder)
    together = pipe(texts, batch_size=4)
    for text, one in zip(texts, together, strict=True):
        same(one, pipe(text))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_half_the_size(make: Make, dtype: str, tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    convert(model.folder, tmp_path / "half", dtype=dtype)
    stored = pipeline("fill-mask", tmp_path / "half")
    scores = [one["score"] for one in stored(MASKED)]
    wanted = [one["score"] for one in pipeline("fill-mask", model.folder)(MASKED)]
    np.testing.assert_allclose(scores, wanted, rtol=0.1)
    assert scores != wanted


def predicted(run: Run, task: str, model: Path, source: Path, *flags: str) -> list[dict[str, Any]]:
    output = source.with_name("predictions.jsonl")
    result = run("predict", task, "--model", model, "--input", source, "--output", output, *flags)
    assert result.status == 0, result.errors
    return [json.loads(line) for line in output.read_text().splitlines()]


class TestVerbs:
    """Each says what its pipeline says."""

    def test_fill_mask(self, run: Run, make: Make) -> None:
        folder = make("AlbertForMaskedLM").folder
        result = run("fill-mask", MASKED, "--model", folder, "--json")
        same(result.json, [{"text": MASKED, "predictions": pipeline("fill-mask", folder)(MASKED)}])
        assert "opened the" in run("fill-mask", MASKED, "--model", folder).output

    def test_embed(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertModel").folder
        result = run("embed", TEXT, PAIR, "--model", folder, "--output", tmp_path / "vectors.npy", "--json")
        expected = pipeline("feature-extraction", folder, pooling="mean")([TEXT, PAIR])
        same([one["embedding"] for one in result.json], expected)
        close(np.load(tmp_path / "vectors.npy"), expected)

    def test_classify(self, run: Run, make: Make) -> None:
        folder = make("AlbertForSequenceClassification").folder
        result = run("classify", TEXT, "--model", folder, "--json")
        same(result.json[0]["predictions"], pipeline(None, folder)(TEXT, top_k=None))

    def test_tag(self, run: Run, make: Make) -> None:
        folder = make("AlbertForTokenClassification").folder
        result = run("tag", TEXT, "--model", folder, "--aggregation", "none", "--json")
        same(result.json[0]["entities"], pipeline(None, folder)(TEXT))

    def test_answer(self, run: Run, make: Make) -> None:
        folder = make("AlbertForQuestionAnswering").folder
        result = run("answer", QUESTION, "--context", PAIR, "--model", folder, "--json")
        same(result.json[0]["answers"], [pipeline(None, folder)(question=QUESTION, context=PAIR)])

    def test_choose(self, run: Run, make: Make) -> None:
        folder = make("AlbertForMultipleChoice").folder
        given = {"context": PAIR, "question": QUESTION}
        flags = [part for name, text in given.items() for part in (f"--{name}", text)]
        result = run("choose", *CHOICES, *flags, "--model", folder, "--json")
        same(result.json[0]["predictions"], [pipeline(None, folder)(**given, choices=CHOICES)])

    def test_order(self, run: Run, make: Make) -> None:
        folder = make("AlbertForPreTraining").folder
        result = run("order", TEXT, PAIR, "--model", folder, "--json")
        same(result.json[0]["predictions"], [pipeline("sentence-order", folder)((TEXT, PAIR))])

    def test_predict_texts(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForSequenceClassification").folder
        (tmp_path / "texts.csv").write_text(f"text\n{TEXT}\n")
        (record,) = predicted(run, "text-classification", folder, tmp_path / "texts.csv")
        answers = pipeline(None, folder)(TEXT, top_k=None)
        same(record["scores"], {one["label"]: one["score"] for one in answers})
        assert record["label"] == answers[0]["label"]

    def test_predict_words(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder, words = make("AlbertForTokenClassification").folder, TEXT[:-1].split()
        (tmp_path / "words.conll").write_text("\n".join(words) + "\n")
        (record,) = predicted(run, "token-classification", folder, tmp_path / "words.conll")
        found = pipeline(None, folder)(words, is_split_into_words=True, ignore_labels=())
        firsts = {one["start"]: one["entity"] for one in reversed(found)}
        assert record["tokens"] == words
        assert record["labels"] == [firsts[TEXT.index(word)] for word in words]

    def test_predict_questions(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForQuestionAnswering").folder
        (tmp_path / "questions.jsonl").write_text(json.dumps({"question": QUESTION, "context": PAIR}))
        (record,) = predicted(run, "question-answering", folder, tmp_path / "questions.jsonl")
        answer = pipeline(None, folder)(question=QUESTION, context=PAIR)
        same({name: record[name] for name in answer}, answer)

    def test_predict_choices(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForMultipleChoice").folder
        row = {"sent1": PAIR, "sent2": QUESTION} | {f"ending{n}": text for n, text in enumerate(CHOICES)}
        (tmp_path / "choices.tsv").write_text("\t".join(row) + "\n" + "\t".join(row.values()) + "\n")
        columns = ("--choice-columns", "ending0,ending1,ending2")
        (record,) = predicted(run, "multiple-choice", folder, tmp_path / "choices.tsv", *columns)
        answer = pipeline(None, folder)(context=PAIR, question=QUESTION, choices=CHOICES)
        same(record["scores"], answer["scores"])

    def test_predict_pairs(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertModel").folder
        (tmp_path / "texts.jsonl").write_text(json.dumps({"text": TEXT}))
        (record,) = predicted(run, "sentence-embedding", folder, tmp_path / "texts.jsonl")
        same(record["vector"], pipeline("feature-extraction", folder, pooling="mean")(TEXT))

    def test_the_bundled_model(self, run: Run) -> None:
        result = run("fill-mask", "She opened the [MASK] and went into the room.", "--json")
        assert result.json[0]["predictions"][0]["token_str"] == "door"

    def test_inspect(self, run: Run, make: Make) -> None:
        model = make("AlbertForMaskedLM")
        report = run("inspect", model.folder, "--json").json[0]
        stored = {name: array for name, array in model.weights.items() if name not in TIED}
        assert report["weights"] == {
            "dtype": "float32",
            "bytes": sum(array.nbytes for array in stored.values()),
            "tensors": len(stored),
        }

    def test_inspect_attention(self, run: Run, make: Make, tmp_path: Path) -> None:
        model = make("AlbertForMaskedLM")
        result = run("inspect", "attention", TEXT, "--model", model.folder, "--html", tmp_path / "page.html")
        assert result.status == 0, result.errors
        report = run("inspect", "attention", TEXT, "--model", model.folder, "--json").json[0]
        close([layer["attention"] for layer in report["layers"]], model.outputs(TEXT)["attentions"][:, 0])

    def test_inspect_bias(self, run: Run, make: Make) -> None:
        model = make("AlbertForMaskedLM")
        given = ["--template", "[X] opened the [MASK].", "--groups", "she,he", "--model", model.folder]
        found = run("inspect", "bias", *given, "--json").json[0]["predictions"]
        fill = pipeline("fill-mask", model.folder)
        same(found, {word: fill(f"{word} opened the [MASK].") for word in ("she", "he")})

    def test_bench(self, run: Run, make: Make) -> None:
        sizes = ("--lengths", "8", "--batches", "2", "--minutes", "0.05", "--rounds", "1")
        result = run("bench", "--model", make("AlbertForMaskedLM").folder, *sizes, "--json")
        assert result.status == 0, result.errors
        names = [figure["name"] for figure in result.json[1:]]
        assert {f"{engine}, 2 x 8 tokens: texts per second" for engine in ("onnx", "onnx-int8")} <= {*names}

    def test_convert(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForMaskedLM", "groups").folder
        result = run("convert", folder, tmp_path / "copy", "--verify", "--json", "--max-shard-size", "100KB")
        assert result.status == 0, result.errors
        assert len(list((tmp_path / "copy").glob("*.safetensors"))) > 1
        same(pipeline("fill-mask", tmp_path / "copy")(MASKED), pipeline("fill-mask", folder)(MASKED))

    @pytest.mark.parametrize("architecture", HEADS)
    def test_export_onnx(self, run: Run, make: Make, architecture: str, tmp_path: Path) -> None:
        model = make(architecture)
        result = run("export", "onnx", model.folder, tmp_path / "exported")
        assert result.status == 0, result.errors
        read = formats.load(tmp_path / "exported")[1]
        assert {name: array.tolist() for name, array in read.items()} == {
            name: array.tolist() for name, array in model.weights.items() if name not in TIED
        }

    def test_export_int8(self, run: Run, make: Make, tmp_path: Path) -> None:
        folder = make("AlbertForSequenceClassification").folder
        result = run("export", "onnx", folder, tmp_path / "int8", "--int8", "--max-drop", "100")
        assert result.status == 0, result.errors
        whole, small = (pipeline(None, one)(TEXT, top_k=None) for one in (folder, tmp_path / "int8"))
        assert whole != small
        np.testing.assert_allclose(
            [one["score"] for one in whole], [one["score"] for one in small], atol=0.05
        )


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)


def same(ours: Any, theirs: Any) -> None:
    """The same answers, with scores that differ by rounding at most."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            same(ours[name], theirs[name])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=1e-6)
    else:
        assert ours == theirs
