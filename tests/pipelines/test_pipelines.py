"""Pipelines: equal to those of transformers on the same weights, the same whatever the batch."""

import random
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Row, batches_by_length
from albertkit.engines.plain import pad_batch
from albertkit.errors import AlbertKitError, CheckpointError, ConfigError, DataError, ModelNotFoundError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.pipelines import FeatureExtractionPipeline, FillMaskPipeline, pipeline
from albertkit.tasks.masked_lm import centred_window
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")

# Texts that both tokenizers cut alike: theirs begins a new word after every punctuation mark.
TEXTS = [
    "the harbour opened the [MASK] in the morning",
    "[MASK]",
    "my [MASK] sister found the word [MASK] a word",
    "the child lost a silver [MASK]",
    "The doctor remembered [MASK] house   before dinner",
]
LIMIT = 40


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def folder(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a random model with both pretraining heads; large weights, so that its answers differ."""
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        num_hidden_layers=3,
        max_position_embeddings=LIMIT,
        initializer_range=0.3,
        hidden_dropout_prob=0.1,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def fill(engine_of_pipelines: str, folder: Path) -> FillMaskPipeline:
    return pipeline("fill-mask", folder)


@pytest.fixture(scope="module")
def encode(engine_of_pipelines: str, folder: Path) -> FeatureExtractionPipeline:
    return pipeline("feature-extraction", folder)


@pytest.fixture(scope="module")
def their_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def their_fill(folder: Path, their_tokenizer: transformers.PreTrainedTokenizerBase) -> transformers.Pipeline:
    model = transformers.AlbertForMaskedLM.from_pretrained(folder)
    return transformers.pipeline("fill-mask", model=model, tokenizer=their_tokenizer, device=-1)


def random_texts(count: int, *, words: tuple[int, int] = (1, 12), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    vocabulary = ["harbour", "opened", "word", "the", "silver", "code", "dinner", "letters", "zq"]
    texts = []
    for _ in range(count):
        text = rng.choices(vocabulary, k=rng.randint(*words))
        text.insert(rng.randint(0, len(text)), "[MASK]")
        texts.append(" ".join(text))
    return texts


def row(input_ids: list[int], token_type_ids: list[int] | None = None) -> Row:
    return Row(input_ids=input_ids, token_type_ids=token_type_ids or [0] * len(input_ids), example=0)


def assert_same_answers(ours: list, theirs: list) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, list):
            assert_same_answers(one, other)
        else:
            assert one["token"] == other["token"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)


class TestFillMask:
    @pytest.mark.parametrize("text", TEXTS)
    def test_equals_transformers(self, fill, their_fill, their_tokenizer, text):
        assert fill.tokenizer(text)["input_ids"] == their_tokenizer(text)["input_ids"]
        ours, theirs = fill(text, top_k=7), their_fill(text, top_k=7)
        assert_same_answers(ours, theirs)
        if text.count("[MASK]") == 1:
            assert [list(one) for one in ours] == [["score", "token", "token_str", "sequence"]] * 7
            assert [one["token_str"] for one in ours] == [one["token_str"] for one in theirs]
            assert [one["sequence"] for one in ours] == [one["sequence"] for one in theirs]

    def test_takes_what_callers_of_transformers_give_the_tokenizer(self, fill, their_fill):
        for text in ("the [MASK] word", "[MASK]"):
            given = {"truncation": True, "padding": True}
            assert_same_answers(fill(text, tokenizer_kwargs=given), their_fill(text, tokenizer_kwargs=given))
        text = "the harbour word found a [MASK] of my sister"
        (first, *_) = fill(text, tokenizer_kwargs={"max_length": 6})
        start, end = first["window"]
        assert "[MASK]" in text[start:end]
        assert len(fill.tokenizer(text[start:end])["input_ids"]) == 6

    def test_several_masks_are_a_list_each_and_show_the_others(self, fill, their_fill):
        text = "the [MASK] harbour found [MASK] word"
        ours = fill(text, top_k=2)
        assert [len(words) for words in ours] == [2, 2]
        first, second = ours[0][0], ours[1][0]
        # transformers writes no space before a mask that is left: "my[MASK] sister"
        spaced = [
            one["sequence"].replace("[MASK]", " [MASK]").replace("  ", " ")
            for words in their_fill(text, top_k=2)
            for one in words
        ]
        assert [first["sequence"], second["sequence"]] == spaced[::2]
        assert first["sequence"].count("[MASK]") == 1

    def test_token_str_is_a_word_without_its_mark(self, fill):
        (answer,) = fill("the [MASK] word", top_k=1, targets="harbour")
        assert answer["token_str"] == "harbour"
        assert answer["token"] == fill.tokenizer.convert_tokens_to_ids("▁harbour")
        assert answer["sequence"] == "the harbour word"

    @pytest.mark.parametrize(
        ("text", "sequence"),
        [
            ("The [MASK].", "the harbour."),
            ("The [MASK] .", "the harbour ."),
            ("[MASK] sister", "harbour sister"),
            ("the [MASK] z word", "the harbour  word"),  # an unknown piece is a special token and left out
            ("the [MASK], 12,000 [MASK]!", "[CLS] the harbour, 12,000 [MASK]![SEP]"),
        ],
    )
    def test_sequence_has_the_spaces_of_the_text(self, fill, text, sequence):
        answer = fill(text, targets="harbour")
        answer = answer[0] if isinstance(answer[0], dict) else answer[0][0]
        assert answer["sequence"] == sequence

    def test_targets_are_scored_among_all_words(self, fill, their_fill):
        everything = {one["token"]: one["score"] for one in fill(TEXTS[0], top_k=len(fill.tokenizer))}
        assert sum(everything.values()) == pytest.approx(1, abs=1e-4)
        chosen = fill(TEXTS[0], targets=["word", "harbour", "word"], top_k=5)
        assert {one["token_str"] for one in chosen} == {"word", "harbour"}
        assert chosen[0]["score"] >= chosen[1]["score"]
        for one in chosen:
            assert one["score"] == pytest.approx(everything[one["token"]], abs=1e-6)
        assert_same_answers(chosen, their_fill(TEXTS[0], targets=["▁word", "▁harbour"], top_k=2))
        assert len(fill(TEXTS[0], targets=["word", "harbour"], top_k=1)) == 1

    def test_target_names_the_word_before_the_piece_inside_a_word(self, fill):
        vocabulary = fill.tokenizer.get_vocab()
        both = next(
            piece
            for piece in vocabulary
            if f"▁{piece}" in vocabulary and piece.isascii() and piece.isalpha() and len(piece) > 1
        )
        assert fill("[MASK]", targets=both)[0]["token"] == vocabulary[f"▁{both}"]
        inside = next(
            piece
            for piece in vocabulary
            if f"▁{piece}" not in vocabulary and piece.isascii() and piece.isalpha() and len(piece) > 1
        )
        assert fill("[MASK]", targets=inside)[0]["token"] == vocabulary[inside]

    def test_target_of_several_pieces_is_an_error_with_its_pieces(self, fill):
        with pytest.raises(
            DataError, match=r"'photosynthesis' is not a single piece .*split into ▁ p ho to s y n t he sis"
        ):
            fill("[MASK]", targets=["word", "photosynthesis"])
        with pytest.raises(DataError, match="not a single piece"):
            fill("[MASK]", targets="日本")
        with pytest.raises(DataError, match="targets is empty"):
            fill("[MASK]", targets=[])

    def test_no_mask_names_text_and_mask(self, fill):
        with pytest.raises(DataError, match=r"there is no \[MASK\] in the text 'the word'"):
            fill(["a [MASK]", "the word"])

    @pytest.mark.parametrize("top_k", [0, -1, 10_000, 2.5, "3", True])
    def test_impossible_top_k(self, fill, top_k):
        with pytest.raises(
            ConfigError, match=f"top_k is {top_k!r}. Expected a whole number from 1 to {len(fill.tokenizer)}"
        ):
            fill("[MASK]", top_k=top_k)

    def test_special_tokens_are_parsed_even_where_the_tokenizer_does_not(self, fill, folder):
        plain = pipeline(
            "fill-mask", folder, AutoTokenizer.from_pretrained(folder, parse_special_tokens=False)
        )
        assert plain(TEXTS[0]) == fill(TEXTS[0])

    def test_defaults_given_once(self, folder):
        fill = pipeline("fill-mask", folder, top_k=2, targets=["word", "harbour", "morning"], batch_size=3)
        assert len(fill("[MASK]")) == 2
        assert len(fill("[MASK]", top_k=3)) == 3
        assert fill("[MASK]", targets="code")[0]["token_str"] == "code"

    def test_model_with_more_rows_than_pieces_answers_words_only(self, folder, tokenizer):
        model = AlbertForMaskedLM.from_pretrained(folder)
        model.resize_token_embeddings(len(tokenizer) + 12)
        answers = pipeline("fill-mask", model, tokenizer)("[MASK]", top_k=len(tokenizer))
        assert max(one["token"] for one in answers) < len(tokenizer)


class TestWindows:
    """Texts over the model's length."""

    def test_each_mask_is_read_in_a_window_around_it(self, fill):
        before, after = "word " * 60, " harbour" * 60
        text = f"{before}[MASK]{after}"
        answers = fill(text, top_k=3)
        start, end = answers[0]["window"]
        assert start < len(before) < end
        assert text[start:end].split().count("word") in (18, 19)
        assert text[start:end].split().count("harbour") in (18, 19)
        assert_same_answers(answers, fill(text[start:end], top_k=3))
        assert answers[0]["sequence"].count("word") >= 60  # the whole text, not the window
        assert "window" not in fill("a [MASK]")[0]

    def test_masks_at_the_ends_of_a_text(self, fill):
        text = "[MASK] " + "word " * 100 + "[MASK]"
        first, last = fill(text, top_k=1)
        assert first[0]["window"][0] == 0
        assert last[0]["window"][1] == len(text)
        for (answer,) in (first, last):
            start, end = answer["window"]
            assert_same_answers([answer], fill(text[start:end], top_k=1))

    def test_longest_text_without_window(self, fill):
        text = "[MASK]" + " word" * (LIMIT - 3)
        assert len(fill.tokenizer(text)["input_ids"]) == LIMIT
        assert "window" not in fill(text)[0]
        assert "window" in fill(text + " word")[0]

    @pytest.mark.parametrize(("position", "expected"), [(1, (1, 11)), (50, (45, 55)), (98, (89, 99))])
    def test_centred_window(self, position, expected):
        assert centred_window(position, first=1, last=99, size=10) == expected


class TestInputs:
    """One text, lists, iterables: order, batches, errors."""

    def test_any_batch_size_gives_the_same_answers(self, fill, encode):
        texts = [*random_texts(30), "[MASK] " + "word " * 80]
        single = [fill(text) for text in texts]
        features = [encode(text.replace("[MASK]", "x")[:60], return_tensors=True) for text in texts]
        for batch_size in (1, 7, 64):
            assert_same_answers(fill(texts, batch_size=batch_size), single)
            batched = encode(
                [text.replace("[MASK]", "x")[:60] for text in texts],
                return_tensors=True,
                batch_size=batch_size,
            )
            for one, other in zip(batched, features, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=0)

    def test_list_tuple_array_and_empty_list(self, fill):
        assert isinstance(fill(["[MASK]"])[0], list)
        expected = fill(["the [MASK]", "[MASK] code"])
        assert_same_answers(fill(("the [MASK]", "[MASK] code")), expected)
        assert_same_answers(fill(np.array(["the [MASK]", "[MASK] code"])), expected)
        assert fill([]) == []

    def test_generator_in_generator_out_reading_some_batches_ahead(self, fill):
        taken = []

        def texts():
            for number, text in enumerate(random_texts(100)):
                taken.append(number)
                yield text

        answers = fill(texts(), batch_size=2)
        assert isinstance(answers, types.GeneratorType)
        assert taken == []
        next(answers)
        assert len(taken) == 32
        assert_same_answers([*answers], fill(random_texts(100))[1:])

        taken.clear()
        next(fill(texts(), batch_size=1))
        assert len(taken) == 1

    @pytest.mark.parametrize("bad", [3, None, ["a [MASK]", 3], [("a [MASK]", "b")]])
    def test_what_is_no_text(self, fill, bad):
        with pytest.raises(DataError, match=r"for a text. Expected a string|Expected a text or an iterable"):
            fill(bad)

    def test_impossible_batch_size(self, fill, folder):
        with pytest.raises(ConfigError, match="batch_size is 0"):
            fill("[MASK]", batch_size=0)
        with pytest.raises(ConfigError, match="batch_size is -1"):
            pipeline("fill-mask", folder, batch_size=-1)

    def test_a_mapping_is_no_list_of_texts(self, fill, encode):
        for answer in (fill, encode):
            with pytest.raises(DataError, match=r"received \{'text': .* \(dict\). Expected a text"):
                answer({"text": "the [MASK]"})
            with pytest.raises(DataError, match=r"\(dict\) for a text"):
                answer([{"text": "the [MASK]"}])

    def test_batches_by_length(self):
        rows = [row([1] * length) for length in (3, 9, 1, 5, 5)]
        assert list(batches_by_length(rows, batch_tokens=100, batch_size=2)) == [[1, 3], [4, 0], [2]]
        assert list(batches_by_length(rows, batch_tokens=100)) == [[1, 3, 4, 0, 2]]
        # padding counts: 3 rows of 5 places are over 10, and a row that is too long is alone
        assert list(batches_by_length(rows, batch_tokens=10)) == [[1], [3, 4], [0, 2]]
        assert list(batches_by_length(rows, batch_tokens=2)) == [[1], [3], [4], [0], [2]]

    def test_pad_batch(self):
        rows = [row([5, 6, 7], [0, 1, 1]), row([8], [1])]
        batch = pad_batch(rows, pad_token_id=9, device=torch.device("cpu"))
        assert {name: values.tolist() for name, values in batch.items()} == {
            "input_ids": [[5, 6, 7], [8, 9, 9]],
            "attention_mask": [[1, 1, 1], [1, 0, 0]],
            "token_type_ids": [[0, 1, 1], [1, 0, 0]],
        }


class TestFeatureExtraction:
    def test_equals_transformers(self, encode, folder, their_tokenizer):
        model = transformers.AlbertModel.from_pretrained(folder)
        theirs = transformers.pipeline(
            "feature-extraction", model=model, tokenizer=their_tokenizer, device=-1
        )
        text = "the harbour opened the word"
        np.testing.assert_allclose(encode(text), theirs(text), atol=1e-5)
        assert np.shape(encode(text))[0] == 1
        ours = encode([text, "my sister"])
        for one, other in zip(ours, theirs([text, "my sister"]), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)

    def test_takes_what_callers_of_transformers_give_the_tokenizer(self, encode, folder, their_tokenizer):
        model = transformers.AlbertModel.from_pretrained(folder)
        theirs = transformers.pipeline(
            "feature-extraction", model=model, tokenizer=their_tokenizer, device=-1
        )
        long = "the harbour opened the word " * 4
        for options in (
            {"tokenize_kwargs": {"truncation": True, "max_length": 6}},
            {"truncation": True, "tokenize_kwargs": {"max_length": 5}},
        ):
            for text in ("", "a", "\U0001f600 word", long):
                expected = theirs(text, **{**options, "tokenize_kwargs": {**options["tokenize_kwargs"]}})
                np.testing.assert_allclose(encode(text, **options), expected, atol=1e-5)
        assert (
            np.shape(encode(long, truncation=True, max_length=7, tokenize_kwargs={"padding": True}))[1] == 7
        )
        with pytest.raises(ConfigError, match="truncation is passed twice, directly and in tokenize_kwargs"):
            encode(long, truncation=True, tokenize_kwargs={"truncation": True})
        with pytest.raises(ConfigError, match=r"tokenize_kwargs has stride. Expected some of truncation"):
            encode(long, tokenize_kwargs={"stride": 3})
        with pytest.raises(ConfigError, match=r"max_length is 2. Expected a whole number of at least 3"):
            encode(long, truncation=True, max_length=2)

    def test_pooling(self, encode):
        text = "the harbour opened the word"
        vectors = encode(text, return_tensors=True)[0]
        assert vectors.shape == (len(encode.tokenizer(text)["input_ids"]), 32)
        # beside a longer text, so that there is padding to leave out
        mean, _ = encode([text, text * 2], pooling="mean", return_tensors=True)
        torch.testing.assert_close(mean, vectors.mean(dim=0), atol=1e-5, rtol=0)
        cls, _ = encode([text, text * 2], pooling="cls")
        np.testing.assert_allclose(cls, vectors[0].tolist(), atol=1e-5)
        with pytest.raises(ConfigError, match=r"pooling is 'median'. Expected one of mean, cls"):
            encode(text, pooling="median")

    def test_text_over_the_limit_is_never_cut_unasked(self, encode):
        long = "word " * (LIMIT - 1)
        with pytest.raises(DataError, match=f"{LIMIT + 1} tokens .* maximum is {LIMIT}.*truncation=True"):
            encode(long)
        cut = encode(long, truncation=True, return_tensors=True)
        torch.testing.assert_close(cut, encode("word " * (LIMIT - 2), return_tensors=True), atol=1e-5, rtol=0)

    def test_special_tokens_as_plain_text(self, encode):
        assert len(encode("a [SEP]")[0]) == len(encode("a")[0]) + 1
        assert len(encode("a [SEP]", parse_special_tokens=False)[0]) > len(encode("a [SEP]")[0])

    def test_model_with_a_head(self, encode, folder, tokenizer):
        model = AlbertForSequenceClassification(AlbertConfig.from_pretrained(folder))
        model.albert.load_state_dict(AlbertModel.from_pretrained(folder).state_dict())
        features = pipeline("feature-extraction", model, tokenizer)("the word")
        np.testing.assert_allclose(features, encode("the word"), atol=1e-5)


class TestLoading:
    def test_model_object(self, fill, folder, tokenizer):
        for model_class in (AlbertForMaskedLM, AlbertForPreTraining):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = model_class.from_pretrained(folder)
            assert_same_answers(pipeline("fill-mask", model, tokenizer)(TEXTS), fill(TEXTS))
        assert_same_answers(pipeline("fill-mask", model, folder)(TEXTS), fill(TEXTS))
        with pytest.raises(ConfigError, match="Pass tokenizer="):
            pipeline("fill-mask", model)
        with pytest.raises(ConfigError, match="already loaded"):
            pipeline("fill-mask", model, tokenizer, dtype="float16")

    def test_model_in_training_is_evaluated_and_goes_on_training(self, fill, folder, tokenizer):
        model = AlbertForPreTraining.from_pretrained(folder).train()
        assert_same_answers(pipeline("fill-mask", model, tokenizer)(TEXTS), fill(TEXTS))
        assert model.training
        assert model.albert.embeddings.dropout.training

    def test_fast_tokenizer_gives_the_same(self, fill, folder):
        fast = pipeline("fill-mask", folder, use_fast=True)
        assert type(fast.tokenizer).__name__ == "AlbertTokenizerFast"
        assert fast(TEXTS) == fill(TEXTS)

    def test_devices(self, folder):
        assert pipeline("fill-mask", folder, device=-1).device.type == "cpu"
        assert pipeline("fill-mask", folder, device="cpu").device.type == "cpu"
        assert pipeline("fill-mask", folder, device_map="auto").device.type in ("cpu", "cuda", "mps")
        with pytest.raises(ConfigError, match="device 'gpu' cannot be used"):
            pipeline("fill-mask", folder, device="gpu")
        with pytest.raises(ConfigError, match="cuda:97"):
            pipeline("fill-mask", folder, device="cuda:97")
        with pytest.raises(ConfigError, match="the same argument"):
            pipeline("fill-mask", folder, device="cpu", device_map="cpu")

    @pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="needs no GPU")
    def test_gpu_number_without_a_gpu_warns(self, folder):
        with pytest.warns(UserWarning, match="device=0, but this machine has no GPU"):
            assert pipeline("fill-mask", folder, device=0).device.type == "cpu"

    def test_dtype(self, fill, folder):
        half = pipeline("fill-mask", folder, torch_dtype="bfloat16")
        assert half.model.dtype == torch.bfloat16
        assert half("the [MASK]")[0]["score"] == pytest.approx(fill("the [MASK]")[0]["score"], rel=0.2)

    def test_unknown_task_and_names(self, folder, tmp_path):
        with pytest.raises(
            ConfigError, match=r"there is no pipeline for the task 'fill_mask'\. Did you mean 'fill-mask'\?"
        ):
            pipeline("fill_mask", folder)
        with pytest.raises(ConfigError, match="the task is None and so is the model"):
            pipeline()
        with pytest.raises(ModelNotFoundError, match="no folder"):
            pipeline("fill-mask", tmp_path / "missing")
        with pytest.raises(ModelNotFoundError, match="albert-base-v2"):
            pipeline("fill-mask", "albert-base-v2", local_files_only=True, cache_dir=tmp_path)

    def test_task_of_the_model(self, fill, encode, folder, tokenizer, tmp_path):
        by_name = pipeline(model=folder)  # saved by AlbertForPreTraining
        assert by_name(TEXTS) == fill(TEXTS)
        for model_class in (AlbertForMaskedLM, AlbertForPreTraining):
            model = model_class.from_pretrained(folder)
            assert_same_answers(pipeline(model=model, tokenizer=tokenizer)(TEXTS), fill(TEXTS))
        encoder = AlbertModel.from_pretrained(folder)
        np.testing.assert_allclose(
            pipeline(model=encoder, tokenizer=tokenizer)("the word"), encode("the word"), atol=1e-5
        )
        encoder.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        assert pipeline(model=tmp_path)("the word") == encode("the word")
        classifier = AlbertForSequenceClassification(encoder.config)
        assert pipeline(model=classifier, tokenizer=tokenizer).task == "text-classification"

    def test_checkpoint_without_the_head_is_an_error(self, folder, tokenizer, tmp_path):
        AlbertModel.from_pretrained(folder).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match=r"not trained for fill-mask.*predictions\.bias"):
            pipeline("fill-mask", tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is missing for features
            pipeline("feature-extraction", tmp_path)

    def test_model_and_tokenizer_that_do_not_belong_together(self, folder, tokenizer):
        model = AlbertForMaskedLM.from_pretrained(folder)
        model.resize_token_embeddings(100)
        with pytest.raises(ConfigError, match="do not belong together"):
            pipeline("fill-mask", model, tokenizer)
        with pytest.raises(
            ConfigError, match=r"AlbertForMaskedLM or AlbertForPreTraining, got albertkit\.AlbertModel"
        ):
            pipeline("fill-mask", AlbertModel.from_pretrained(folder), tokenizer)


class TestAutoTokenizer:
    def test_both_classes(self, folder):
        text = "The harbour's [MASK] (12,000)!"
        default = AutoTokenizer.from_pretrained(folder)
        slow = AutoTokenizer.from_pretrained(folder, use_fast=False)
        fast = AutoTokenizer.from_pretrained(folder, use_fast=True)
        assert [type(one).__name__ for one in (slow, fast)] == ["AlbertTokenizer", "AlbertTokenizerFast"]
        assert type(default) is type(slow)
        assert slow(text)["input_ids"] == fast(text)["input_ids"]
        assert default.name_or_path == str(folder)

    def test_tokenizer_json_alone(self, folder, tmp_path):
        (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
        alone = AutoTokenizer.from_pretrained(tmp_path)
        assert alone.is_fast
        assert (
            alone("the word")["input_ids"] == AutoTokenizer.from_pretrained(folder)("the word")["input_ids"]
        )

    def test_vocabulary_file_and_overrides(self, tiny_vocabulary):
        tokenizer = AutoTokenizer.from_pretrained(tiny_vocabulary, do_lower_case=False)
        assert not tokenizer.do_lower_case

    def test_what_is_not_alberts(self, tmp_path):
        (tmp_path / "config.json").write_text('{"model_type": "albert"}')
        with pytest.raises(ModelNotFoundError, match=r"holds config\.json. Expected a tokenizer"):
            AutoTokenizer.from_pretrained(tmp_path)
        (tmp_path / "vocab.txt").write_text("[PAD]\n")
        with pytest.raises(AlbertKitError, match=r"1 pieces do not contain '\[CLS\]'"):
            AutoTokenizer.from_pretrained(tmp_path)
        (tmp_path / "tokenizer.json").write_text("{}")
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        with pytest.raises(AlbertKitError, match="tokenizer class 'BertTokenizer'"):
            AutoTokenizer.from_pretrained(tmp_path)

    def test_not_instantiated(self):
        with pytest.raises(TypeError, match="from_pretrained"):
            AutoTokenizer()
