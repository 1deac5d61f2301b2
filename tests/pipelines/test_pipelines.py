"""Tests of `fill-mask`: the answers of transformers, targets, windows and batches."""

import random
import types
from pathlib import Path

import numpy as np
import pytest
import transformers
from pipeline_answers import MASKED_TEXTS, assert_same_answers

import albertkit
from albertkit.errors import ConfigError, DataError
from albertkit.modeling.heads import AlbertForMaskedLM
from albertkit.pipelines import pipeline
from albertkit.tasks.masked_lm import centered_window
from albertkit.tokenization.tokenizer import AutoTokenizer

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")
LIMIT = 40


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


class TestFillMask:
    @pytest.mark.parametrize("text", MASKED_TEXTS)
    def test_equals_transformers(self, fill, their_fill, their_tokenizer, text):
        assert fill.tokenizer(text)["input_ids"] == their_tokenizer(text)["input_ids"]
        ours, theirs = fill(text, top_k=7), their_fill(text, top_k=7)
        assert_same_answers(ours, theirs)
        if text.count("[MASK]") == 1:
            assert [list(one) for one in ours] == [["score", "token", "token_str", "sequence"]] * 7
            assert [one["token_str"] for one in ours] == [one["token_str"] for one in theirs]
            assert [one["sequence"] for one in ours] == [one["sequence"] for one in theirs]

    def test_arguments_of_the_tokenizer_as_in_transformers(self, fill, their_fill):
        for text in ("the [MASK] word", "[MASK]"):
            given = {"truncation": True, "padding": True}
            assert_same_answers(fill(text, tokenizer_kwargs=given), their_fill(text, tokenizer_kwargs=given))
        text = "the harbour word found a [MASK] of my sister"
        (first, *_) = fill(text, tokenizer_kwargs={"max_length": 6})
        start, end = first["window"]
        assert "[MASK]" in text[start:end]
        assert len(fill.tokenizer(text[start:end])["input_ids"]) == 6

    def test_several_masks_have_an_answer_each(self, fill, their_fill):
        text = "the [MASK] harbour found [MASK] word"
        ours = fill(text, top_k=2)
        assert [len(words) for words in ours] == [2, 2]
        first, second = ours[0][0], ours[1][0]
        # transformers writes no space before a remaining mask: "my[MASK] sister"
        spaced = [
            one["sequence"].replace("[MASK]", " [MASK]").replace("  ", " ")
            for words in their_fill(text, top_k=2)
            for one in words
        ]
        assert [first["sequence"], second["sequence"]] == spaced[::2]
        assert first["sequence"].count("[MASK]") == 1

    def test_token_str_is_the_word(self, fill):
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
            (
                "the [MASK] z word",
                "the harbour  word",
            ),  # an unknown piece is a special token, which is removed
            ("the [MASK], 12,000 [MASK]!", "[CLS] the harbour, 12,000 [MASK]![SEP]"),
        ],
    )
    def test_sequence_has_the_spaces_of_the_text(self, fill, text, sequence):
        answer = fill(text, targets="harbour")
        answer = answer[0] if isinstance(answer[0], dict) else answer[0][0]
        assert answer["sequence"] == sequence

    def test_targets_are_scored_among_all_words(self, fill, their_fill):
        everything = {one["token"]: one["score"] for one in fill(MASKED_TEXTS[0], top_k=len(fill.tokenizer))}
        assert sum(everything.values()) == pytest.approx(1, abs=1e-4)
        chosen = fill(MASKED_TEXTS[0], targets=["word", "harbour", "word"], top_k=5)
        assert {one["token_str"] for one in chosen} == {"word", "harbour"}
        assert chosen[0]["score"] >= chosen[1]["score"]
        for one in chosen:
            assert one["score"] == pytest.approx(everything[one["token"]], abs=1e-6)
        assert_same_answers(chosen, their_fill(MASKED_TEXTS[0], targets=["▁word", "▁harbour"], top_k=2))
        assert len(fill(MASKED_TEXTS[0], targets=["word", "harbour"], top_k=1)) == 1

    def test_a_target_is_a_word_or_else_a_piece_inside_a_word(self, fill):
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

    def test_a_target_of_several_pieces_is_an_error(self, fill):
        with pytest.raises(
            DataError, match=r"'photosynthesis' is not a single piece .*split into ▁ p ho to s y n t he sis"
        ):
            fill("[MASK]", targets=["word", "photosynthesis"])
        with pytest.raises(DataError, match="not a single piece"):
            fill("[MASK]", targets="日本")
        with pytest.raises(DataError, match="targets is empty"):
            fill("[MASK]", targets=[])

    def test_a_text_without_a_mask_is_an_error(self, fill):
        with pytest.raises(DataError, match=r"there is no \[MASK\] in the text 'the word'"):
            fill(["a [MASK]", "the word"])

    @pytest.mark.parametrize("top_k", [0, -1, 10_000, 2.5, "3", True])
    def test_invalid_top_k(self, fill, top_k):
        with pytest.raises(ConfigError, match=f"top_k is {top_k!r}. Expected a whole number"):
            fill("[MASK]", top_k=top_k)

    def test_masks_are_parsed_with_any_tokenizer(self, fill, folder):
        plain = pipeline(
            "fill-mask", folder, AutoTokenizer.from_pretrained(folder, parse_special_tokens=False)
        )
        assert plain(MASKED_TEXTS[0]) == fill(MASKED_TEXTS[0])

    def test_options_of_the_constructor_are_defaults(self, folder):
        fill = pipeline("fill-mask", folder, top_k=2, targets=["word", "harbour", "morning"], batch_size=3)
        assert len(fill("[MASK]")) == 2
        assert len(fill("[MASK]", top_k=3)) == 3
        assert fill("[MASK]", targets="code")[0]["token_str"] == "code"

    def test_additional_embeddings_are_never_answers(self, folder, tokenizer):
        model = AlbertForMaskedLM.from_pretrained(folder)
        model.resize_token_embeddings(len(tokenizer) + 12)
        answers = pipeline("fill-mask", model, tokenizer)("[MASK]", top_k=len(tokenizer))
        assert max(one["token"] for one in answers) < len(tokenizer)


class TestWindows:
    """Texts that exceed the maximum length of the model."""

    def test_each_mask_has_a_window_around_it(self, fill):
        before, after = "word " * 60, " harbour" * 60
        text = f"{before}[MASK]{after}"
        answers = fill(text, top_k=3)
        start, end = answers[0]["window"]
        assert start < len(before) < end
        assert text[start:end].split().count("word") in (18, 19)
        assert text[start:end].split().count("harbour") in (18, 19)
        assert_same_answers(answers, fill(text[start:end], top_k=3))
        assert answers[0]["sequence"].count("word") >= 60  # the text and not only the window
        assert "window" not in fill("a [MASK]")[0]

    def test_windows_at_the_ends_of_a_text(self, fill):
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
    def test_centered_window(self, position, expected):
        assert centered_window(position, first=1, last=99, size=10) == expected


class TestInputs:
    """A text, lists and iterables: the order, the batches and the errors."""

    def test_list_tuple_array_and_empty_list(self, fill):
        assert isinstance(fill(["[MASK]"])[0], list)
        expected = fill(["the [MASK]", "[MASK] code"])
        assert_same_answers(fill(("the [MASK]", "[MASK] code")), expected)
        assert_same_answers(fill(np.array(["the [MASK]", "[MASK] code"])), expected)
        assert fill([]) == []

    def test_a_generator_is_read_some_batches_ahead(self, fill):
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


@pytest.mark.parametrize(
    ("name", "task", "architecture"),
    [
        ("FillMaskPipeline", "fill-mask", "AlbertForPreTraining"),
        ("FeatureExtractionPipeline", "feature-extraction", "AlbertModel"),
        ("TextClassificationPipeline", "text-classification", "AlbertForSequenceClassification"),
        ("ZeroShotClassificationPipeline", "zero-shot-classification", "AlbertForSequenceClassification"),
    ],
)
def test_classes_have_the_names_and_tasks_of_transformers(name: str, task: str, architecture: str) -> None:
    tokenizer = albertkit.AutoTokenizer.from_pretrained("bundled")
    config = albertkit.AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=16,
        num_hidden_layers=1,
        label2id={"entailment": 0, "contradiction": 1},
    )
    model = getattr(albertkit, architecture)(config)
    text = "The [MASK] waited."
    options = {"candidate_labels": ["a", "b"]} if "zero" in task else {}
    made = getattr(albertkit, name)(model=model, tokenizer=tokenizer, **options)
    assert made.task == task
    assert made(text) == albertkit.pipeline(task, model=model, tokenizer=tokenizer, **options)(text)
