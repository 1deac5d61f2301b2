"""Tests that models have the losses of transformers in `transformers.Trainer`, `accelerate` and PEFT."""

import warnings
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import peft
import pytest
import torch
import transformers
from modeling_twins import HEADS, TINY, batch, largest_difference, make, make_twins, tiny
from torch import Tensor
from torch.utils.data import DataLoader

from albertkit import AlbertTokenizer
from albertkit.modeling.pretrained import AlbertPreTrainedModel

TOLERANCE = 1e-5
TRAINED = [head for head in HEADS if head != "AlbertModel"]


@pytest.fixture(autouse=True)
def no_collection_of_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every end of training collects garbage, which takes a second in a process with these libraries."""
    monkeypatch.setattr("gc.collect", lambda *_: 0)


def rows(head: str, *, count: int = 8) -> list[dict[str, Any]]:
    """Examples of 6 to 12 tokens; of 8 for spans, since scores of padding count in their loss."""
    random = np.random.default_rng(0)
    examples = []
    for index in range(count):
        length = 8 if head == "AlbertForQuestionAnswering" else 6 + index % 7
        shape = (2, length) if head == "AlbertForMultipleChoice" else (length,)
        ids = random.integers(5, TINY["vocab_size"], shape)
        example: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        words = np.where(random.random(length) < 0.3 + 0.1 * (index % 5), ids[..., :length], -100)
        words.flat[0] = 7
        example |= {
            "AlbertForSequenceClassification": {"labels": index % 2},
            "AlbertForMultipleChoice": {"labels": index % 2},
            "AlbertForTokenClassification": {"labels": np.where(words < 0, words, words % 2)},
            "AlbertForQuestionAnswering": {"start_positions": index % 3, "end_positions": 3 + index % 3},
            "AlbertForMaskedLM": {"labels": words},
            "AlbertForPreTraining": {"labels": words, "sentence_order_label": index % 2},
        }[head]
        examples.append({name: np.asarray(value).tolist() for name, value in example.items()})
    return examples


def collate(examples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad to the longest, on the right."""
    longest = max(np.asarray(example["input_ids"]).shape[-1] for example in examples)
    padding = {"labels": -100}
    padded: dict[str, list] = {}
    for example in examples:
        for name, value in example.items():
            array = np.asarray(value)
            if array.ndim:
                missing = longest - array.shape[-1]
                width = [(0, 0)] * (array.ndim - 1) + [(0, missing)]
                array = np.pad(array, width, constant_values=padding.get(name, 0))
            padded.setdefault(name, []).append(array)
    return {name: torch.tensor(np.stack(values)) for name, values in padded.items()}


def arguments(folder: Path, **values: Any) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "use_cpu": True,
            "report_to": [],
            "disable_tqdm": True,
            "logging_steps": 1,
            "save_strategy": "no",
            "max_steps": 2,
            "optim": "sgd",
            "learning_rate": 0.05,
            "per_device_train_batch_size": 4,
            **values,
        }
    )


def trained(model: Any, folder: Path, head: str, **values: Any) -> transformers.Trainer:
    trainer = transformers.Trainer(
        model,
        arguments(folder, **values),
        train_dataset=rows(head),
        eval_dataset=rows(head, count=6),
        data_collator=collate,
    )
    trainer.train()
    return trainer


def losses(trainer: transformers.Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("head", TRAINED)
def test_trainer_trains_and_evaluates_as_with_their_models(head: str, tmp_path: Path) -> None:
    both = [trained(model, tmp_path, head) for model in make_twins(head, classifier_dropout_prob=0.0)]
    ours, theirs = both
    assert losses(ours) == pytest.approx(losses(theirs), abs=TOLERANCE)
    assert len(losses(ours)) == 2
    evaluated = [trainer.evaluate() for trainer in both]
    assert evaluated[0]["eval_loss"] == pytest.approx(evaluated[1]["eval_loss"], abs=TOLERANCE)
    predicted = [trainer.predict(rows(head, count=6)) for trainer in both]
    for one, other in zip(*(_arrays(found.predictions) for found in predicted), strict=True):
        assert np.abs(one - other).max() <= 1e-4
    unlabeled = [{"input_ids": row["input_ids"]} for row in rows(head, count=3)]
    for one, other in zip(*(_arrays(t.predict(unlabeled).predictions) for t in both), strict=True):
        assert np.abs(one - other).max() <= 1e-4


class WithoutLabels(transformers.Trainer):
    """A trainer that computes the loss itself, as the documentation of `transformers` shows."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.get("logits"), labels)
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("kind", [transformers.Trainer, WithoutLabels])
def test_predictions_if_the_model_computes_no_loss(kind: type[transformers.Trainer], tmp_path: Path) -> None:
    head = "AlbertForSequenceClassification"
    values = {} if kind is WithoutLabels else {"label_smoothing_factor": 0.1}
    ours, theirs = (
        kind(model, arguments(tmp_path, **values), data_collator=collate).predict(rows(head, count=3))
        for model in make_twins(head)
    )
    assert np.abs(ours.predictions - theirs.predictions).max() <= TOLERANCE
    assert ours.metrics["test_loss"] == pytest.approx(theirs.metrics["test_loss"], abs=TOLERANCE)


def _arrays(predictions: Any) -> list[np.ndarray]:
    return [predictions] if isinstance(predictions, np.ndarray) else list(predictions)


@pytest.mark.parametrize("head", [head for head in TRAINED if head != "AlbertForPreTraining"])
def test_accumulated_batches_take_the_step_of_one_large_batch(head: str, tmp_path: Path) -> None:
    """Compare with a large batch in transformers, whose ALBERT adds the losses of accumulated batches."""
    ours, theirs = make_twins(head, classifier_dropout_prob=0.0)
    parts = trained(ours, tmp_path, head, per_device_train_batch_size=1, gradient_accumulation_steps=4)
    whole = trained(theirs, tmp_path, head)
    assert losses(parts) == pytest.approx(losses(whole), abs=TOLERANCE)
    for name, tensor in ours.state_dict().items():
        assert largest_difference(tensor, theirs.state_dict()[name]) <= 1e-4, name


@pytest.mark.parametrize("head", ["AlbertForMaskedLM", "AlbertForSequenceClassification"])
def test_trainer_saves_and_resumes(head: str, tmp_path: Path) -> None:
    values = {"max_steps": 4, "per_device_train_batch_size": 2}
    whole = trained(make(head), tmp_path / "whole", head, save_strategy="steps", save_steps=2, **values)
    model = make(head, seed=3)
    resumed = transformers.Trainer(
        model, arguments(tmp_path / "again", **values), train_dataset=rows(head), data_collator=collate
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert losses(resumed)[-2:] == losses(whole)[-2:]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
    whole.save_model(str(tmp_path / "saved"))  # the weights; the config of its own models only
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = HEADS[head].from_pretrained(tmp_path / "saved", config=whole.model.config)
    assert torch.equal(loaded(**batch()).logits, whole.model.eval()(**batch()).logits)
    model.save_pretrained(tmp_path / "again" / "ours")  # whose weights Trainer reads too
    resumed._load_from_checkpoint(str(tmp_path / "again" / "ours"))
    assert torch.equal(model.eval()(**batch()).logits, loaded(**batch()).logits)


COLLATORS = {
    "AlbertForMaskedLM": lambda tokenizer: transformers.DataCollatorForLanguageModeling(tokenizer, seed=4),
    "AlbertForSequenceClassification": transformers.DataCollatorWithPadding,
    "AlbertForTokenClassification": transformers.DataCollatorForTokenClassification,
    "AlbertForMultipleChoice": transformers.DataCollatorForMultipleChoice,
}


@pytest.mark.parametrize("head", COLLATORS)
def test_collators_of_transformers_with_our_tokenizer(head: str, tmp_path: Path) -> None:
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    examples = []
    for index, text in enumerate(["A quiet evening by the sea.", "Night.", "The captain looked.", "No."]):
        example: dict[str, Any] = dict(tokenizer(text))
        if head == "AlbertForMultipleChoice":
            example = {name: [value, value[1:]] for name, value in example.items()}
        if head != "AlbertForMaskedLM":
            tags = head == "AlbertForTokenClassification"
            example["labels"] = [index % 2] * len(example["input_ids"]) if tags else index % 2
        examples.append(example)
    both = []
    for model in make_twins(head, classifier_dropout_prob=0.0, vocab_size=len(tokenizer)):
        trainer = transformers.Trainer(
            model,
            arguments(tmp_path),
            train_dataset=examples,
            data_collator=COLLATORS[head](tokenizer),
            processing_class=tokenizer,
        )
        trainer.train()
        both.append(losses(trainer))
    assert both[0] == pytest.approx(both[1], abs=TOLERANCE)
    trainer.save_model()
    assert AlbertTokenizer.from_pretrained(tmp_path).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("head", ["AlbertForTokenClassification", "AlbertForQuestionAnswering"])
def test_accelerate(head: str, tmp_path: Path) -> None:
    found: list[list[float]] = []
    for model in make_twins(head, classifier_dropout_prob=0.0):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(rows(head), batch_size=2, collate_fn=collate)  # type: ignore[arg-type]
        model, optimizer, loader = accelerator.prepare(model.train(), optimizer, loader)
        found.append([])
        for inputs in loader:
            with accelerator.accumulate(model):
                output = model(**inputs)
                accelerator.backward(output.loss)
                optimizer.step()
                optimizer.zero_grad()
            found[-1].append(output.loss.item())
            gathered = accelerator.gather_for_metrics(accelerator.pad_across_processes(output, dim=1))
            assert torch.equal(gathered["loss"], output["loss"])
            assert list(gathered.keys()) == list(output.keys())
    assert found[0] == pytest.approx(found[1], abs=TOLERANCE)
    unwrapped = accelerator.unwrap_model(accelerator.prepare(make(head)))
    unwrapped.save_pretrained(
        tmp_path,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(unwrapped),
    )
    loaded = HEADS[head].from_pretrained(tmp_path)
    assert torch.equal(loaded(**batch())[0], unwrapped(**batch())[0])


@pytest.mark.filterwarnings("ignore:.*does not have any device")
@pytest.mark.parametrize("head", HEADS)
def test_accelerate_keeps_weights_elsewhere(head: str, tmp_path: Path) -> None:
    expected = make(head)(**batch(head))[0]
    offloaded = make(head)
    accelerate.cpu_offload(offloaded, execution_device=torch.device("cpu"))
    assert torch.equal(offloaded(**batch(head))[0], expected)
    make(head).save_pretrained(tmp_path)
    with accelerate.init_empty_weights():
        empty = HEADS[head](tiny())
    empty.tie_weights()  # as accelerate asks for
    loaded = accelerate.load_checkpoint_and_dispatch(empty, tmp_path, device_map={"": "cpu"})
    # Equal weights; products over mapped memory, which need not be aligned, may differ in the last bit.
    state = make(head).state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in loaded.state_dict().items())
    torch.testing.assert_close(loaded.eval()(**batch(head))[0], expected, atol=1e-6, rtol=0)


def test_lora_of_peft(tmp_path: Path) -> None:
    head = "AlbertForSequenceClassification"
    found = []
    for model in make_twins(head, classifier_dropout_prob=0.0):
        torch.manual_seed(1)
        settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
        adapted = peft.get_peft_model(model, settings)
        adapted.enable_input_require_grads()
        recompute = isinstance(model, AlbertPreTrainedModel)  # theirs cannot
        trainer = trained(adapted, tmp_path, head, gradient_checkpointing=recompute)
        assert adapted.is_gradient_checkpointing is recompute
        found.append(losses(trainer))
        trainer.save_model(str(tmp_path / "adapter"))
        merged = peft.PeftModel.from_pretrained(make(head), str(tmp_path / "adapter")).merge_and_unload()
        assert largest_difference(merged.eval()(**batch()).logits, adapted.eval()(**batch()).logits) <= 1e-4
    assert found[0] == pytest.approx(found[1], abs=TOLERANCE)


@pytest.mark.parametrize("head", ["AlbertForMaskedLM", "AlbertForPreTraining"])
@pytest.mark.parametrize("resized", [False, True])
def test_peft_does_not_adapt_the_tied_decoder(head: str, resized: bool) -> None:
    """LoRA on the decoder would also change the word embeddings when it is merged."""
    ours, theirs = make_twins(head)
    if resized:
        ours.resize_token_embeddings(70)
    targets = []
    for model in (ours, theirs):
        adapted: Any = peft.get_peft_model(
            model, peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
        ).eval()
        targets.append(adapted.peft_config["default"].target_modules)
        if model is ours:
            expected = adapted(**batch()).to_tuple()
            merged = adapted.merge_and_unload()
            for values, before in zip(merged(**batch()).to_tuple(), expected, strict=True):
                assert largest_difference(values, before) < 10 * TOLERANCE  # the matrices are large
    assert targets[0] == targets[1]


def test_peft_notes_the_model_of_an_adapter(tmp_path: Path) -> None:
    make("AlbertForMaskedLM").save_pretrained(tmp_path / "model")
    model = HEADS["AlbertForMaskedLM"].from_pretrained(tmp_path / "model")
    settings = peft.LoraConfig(r=2, target_modules=["query"])
    peft.get_peft_model(model, settings).save_pretrained(tmp_path / "adapter")  # type: ignore[arg-type]
    saved = peft.PeftConfig.from_pretrained(str(tmp_path / "adapter"))
    assert saved.base_model_name_or_path == str(tmp_path / "model")
