"""Pipelines of fine-tuned models: equal to those of transformers, whatever the batch, with exact places."""

import functools
import json
import random
import types
import warnings
from pathlib import Path

import hypothesis
import pytest
import torch
import transformers
from hypothesis import strategies as st

from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError, ConfigError, DataError, TokenizerError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.pipelines import interface, pipeline
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("engine_of_pipelines")

LIMIT = 96
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = ["harbour", "opened", "word", "the", "silver", "code", "dinner", "letters", "sister", "remembered"]
TEXT = "the captain opened the harbour in the morning"


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary: Path) -> AlbertTokenizer:
    return AlbertTokenizer(tiny_vocabulary)


@pytest.fixture(scope="module")
def save(tokenizer, tmp_path_factory):
    """Save a random model of a class; large weights, so that its answers differ."""

    def save(model_class: type[AlbertPreTrainedModel], **settings) -> Path:
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
            **settings,
        )
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp("model")
        model_class(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="module")
def classes(save) -> Path:
    return save(AlbertForSequenceClassification, id2label={0: "bad", 1: "fair", 2: "good"})


@pytest.fixture(scope="module")
def tags(save) -> Path:
    return save(AlbertForTokenClassification, id2label=dict(enumerate(LABELS)))


@pytest.fixture(scope="module")
def questions(save) -> Path:
    return save(AlbertForQuestionAnswering)


@pytest.fixture(scope="module")
def choices(save) -> Path:
    return save(AlbertForMultipleChoice)


@pytest.fixture(scope="module")
def order(save) -> Path:
    return save(AlbertForPreTraining)


@functools.cache
def theirs(task: str, model_class: str, folder: Path, **options) -> transformers.Pipeline:
    model = getattr(transformers, model_class).from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device=-1, **options)


def random_texts(count: int, *, words: tuple[int, int] = (1, 30), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(*words))) for _ in range(count)]


def assert_close(ours, theirs, *, tolerance: float = 1e-5) -> None:
    """The same answers, numbers to 1e-5."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert_close(ours[name], theirs[name], tolerance=tolerance)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other, tolerance=tolerance)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=tolerance)
    else:
        assert ours == theirs


def plain(value):
    """NumPy numbers as Python's."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


class TestTextClassification:
    @pytest.mark.parametrize("options", [{}, {"top_k": None}, {"top_k": 1}, {"top_k": 2}])
    @pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
    def test_equals_transformers(self, classes, options, function):
        if function:
            options = {**options, "function_to_apply": function}
        classify = pipeline("text-classification", classes)
        their = theirs("text-classification", "AlbertForSequenceClassification", classes)
        for given in (TEXT, [TEXT], [TEXT, "word"], {"text": TEXT}):
            assert_close(classify(given, **options), their(given, **options))

    def test_defaults_given_once(self, classes):
        for options in ({"top_k": None}, {"top_k": 2, "function_to_apply": "sigmoid"}):
            classify = pipeline("sentiment-analysis", classes, **options)
            their = theirs("text-classification", "AlbertForSequenceClassification", classes, **options)
            assert_close(classify(TEXT), their(TEXT))
            assert_close(classify([TEXT, "word"]), their([TEXT, "word"]))

    @pytest.mark.parametrize(
        "settings",
        [
            {"num_labels": 1},
            {"num_labels": 1, "problem_type": "regression"},
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            {"num_labels": 3, "problem_type": "single_label_classification"},
        ],
    )
    def test_problem_types_as_in_transformers(self, save, settings):
        folder = save(AlbertForSequenceClassification, **settings)
        classify = pipeline("text-classification", folder)
        their = theirs("text-classification", "AlbertForSequenceClassification", folder)
        assert_close(classify([TEXT], top_k=None), their([TEXT], top_k=None))
        if settings.get("problem_type") != "multi_label_classification":
            assert_close(classify(TEXT), their(TEXT))

    def test_several_labels_are_decided_as_in_predict(self, save):
        folder = save(
            AlbertForSequenceClassification, num_labels=3, problem_type="multi_label_classification"
        )
        classify = pipeline("text-classification", folder)
        texts = random_texts(20)
        every = classify(texts, top_k=None)
        expected = [[one for one in some if one["score"] > 0.5] for some in every]
        assert len({len(one) for one in expected}) > 1
        assert classify(texts) == expected
        assert_close(classify(texts[0]), expected[0])
        assert_close(classify([{"text": texts[0]}]), expected[:1])
        assert [len(one) for one in classify(texts, top_k=1)] == [1] * 20

    def test_segments_of_a_pair_reach_the_model(self, classes, tokenizer):
        model = transformers.AlbertForSequenceClassification.from_pretrained(classes).eval()
        inputs = tokenizer(TEXT, "my sister", return_tensors="pt")
        assert inputs["token_type_ids"].sum() == len(tokenizer("my sister")["input_ids"]) - 1
        with torch.no_grad():
            probabilities = model(**inputs).logits.softmax(dim=-1)[0]
            blind = model(**{**inputs, "token_type_ids": None}).logits.softmax(dim=-1)[0]
        classify = pipeline("text-classification", classes, top_k=None)
        for given in ({"text": TEXT, "text_pair": "my sister"}, (TEXT, "my sister")):
            scores = {one["label"]: one["score"] for one in classify(given)}
            assert [scores[label] for label in ("bad", "fair", "good")] == pytest.approx(
                probabilities.tolist(), abs=1e-5
            )
        assert (probabilities - blind).abs().max() > 1e-3

    def test_text_over_the_limit_is_never_cut_unasked(self, classes):
        classify = pipeline("text-classification", classes)
        long = "word " * 100
        with pytest.raises(DataError, match=f"102 tokens .* maximum is {LIMIT}.*truncation=True"):
            classify([TEXT, long])
        (cut,) = classify(long, truncation=True)
        assert cut.pop("cut") == 102 - LIMIT
        assert_close([cut], classify("word " * (LIMIT - 2)))
        assert "cut" not in classify(TEXT, truncation=True)[0]
        assert classify(TEXT, truncation=True, max_length=5)[0]["cut"] > 0
        with pytest.raises(ConfigError, match=f"max_length is 100. Expected at most {LIMIT}"):
            classify(TEXT, max_length=100)

    @pytest.mark.parametrize(
        "options",
        [
            {"padding": True, "truncation": True, "max_length": 6},
            {"padding": "max_length", "truncation": "longest_first", "max_length": 6, "top_k": None},
            {"truncation": "only_first", "max_length": 7, "batch_size": 2},
            {"truncation": "do_not_truncate", "padding": "do_not_pad"},
        ],
    )
    def test_takes_what_callers_of_transformers_give_the_tokenizer(self, classes, options):
        their = theirs("text-classification", "AlbertForSequenceClassification", classes)
        texts = ["", "a", "\U0001f600 word", TEXT, "the word " * 10]
        classify = pipeline("text-classification", classes)
        plain_options = {name: value for name, value in options.items() if name != "batch_size"}
        expected = [their([text], **plain_options)[0] for text in texts]
        given = {
            name: value for name, value in options.items() if name in ("padding", "truncation", "max_length")
        }
        for answers in (
            classify(texts, **options),
            pipeline("text-classification", classes, **given)(
                texts, **{name: value for name, value in options.items() if name not in given}
            ),
        ):
            for one in (one for some in answers for one in (some if isinstance(some, list) else [some])):
                one.pop("cut", None)
            assert_close(answers, expected)

    def test_either_text_of_a_pair_can_be_cut(self, classes):
        classify = pipeline("text-classification", classes, max_length=9)
        long, short = "word " * 20, "word"
        for strategy, pair, cut in (
            ("only_first", (long, short), ("word " * 5, short)),
            ("only_second", (short, long), (short, "word " * 5)),
        ):
            found = classify(pair, truncation=strategy)
            assert found.pop("cut") == 15
            assert_close(found, classify(cut))
        with pytest.raises(DataError, match="24 tokens"):
            classify((long, short), truncation="do_not_truncate")
        with pytest.raises(TokenizerError, match="truncation='first': expected True, False or one of"):
            classify(long, truncation="first")
        with pytest.raises(TokenizerError, match="padding='left'"):
            classify(TEXT, padding="left")

    def test_generator_and_files(self, classes, tmp_path):
        classify = pipeline("text-classification", classes)
        expected = classify([TEXT, "word"])
        answers = classify(text for text in [TEXT, "word"])
        assert isinstance(answers, types.GeneratorType)
        assert_close(list(answers), expected)
        (tmp_path / "texts.txt").write_text(f"\ufeff{TEXT}\n\n word \n")
        assert_close(list(classify(tmp_path / "texts.txt")), expected)
        (tmp_path / "pairs.tsv").write_text(f"{TEXT}\tmy sister\nword\n")
        assert_close(list(classify(tmp_path / "pairs.tsv")), classify([(TEXT, "my sister"), "word"]))
        lines = [{"text": TEXT, "text_pair": "my sister"}, "word"]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert_close(list(classify(tmp_path / "pairs.jsonl")), classify([(TEXT, "my sister"), "word"]))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tb\tc\n", r"bad\.tsv, line 1: 3 columns. Expected text, text_pair"),
            ("\n\n", r"bad\.tsv has no text"),
        ],
    )
    def test_bad_files(self, classes, tmp_path, content, message):
        (tmp_path / "bad.tsv").write_text(content)
        with pytest.raises(DataError, match=message):
            list(pipeline("text-classification", classes)(tmp_path / "bad.tsv"))
        (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"')
        with pytest.raises(DataError, match=r"bad\.jsonl, line 2: not JSON"):
            list(pipeline("text-classification", classes)(tmp_path / "bad.jsonl"))

    @pytest.mark.parametrize("bad", [[3], [("a", 3)], [{"txt": "a"}], [{"text": 3}], [["a", "b", "c"]]])
    def test_what_is_no_text(self, classes, bad):
        with pytest.raises(DataError, match=r"for a text. Expected a string, or for a pair"):
            pipeline("text-classification", classes)(bad)

    def test_bad_options(self, classes):
        classify = pipeline("text-classification", classes)
        with pytest.raises(ConfigError, match="top_k is 0"):
            classify(TEXT, top_k=0)
        with pytest.raises(ConfigError, match="function_to_apply is 'tanh'"):
            classify(TEXT, function_to_apply="tanh")


class TestTokenClassification:
    def test_the_stride_is_the_calls_or_the_pipelines(self, tags):
        text = " ".join(random_texts(1, words=(90, 90)))
        tag = pipeline("ner", tags, ignore_labels=[])
        given = tag(text, stride=3)
        assert_close(given, pipeline("ner", tags, ignore_labels=[], stride=3)(text))
        assert [one["word"] for one in given] == [one["word"] for one in tag(text)]
        scores = [[one["score"] for one in answers] for answers in (given, tag(text))]
        assert scores[0] != pytest.approx(scores[1], abs=1e-5)  # other windows, other context

    @pytest.mark.parametrize("strategy", ["none", "simple", "first", "max", "average"])
    def test_equals_transformers(self, tags, strategy):
        """On texts without punctuation, and pieces that are more than the mark of a word's beginning."""
        tag = pipeline("ner", tags, aggregation_strategy=strategy)
        their = theirs("ner", "AlbertForTokenClassification", tags, aggregation_strategy=strategy)
        given = ["The captain carried  Lanimofe near the harbour", *random_texts(20, words=(1, 12))]
        texts = [
            " ".join(word for word in text.split(" ") if "\u2581" not in tag.tokenizer.tokenize(word))
            for text in given
        ]
        for ignored in (["O"], []):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its own word heuristic
                expected = [plain(their(text, ignore_labels=ignored)) for text in texts]
            answers = tag(texts, ignore_labels=ignored)
            assert sum(map(len, answers)) > 20
            for one in (one for some in (*answers, *expected) for one in some):
                one["word"] = one["word"].replace(" ", "")  # theirs joins words without spaces
            assert_close(answers, expected)

    def test_words(self, tags):
        tag = pipeline("ner", tags, aggregation_strategy="first", ignore_labels=[])
        words = ["The", "captain", ",", "Lanimofe", "."]
        expected = tag("The captain , Lanimofe .")
        assert_close(tag(words, is_split_into_words=True), expected)
        assert_close(tag([words], is_split_into_words=True), [expected])
        assert_close(list(tag(iter([words, words]), is_split_into_words=True)), [expected] * 2)
        assert tag([], is_split_into_words=True) == []

    def test_punctuation_is_read_and_placed_apart_from_words(self, tags):
        tag = pipeline("ner", tags, aggregation_strategy="first", ignore_labels=[])
        text = 'He said:  "the Captain (Lanimofe) remembered\t12,000 words."'
        apart = 'He said : " the Captain ( Lanimofe ) remembered 12,000 words . "'
        ours, expected = tag(text), tag(apart)
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in expected], abs=1e-5)
        for one, other in zip(ours, expected, strict=True):
            assert text[one["start"] : one["end"]].split() != []
            assert "".join(text[one["start"] : one["end"]].split()) == "".join(
                apart[other["start"] : other["end"]].split()
            )

    def test_any_length_in_windows(self, tags):
        tag = pipeline("token-classification", tags, ignore_labels=[])
        text = random_texts(1, words=(300, 300))[0]
        pieces = tag(text)
        assert [one["index"] for one in pieces] == list(range(1, len(pieces) + 1))
        assert [one["word"] for one in pieces] == tag.tokenizer.tokenize(text)
        assert text == " ".join(
            text[one["start"] : one["end"]] for one in tag(text, aggregation_strategy="first")
        )
        assert pieces[0]["start"] == 0
        assert pieces[-1]["end"] == len(text)

    def test_any_batch_gives_the_same_answers(self, tags):
        tag = pipeline("token-classification", tags, aggregation_strategy="average")
        texts = [*random_texts(20), *random_texts(5, words=(60, 90), seed=1), "", " "]
        single = [tag(text) for text in texts]
        assert single[-2:] == [[], []]
        for batch_size in (1, 5, None):
            assert_close(tag(texts, batch_size=batch_size), single)

    def test_errors(self, tags):
        with pytest.raises(
            ConfigError, match=r"aggregation_strategy is 'mean'. Expected one of none, simple"
        ):
            pipeline("ner", tags, aggregation_strategy="mean")
        with pytest.raises(DataError, match="Expected a string, or a list of words"):
            pipeline("ner", tags)([3])


class TestQuestionAnswering:
    CONTEXT = "The captain, Lanimofe, opened the harbour in the morning of 1,847. My sister remembered it."
    QUESTION = "who opened the harbour"

    def reference(
        self, folder: Path, question: str, context: str, *, max_answer_len: int
    ) -> tuple[list[tuple[float, int, int]], float]:
        """Every span (score, start, end) of a context that fits one window, and the score of no answer.

        By the formula of transformers 4 (5 has no such pipeline), slowly and on the model of transformers.
        """
        tokenizer = AlbertTokenizer.from_pretrained(folder)
        inputs = tokenizer(question, context, return_tensors="pt")
        offsets, sequence = inputs[0].offsets, inputs[0].sequence_ids
        model = transformers.AlbertForQuestionAnswering.from_pretrained(folder).eval()
        with torch.no_grad():
            output = model(**inputs)
        allowed = torch.tensor([position == 0 or which == 1 for position, which in enumerate(sequence)])
        starts, ends = (
            logits[0].masked_fill(~allowed, float("-inf")).softmax(dim=-1)
            for logits in (output.start_logits, output.end_logits)
        )
        found: dict[tuple[int, int], float] = {}
        inside = [position for position, which in enumerate(sequence) if which == 1]
        for first in inside:
            for last in inside:
                if first <= last < first + max_answer_len:
                    start, end = offsets[first][0], offsets[last][1]
                    while start < end and start and context[start - 1 : start + 1].isalnum():
                        start -= 1
                    while start < end < len(context) and context[end - 1 : end + 1].isalnum():
                        end += 1
                    if start < end:
                        score = float(starts[first] * ends[last])
                        found[start, end] = max(score, found.get((start, end), 0))
        null = float(starts[0] * ends[0])
        return sorted(((score, *place) for place, score in found.items()), reverse=True), null

    @pytest.mark.parametrize("max_answer_len", [1, 4, 30])
    def test_equals_every_span_tried(self, questions, max_answer_len):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT, "max_answer_len": max_answer_len}
        expected, null = self.reference(questions, self.QUESTION, self.CONTEXT, max_answer_len=max_answer_len)
        apart: list[tuple[float, int, int]] = []
        for score, start, end in expected:
            if all(end <= other[1] or other[2] <= start for other in apart):
                apart.append((score, start, end))
        answers = answer(**given, top_k=10)
        expected = apart
        assert list(answers[0]) == ["score", "start", "end", "answer"]
        assert [one["score"] for one in answers] == pytest.approx(
            [score for score, _, _ in expected[:10]], abs=1e-5
        )
        for one in answers:
            assert one["answer"] == self.CONTEXT[one["start"] : one["end"]]
            assert one["score"] == pytest.approx(
                next(score for score, *place in expected if place == [one["start"], one["end"]]), abs=1e-5
            )
        assert len(answer(**given, top_k=1_000)) == len(expected)
        possible = answer(**given, top_k=1_000, handle_impossible_answer=True)
        (nothing,) = (one for one in possible if not one["answer"])
        assert nothing == {"score": pytest.approx(null, abs=1e-5), "start": 0, "end": 0, "answer": ""}
        scores = [one["score"] for one in possible]
        assert scores == sorted(scores, reverse=True)

    def test_shapes(self, questions):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        single = answer(given)
        assert isinstance(single, dict)
        assert_close(answer(**given), single)
        assert_close(answer([given, given]), [single, single])
        assert_close(answer(question=[self.QUESTION] * 2, context=self.CONTEXT), [single, single])
        assert_close(list(answer(iter([given]))), [single])
        assert_close(answer(given, top_k=3)[0], single)
        assert len(answer(given, top_k=3)) == 3

    def test_files(self, questions, tmp_path):
        answer = pipeline("question-answering", questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        (tmp_path / "q.tsv").write_text(f"{self.QUESTION}\t{self.CONTEXT}\n")
        (tmp_path / "q.jsonl").write_text(json.dumps({"id": 7, **given}))
        for name in ("q.tsv", "q.jsonl"):
            assert_close(list(answer(tmp_path / name)), [answer(given)])

    def test_windows_and_batches(self, questions):
        answer = pipeline("question-answering", questions, top_k=5, doc_stride=16)
        given = [
            {"question": "the " + text, "context": context}
            for text, context in zip(
                random_texts(12, words=(1, 5)), random_texts(12, words=(1, 150), seed=3), strict=True
            )
        ]
        single = [answer(one) for one in given]
        for batch_size in (1, 5, None):
            assert_close(answer(given, batch_size=batch_size), single)
        for one, answers in zip(given, single, strict=True):
            for found in answers:
                assert one["context"][found["start"] : found["end"]] == found["answer"] != ""
                assert 0 < found["score"] < 1
        # somewhere an answer is found far behind the first window
        assert max(found["start"] for answers in single for found in answers) > 300

    def test_no_answer_by_the_threshold_of_the_config(self, questions, tokenizer, tmp_path):
        model = AlbertForQuestionAnswering.from_pretrained(questions)
        given = {"question": self.QUESTION, "context": self.CONTEXT}
        best = pipeline("question-answering", model, tokenizer)(given)
        assert best["answer"]
        for threshold, empty in ((-1e6, True), (1e6, False)):
            model.config.null_score_diff_threshold = threshold
            model.save_pretrained(tmp_path)
            tokenizer.save_pretrained(tmp_path)
            answer = pipeline("question-answering", tmp_path)
            assert (answer(given)["answer"] == "") is empty
            assert_close(answer(given, handle_impossible_answer=False), best)

    def test_errors(self, questions):
        answer = pipeline("question-answering", questions)
        for empty in ("", " \n"):
            with pytest.raises(DataError, match=r"the context is empty. Expected a text"):
                answer(question="who", context=empty)
            with pytest.raises(DataError, match=r"the question is empty. Expected a text"):
                answer(question=empty, context="a word")
        with pytest.raises(DataError, match="Pass both"):
            answer()
        with pytest.raises(
            ConfigError, match=r'2 positional arguments.*question="\.\.\." and context="\.\.\." by name'
        ):
            answer("who", self.CONTEXT)
        with pytest.raises(DataError, match=r"the question .* has \d+ tokens. Expected at most 48"):
            answer(question="word " * 60, context=self.CONTEXT)
        with pytest.raises(DataError, match="Pass both"):
            answer(question="who")
        with pytest.raises(DataError, match="2 questions and 3 contexts"):
            answer(question=["who"] * 2, context=["a"] * 3)
        with pytest.raises(DataError, match=r'Expected \{"question"'):
            answer(["who"])
        with pytest.raises(ConfigError, match="max_answer_len is 0"):
            answer(question="who", context="a", max_answer_len=0)


class TestMultipleChoice:
    GIVEN = types.MappingProxyType(
        {
            "context": "The captain opened the harbour",
            "question": "who opened it",
            "choices": ["the captain", "my sister", "a silver fox in the morning"],
        }
    )

    def test_equals_the_logits_of_transformers(self, choices, tokenizer):
        model = transformers.AlbertForMultipleChoice.from_pretrained(choices).eval()
        context, question, options = self.GIVEN.values()
        inputs = tokenizer(
            [context] * 3, [f"{question} {option}" for option in options], padding=True, return_tensors="pt"
        )
        assert inputs["token_type_ids"].any()
        with torch.no_grad():
            logits = model(**{name: value[None] for name, value in inputs.items()}).logits
        answer = pipeline("multiple-choice", choices)(self.GIVEN)
        assert answer["scores"] == pytest.approx(logits.softmax(dim=-1)[0].tolist(), abs=1e-5)
        assert answer["index"] == int(logits.argmax())
        assert answer["choice"] == options[answer["index"]]
        assert answer["score"] == max(answer["scores"])

    def test_gap_is_filled(self, choices):
        choose = pipeline("multiple-choice", choices)
        gap = choose({**self.GIVEN, "question": "_ opened it"})
        filled = [f"{choice} opened it" for choice in self.GIVEN["choices"]]
        assert_close(gap["scores"], choose({**self.GIVEN, "question": None, "choices": filled})["scores"])

    def test_batches_files_and_lists(self, choices, tmp_path):
        choose = pipeline("multiple-choice", choices)
        given = [
            {
                "context": context,
                "question": "",
                "choices": random_texts(2 + number % 3, words=(1, 9), seed=number),
            }
            for number, context in enumerate(random_texts(12))
        ]
        single = [choose(one) for one in given]
        for batch_size in (1, 5, None):
            assert_close(choose(given, batch_size=batch_size), single)
        lines = ["\t".join([one["context"], "", *one["choices"]]) for one in given]
        (tmp_path / "c.tsv").write_text("\n".join(lines))
        assert_close(list(choose(tmp_path / "c.tsv")), single)
        (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, given)))
        assert_close(list(choose(tmp_path / "c.jsonl")), single)

    def test_long_context(self, choices):
        choose = pipeline("multiple-choice", choices)
        long = {**self.GIVEN, "context": "word " * 100}
        with pytest.raises(DataError, match="truncation=True"):
            choose(long)
        answer = choose(long, truncation=True)
        assert answer["cut"] > 20
        with pytest.raises(DataError, match="leaves no room for the first"):
            choose({**long, "choices": ["word " * 100, "a"]}, truncation=True)

    @pytest.mark.parametrize(
        "bad", [{"context": "a"}, {"context": "a", "choices": "bc"}, {"choices": ["a", "b"]}]
    )
    def test_errors(self, choices, bad):
        choose = pipeline("multiple-choice", choices)
        with pytest.raises(DataError, match=r'Expected \{"context"'):
            choose(bad)
        with pytest.raises(DataError, match=r"has 1 choices. Expected at least two"):
            choose({"context": "a", "choices": ["b"]})


class TestSentenceOrder:
    def test_equals_the_logits_of_transformers(self, order, tokenizer):
        model = transformers.AlbertForPreTraining.from_pretrained(order).eval()
        with torch.no_grad():
            logits = model(**tokenizer(TEXT, "my sister", return_tensors="pt")).sop_logits[0]
        judge = pipeline("sentence-order", order)
        answer = judge((TEXT, "my sister"))
        assert answer == {
            "label": ("in order", "swapped")[int(logits.argmax())],
            "score": pytest.approx(float(logits.softmax(dim=-1).max()), abs=1e-5),
        }
        assert_close(judge({"text": TEXT, "text_pair": "my sister"}), answer)

    def test_batches_and_files(self, order, tmp_path):
        judge = pipeline("sentence-order", order)
        pairs = list(
            zip(random_texts(20, words=(1, 15)), random_texts(20, words=(1, 15), seed=1), strict=True)
        )
        single = [judge(pair) for pair in pairs]
        for batch_size in (1, 6, None):
            assert_close(judge(pairs, batch_size=batch_size), single)
        (tmp_path / "pairs.tsv").write_text("\n".join("\t".join(pair) for pair in pairs))
        assert_close(list(judge(tmp_path / "pairs.tsv")), single)

    def test_errors(self, order):
        judge = pipeline("sentence-order", order)
        for bad in (TEXT, [TEXT], {"text": TEXT}):
            with pytest.raises(DataError, match="Expected a pair"):
                judge(bad)

    def test_a_head_of_other_labels(self, order):
        model = AlbertForPreTraining(AlbertConfig.from_pretrained(order, num_labels=3))
        with pytest.raises(ConfigError, match="needs a model with num_labels=2, got 3"):
            pipeline("sentence-order", model, tokenizer=AlbertTokenizer.from_pretrained(order))

    def test_bundled_model(self):
        judge = pipeline("sentence-order")
        answer = judge(("The ship left the harbour at dawn.", "By noon it was out of sight."))
        assert answer["label"] in ("in order", "swapped")
        assert 0.5 <= answer["score"] <= 1


TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-order",
    "feature-extraction",
    "fill-mask",
)


@pytest.fixture(scope="module")
def made(engine_of_pipelines, classes, tags, questions, choices, order):
    """For each task the pipeline on each of the two engines."""
    folders = dict(zip(TASKS, (classes, tags, questions, choices, order, order, order), strict=True))
    options = {
        "text-classification": {"top_k": None},
        "feature-extraction": {"pooling": "mean"},
        "multiple-choice": {"truncation": True},
    }
    return {
        task: {
            engine: pipeline(task, folder, engine=engine, **options.get(task, {}))
            for engine in ("auto", "plain")
        }
        for task, folder in folders.items()
    }


class TestAnyBatch:
    """Whatever the lengths, the batch and the way in: the answers of the plain model to each input alone."""

    @staticmethod
    def example(task: str, length: int, rng: random.Random):
        """An input with a text of so many words; of text classification sometimes a pair."""
        first, second, *others = (" ".join(rng.choices(WORDS, k=n)) for n in (length, 1 + length // 3, 1, 2))
        return {
            "question-answering": {"question": second, "context": first},
            "multiple-choice": {"context": first, "question": second, "choices": others},
            "text-classification": rng.choice([first, (first, second)]),
            "sentence-order": (first, second),
            "fill-mask": f"{first} [MASK] {second}",
        }.get(task, first)

    @pytest.mark.parametrize("task", TASKS)
    @hypothesis.given(
        lengths=st.lists(st.integers(1, 20), min_size=1, max_size=7),
        batch_size=st.none() | st.integers(1, 5),
        batch_tokens=st.none() | st.integers(1, 200),
        ahead=st.integers(1, 8),
        way=st.sampled_from(["list", "generator", "file"]),
        engine=st.sampled_from(["auto", "auto", "plain"]),  # which is the same in both runs of this file
        seed=st.integers(0, 2**16),
    )
    @hypothesis.settings(
        max_examples=20,
        suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
    )
    def test_answers_and_their_order(
        self, task, made, tmp_path, lengths, batch_size, batch_tokens, ahead, way, engine, seed
    ):
        rng = random.Random(seed)
        inputs = [self.example(task, length, rng) for length in lengths]
        asked = made[task][engine]
        # one-element lists: of a single text some tasks answer in another shape
        alone = [made[task]["plain"]([one], batch_size=1)[0] for one in inputs]
        asked.batch_tokens = batch_tokens
        given = inputs
        if way == "generator":
            given = iter(inputs)
        elif way == "file":
            given = tmp_path / "inputs.jsonl"
            names = ("text", "text_pair")
            rows = [dict(zip(names, one, strict=True)) if isinstance(one, tuple) else one for one in inputs]
            given.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.MonkeyPatch.context() as patch:  # so few inputs are several blocks all the same
            patch.setattr(interface, "_INPUTS_AHEAD", ahead)
            patch.setattr(interface, "_BATCHES_AHEAD", 1 + ahead // 4)
            found = asked(given, batch_size=batch_size)
            assert isinstance(found, list) == (way == "list")
            assert_close(list(found), alone)

    def test_a_file_that_is_not_there(self, classes, tmp_path):
        with pytest.raises(DataError, match=r"none\.txt: no such file"):
            pipeline("text-classification", classes)(tmp_path / "none.txt")


class TestLoading:
    @pytest.mark.parametrize(
        ("task", "name"),
        [
            ("text-classification", "AlbertForSequenceClassification"),
            ("ner", "AlbertForTokenClassification"),
            ("question-answering", "AlbertForQuestionAnswering"),
            ("multiple-choice", "AlbertForMultipleChoice"),
        ],
    )
    def test_bundled_model_must_be_fine_tuned_first(self, task, name):
        with pytest.raises(CheckpointError, match=rf"'bundled' was not trained for .*Fine-tune it .*{name}"):
            pipeline(task)

    def test_task_of_the_model(self, classes, tags, questions, choices):
        for folder, task in (
            (classes, "text-classification"),
            (tags, "token-classification"),
            (questions, "question-answering"),
            (choices, "multiple-choice"),
        ):
            assert pipeline(model=folder).task == task

    def test_head_of_another_task(self, classes, tags, tokenizer, tmp_path):
        with pytest.raises(CheckpointError, match=r"trained for token-classification .*, not for text-class"):
            pipeline("text-classification", tags)
        with pytest.raises(CheckpointError, match=r"trained for text-classification .*, not for multiple-ch"):
            pipeline("multiple-choice", classes)  # whose head has one output: its sizes would differ as well
        with pytest.raises(CheckpointError, match=r"trained for text-classification .*, not for token-class"):
            pipeline("ner", classes)
        AlbertModel.from_pretrained(classes).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match=r"not trained for sentence-order.*sop_classifier"):
            pipeline("sentence-order", tmp_path)
