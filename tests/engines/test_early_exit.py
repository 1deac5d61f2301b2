"""Tests of early exit: the rule by hand, the engine, saved models and the commands."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import Run, assert_one_line_error
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import read_json_lines, write_json_lines
from modeling_twins import make, tiny

from albertkit.config import AlbertConfig
from albertkit.early_exit import Exits, exits_of
from albertkit.engines.batches import Batch
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row
from albertkit.engines.packed_layers import PackedLayer
from albertkit.engines.plain import PlainEngine, pad_batch
from albertkit.engines.torch_engine import run_with_patience
from albertkit.errors import ConfigError
from albertkit.finetuning.early_exit import note_exits, set_patience
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.modeling.exits import exit_depths, weighted_mean
from albertkit.modeling.task_heads import AlbertForMultipleChoice, AlbertForSequenceClassification
from albertkit.pipelines import pipeline
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

CPU = torch.device("cpu")


def model_with_exits(
    exits: Exits | None = None, *, seed: int = 0, **values
) -> AlbertForSequenceClassification:
    """A random model, every parameter random, whose depths often disagree."""
    torch.manual_seed(seed)
    config = tiny(**{"num_hidden_layers": 6, **values})
    (exits or Exits()).note(config)
    model = AlbertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for classifier in model.exit_classifiers:
            classifier.weight.mul_(5)
    return model.eval()


def rows_of(lengths: list[int]) -> list[Row]:
    rng = random.Random(len(lengths))
    return [
        Row(input_ids=[rng.randrange(60) for _ in range(length)], token_type_ids=[0] * length, example=number)
        for number, length in enumerate(lengths)
    ]


class TestTheRule:
    def test_by_hand(self):
        # Labels by depth; the numbers after them: how many depths in a row have agreed with the one before.
        said = [
            [0, 0, 0, 1, 1],  # 0 1 2: with patience 2 at depth 3, with 1 at depth 2
            [0, 1, 1, 1, 0],  # 0 0 1 2: at depth 4, at depth 3
            [0, 1, 0, 1, 0],  # never: at the last
            [1, 1, 0, 0, 0],  # 0 1 0 1 2: at depth 5, at depth 2
        ]
        logits = F.one_hot(torch.tensor(said).T, 2).float()  # (L, B, K)
        rule = {"problem_type": "single_label_classification", "tolerance": 0.1}
        assert exit_depths(logits, 2, **rule).tolist() == [3, 4, 5, 5]
        assert exit_depths(logits, 1, **rule).tolist() == [2, 3, 5, 2]
        assert exit_depths(logits, 4, **rule).tolist() == [5, 5, 5, 5]

    def test_numbers_agree_when_they_are_near(self):
        logits = torch.tensor([[1.0, 1.0], [1.04, 1.2], [1.02, 1.21], [3.0, 1.25]])[..., None]
        rule = {"problem_type": "regression", "tolerance": 0.05}
        assert exit_depths(logits, 1, **rule).tolist() == [2, 3]
        assert exit_depths(logits, 2, **rule).tolist() == [3, 4]

    def test_sets_of_labels_agree_when_they_are_the_same(self):
        logits = torch.tensor([[[1.0, -1.0]], [[2.0, 1.0]], [[0.1, 9.0]]])
        rule = {"problem_type": "multi_label_classification", "tolerance": 0.05}
        assert exit_depths(logits, 1, **rule).tolist() == [3]

    def test_later_depths_weigh_more(self):
        losses = [torch.tensor(value) for value in (3.0, 6.0, 1.0)]
        assert weighted_mean(losses).item() == pytest.approx((1 * 3 + 2 * 6 + 3 * 1) / 6)


@pytest.mark.parametrize("classifiers", ["each", "shared"])
def test_the_loss_is_that_of_all_depths(classifiers):
    model = model_with_exits(Exits(classifiers))
    batch = pad_batch(rows_of([5, 9, 7]), pad_token_id=0, device=CPU)
    labels = torch.tensor([0, 1, 1])
    states = model.albert(**batch, output_hidden_states=True).hidden_states[1:]
    total = torch.zeros(())
    for number, state in enumerate(states, start=1):
        own = model.exit_classifiers[number - 1] if classifiers == "each" and number < 6 else model.classifier
        logits = own(torch.tanh(model.albert.pooler(state[:, 0])))
        total = total + number * F.cross_entropy(logits, labels)
    found = model(**batch, labels=labels)
    torch.testing.assert_close(found.loss, total / 21)
    assert found.hidden_states is None
    assert found.exit_depths is None
    found.loss.backward()
    trained = model.exit_classifiers if classifiers == "each" else [model.classifier]
    assert all(one.weight.grad.abs().sum() > 0 for one in trained)
    assert len(model.exit_classifiers) == (5 if classifiers == "each" else 0)


class TestTheEngine:
    @settings(max_examples=20)
    @given(
        lengths=st.lists(st.integers(1, 24), min_size=1, max_size=12),
        patience=st.integers(1, 4),
        classifiers=st.sampled_from(["each", "shared"]),
        shape=st.sampled_from(
            [
                {},
                {"num_labels": 4},
                {"num_labels": 3, "problem_type": "multi_label_classification"},
                {"num_labels": 1, "problem_type": "regression"},
                {"num_hidden_groups": 2, "num_hidden_layers": 4, "inner_group_num": 2},
            ]
        ),
        batch_size=st.sampled_from([None, 1, 3]),
        seed=st.integers(0, 5),
    )
    def test_answers_equal_the_plain_engine(self, lengths, patience, classifiers, shape, batch_size, seed):
        model = model_with_exits(Exits(classifiers, tolerance=0.5), seed=seed, **shape)
        model.set_patience(patience)
        rows = rows_of(lengths)
        engine = make_engine(model, "torch")
        found = engine.run(rows, batch_size=batch_size)
        expected = PlainEngine(model).run(rows, batch_size=batch_size)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
        with torch.no_grad():
            depths = model(**pad_batch(rows, pad_token_id=0, device=CPU)).exit_depths.tolist()
        assert engine.exit_depths == {depth: depths.count(depth) for depth in depths}

    def test_each_row_leaves_where_it_should(self):
        model = model_with_exits(seed=1)
        model.set_patience(2)
        rows = sorted(rows_of([20, 20, 13, 9, 9, 9, 4, 2]), key=lambda row: -len(row.input_ids))
        layers = [PackedLayer(layer, reorder=False) for layer in model.albert.encoder.executed_layers()]
        engine = make_engine(model, "torch")
        with torch.inference_mode():
            states = [engine._embed(Batch([0], [row], [[0]])) for row in rows]
            states = torch.cat([one[: len(row.input_ids)] for one, row in zip(states, rows, strict=True)])
            lengths = [len(row.input_ids) for row in rows]
            logits, depths = run_with_patience(model, layers, states, lengths)
            expected = model(**pad_batch(rows, pad_token_id=0, device=CPU))
        assert depths.tolist() == expected.exit_depths.tolist()
        assert len(set(depths.tolist())) > 1
        torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-5)

    def test_finished_rows_are_not_computed(self, monkeypatch):
        model = model_with_exits(Exits("shared"))
        with torch.no_grad():
            model.classifier.bias.copy_(torch.tensor([1e3, 0.0]))  # all depths say the same
        model.set_patience(1)
        calls = []
        compute = PackedLayer.__call__
        monkeypatch.setattr(PackedLayer, "__call__", lambda *given: (calls.append(given), compute(*given))[1])
        engine = make_engine(model)
        engine.run(rows_of([5, 7]))
        assert len(calls) == 2
        assert engine.exit_depths == {2: 2}

    def test_without_patience_nothing_changes(self):
        model = model_with_exits()
        plain = make("AlbertForSequenceClassification", num_hidden_layers=6)
        plain.load_state_dict(
            {name: value for name, value in model.state_dict().items() if "exit" not in name}
        )
        rows = rows_of([3, 24, 11])
        for name in ("plain", "torch"):
            for patience in (None, 2, None):
                model.set_patience(patience)
            for one, other in zip(
                make_engine(model, name).run(rows), make_engine(plain, name).run(rows), strict=True
            ):
                np.testing.assert_array_equal(one, other)

    def test_onnx_refuses(self):
        pytest.importorskip("onnxruntime")
        model = model_with_exits()
        model.set_patience(1)
        with pytest.raises(ConfigError, match="Choose the engine 'torch'"):
            make_engine(model, "onnx").run(rows_of([5]))
        hook = model.classifier.register_forward_hook(lambda *given: given[-1])  # then the model is called
        expected = PlainEngine(model).run(rows_of([5]))
        np.testing.assert_array_equal(make_engine(model, "onnx").run(rows_of([5])), expected)
        hook.remove()


class TestFiles:
    def test_a_folder_is_read_by_us_and_by_transformers(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        model = model_with_exits(Exits("each", tolerance=0.25), num_labels=3)
        model.save_pretrained(tmp_path)
        loaded, info = AlbertForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
        assert info["report"].ok
        assert exits_of(loaded.config) == Exits("each", 0.25)
        assert loaded.patience is None
        for name, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], value)
        theirs = transformers.AlbertForSequenceClassification.from_pretrained(tmp_path).eval()
        batch = pad_batch(rows_of([6, 9]), pad_token_id=0, device=CPU)
        with torch.no_grad():
            torch.testing.assert_close(theirs(**batch).logits, loaded(**batch).logits, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("given", ["each", {"classifiers": "none"}, {"depths": 3}, {"tolerance": 0}])
    def test_an_invalid_config_is_an_error(self, given):
        config = AlbertConfig(model_type="albert", early_exit=given)
        with pytest.raises(ConfigError, match="early_exit"):
            exits_of(config)

    def test_patience_that_cannot_be(self):
        model = model_with_exits()
        for patience in (0, 5, 2.5):
            with pytest.raises(ConfigError, match="Expected 1 to 4"):
                model.set_patience(patience)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="finetune text-classification --early-exit"):
            make("AlbertForSequenceClassification").set_patience(1)


@pytest.fixture(scope="module")
def start(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder to begin with."""
    folder = tmp_path_factory.mktemp("start")
    make("AlbertForMaskedLM", vocab_size=500, num_hidden_layers=4, initializer_range=0.05).save_pretrained(
        folder
    )
    AlbertTokenizer(str(tiny_vocabulary)).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "texts.csv"
    lines = [f"{thing} {number},{thing}" for number in range(24) for thing in ("river", "house")]
    file.write_text("text,label\n" + "\n".join(lines) + "\n")
    return file


class TestTheVerbs:
    def test_from_training_to_a_curve(self, run: Run, start, data, tmp_path):
        pytest.importorskip("matplotlib")
        output, picture = tmp_path / "run", tmp_path / "curve.png"
        files = ["--train", data, "--validation", data, "--output", output, "--model", start]
        flags = [
            "--early-exit",
            "--steps",
            "4",
            "--learning-rate",
            "1e-3",
            "--device",
            "cpu",
            "--max-length",
            "12",
        ]
        result = run("finetune", "text-classification", *files, *flags)
        assert result.status == 0, result.errors
        assert json.loads((output / "config.json").read_text())["early_exit"] == {
            "classifiers": "each", "tolerance": 0.1
        }  # fmt: skip
        common = ["text-classification", "--model", output, "--data", data, "--device", "cpu", "--json"]
        plain = run("evaluate", *common).json[0]
        found = run("evaluate", *common, "--patience", "1", "--early-exit-curve", picture)
        assert found.status == 0, found.errors
        points = found.json[0]["early_exit_curve"]
        assert [one["patience"] for one in points] == [1, 2, None]
        depths = [one["mean_depth"] for one in points]
        assert depths == sorted(depths)
        assert depths[0] >= 2
        assert depths[-1] == 4
        assert points[-1]["metric"] == plain["accuracy"]
        assert points[0]["metric"] == found.json[0]["accuracy"]
        assert picture.read_bytes().startswith(b"\x89PNG")

        texts = [f"{word} {number}" for word in ("river", "house", "key") for number in range(4)]
        write_json_lines(tmp_path / "texts.jsonl", ({"text": text} for text in texts))
        target = tmp_path / "answers.jsonl"
        predict = ["--model", output, "--input", tmp_path / "texts.jsonl", "--output", target]
        result = run("predict", "text-classification", *predict, "--device", "cpu", "--patience", "1")
        assert result.status == 0, result.errors
        records = read_json_lines(target)
        classify = pipeline("text-classification", output, device="cpu")
        whole = classify(texts)
        classify.set_patience(1)
        early = classify(texts)
        assert [one["score"] for one in whole] != [one["score"] for one in early]
        assert [one["label"] for one in records] == [one["label"] for one in early]
        scores = [[one["score"] for one in answers] for answers in (records, early)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)

    def test_errors(self, run: Run, start, data, tmp_path):
        files = ["--train", data, "--validation", data, "--output", tmp_path / "run", "--model", start]
        result = run("finetune", "text-classification", *files, "--early-exit", "--class-weights", "balanced")
        assert result.status == 1
        assert "early_exit and class_weights cannot be combined" in result.errors
        model = AlbertForMultipleChoice(tiny())
        with pytest.raises(ConfigError, match="the model is not an AlbertForSequenceClassification"):
            set_patience(model, 1)
        with pytest.raises(ConfigError, match="early_exit is for text-classification"):
            note_exits(MultipleChoice(), tiny(), FinetuningSettings(early_exit=True))
        refused = run("evaluate", "--suite", "glue", "--data", data, "--patience", "2")
        assert_one_line_error(refused, "are for the task text-classification")


@pytest.mark.parametrize("objective", ["binary_cross_entropy", F.cross_entropy])
def test_exits_are_trained_with_the_loss_of_the_head_alone(objective):
    """Another loss has only the logits of the last layer."""
    task = TextClassification()
    task.objective = objective
    with pytest.raises(
        ConfigError, match=r"early_exit needs the objective 'head', but .* has .*cross_entropy'"
    ):
        note_exits(task, tiny(num_hidden_layers=6), FinetuningSettings(early_exit=True))


def test_training_without_exits_removes_them():
    config = tiny()
    Exits().note(config)
    note_exits(TextClassification(), config, FinetuningSettings())
    assert exits_of(config) is None
