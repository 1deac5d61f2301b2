"""Tests of engines, kernels, mixed precision and optimizers on a GPU, or on the CPU if there is no GPU.

python -m pytest tests/gpu           # uses the GPU if there is one; scripts/gpu.py runs them too
"""

import copy
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_rows import CLASSIFIER, OUTPUTS, WHOLE_TEXT, rows_of, some_tokens
from modeling_twins import batch, labels_for, largest_difference, make
from pretraining_runs import SIZES
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file

import albertkit
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token, first_token
from albertkit.engines.torch import TorchEngine
from albertkit.files import file_sha256
from albertkit.hub import resolve
from albertkit.modeling.layers import AlbertLayer
from albertkit.pretraining import run as pretraining_run
from albertkit.pretraining.shards import Manifest, ShardBuilder
from albertkit.training.checkpoints import checkpoint_folder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
# A CPU, also that of the pretended GPU, needs seconds for a few steps in bfloat16.
STEPS = 20 if ON_GPU and torch.version.cuda else 6
# Data type -> the maximum difference of two computations, for scores of about 1.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
TRAINING_HEADS = ["AlbertForPreTraining", CLASSIFIER, "AlbertForQuestionAnswering"]


def on_device(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(DEVICE) for name, tensor in tensors.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the folders `train` and `validation` of shards of random phrases.

    They are made without `prepare`, because a GPU machine may lack the sentence splitter.
    """
    folder = tmp_path_factory.mktemp("gpu")
    vocabulary = resolve("bundled", patterns=("spiece.model",)) / "spiece.model"
    pieces = albertkit.AlbertConfig.from_pretrained("bundled").vocab_size
    random = np.random.default_rng(0)
    phrases = [random.integers(100, 400, length).tolist() for length in random.integers(3, 9, 60)]
    for split, documents in (("train", 60), ("validation", 8)):
        builder = ShardBuilder(pieces)
        for _ in range(documents):
            builder.add([phrases[index] for index in random.integers(len(phrases), size=20)])
        record, content = builder.finish("shard-00000.arrow")
        (folder / split).mkdir()
        (folder / split / record.file).write_bytes(content)
        Manifest(
            tokenizer_sha256=file_sha256(vocabulary),
            vocabulary_size=pieces,
            documents=record.documents,
            sentences=record.sentences,
            tokens=record.tokens,
            seed=0,
            settings={},
            shards=(record,),
        ).write(folder / split)
    return folder


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw batches in this process, because starting others takes longer than these runs."""
    monkeypatch.setattr(pretraining_run, "_in_background", iter)


RECIPE: dict[str, Any] = {
    "batch_size": 8,
    "evaluation_sequences": 4,
    "frequency_bias": True,
    "model": SIZES,
    "examples": {"max_seq_length": 32},
}


def losses(data: Path, output: Path, *, steps: int = STEPS, **training: Any) -> list[float]:
    """Return the losses of all steps of a run, or of its continuation."""
    training = {"steps": steps, "schedule": "trapezoid", "warmup_steps": 2, "learning_rate": 1e-3} | training
    run = albertkit.pretrain(
        RECIPE | {"training": training | {"log_every": 1, "save_every": STEPS // 2, "keep_checkpoints": 1}},
        data=data,
        tokenizer="bundled",
        output=output,
        device=DEVICE.type,
    )
    return [line["train/masked_loss"] for line in run.history if "train/masked_loss" in line]


# On the CPU, tests/training tests the other optimizers.
@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "muon"] if ON_GPU else ["muon"])
def test_steps_in_bf16_follow_float32_and_resume_exactly(data: Path, tmp_path: Path, optimizer: str) -> None:
    exact = losses(data, tmp_path / "fp32", optimizer=optimizer, precision="fp32")
    mixed = losses(data, tmp_path / "bf16", optimizer=optimizer, precision="bf16")
    assert len(exact) == len(mixed) == STEPS
    assert exact != mixed
    np.testing.assert_allclose(mixed, exact, atol=0.1)
    for steps in (STEPS // 2, STEPS):
        resumed_losses = losses(
            data, tmp_path / "resumed", steps=steps, optimizer=optimizer, precision="bf16"
        )
    assert resumed_losses == mixed
    weights, resumed = (
        load_file(checkpoint_folder(tmp_path / name, STEPS) / "model.safetensors")
        for name in ("bf16", "resumed")
    )
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("head", OUTPUTS)
def test_rows_without_padding_have_the_scores_of_the_padded_model(head: str, dtype: torch.dtype) -> None:
    model = make(head, initializer_range=0.05).to(DEVICE, dtype)
    rows = rows_of([24, 3, 24, 9, 1, 17, 9])
    for read in (first_token,) if head in WHOLE_TEXT else (first_token, every_token, some_tokens):
        options = {"output": OUTPUTS[head], "read": read}
        expected = TorchEngine(model.float(), padded=True).run(rows, **options)
        scores = TorchEngine(model.to(dtype)).run(rows, **options)
        for row, expected_row in zip(scores, expected, strict=True):
            size = max(1.0, float(np.abs(expected_row).max(initial=0.0)))
            np.testing.assert_allclose(row / size, expected_row / size, atol=TOLERANCE[dtype])


def test_all_engines_have_the_same_scores() -> None:
    model = make(CLASSIFIER).to(DEVICE)
    rows = rows_of([5, 9])
    options = {"output": "logits", "read": first_token}
    scores = [make_engine(model, name).run(rows, **options) for name in ("auto", "torch", "plain")]
    for other in scores[1:]:
        np.testing.assert_allclose(np.stack(scores[0]), np.stack(other), atol=1e-4)
    if ON_GPU:
        with pytest.raises(albertkit.errors.ConfigError, match="choose the engine 'torch'"):
            make_engine(model, "onnx-int8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head", TRAINING_HEADS)
def test_attention_kernels_have_the_values_and_gradients_of_plain_attention(
    head: str, dtype: torch.dtype
) -> None:
    outputs, gradients = [], []
    for attention in ("eager", "sdpa"):
        model = make(head, attn_implementation=attention, initializer_range=0.05).to(DEVICE, dtype)
        inputs = on_device(batch(head, mask=True, segments=True) | labels_for(head))
        loss = model(**inputs).loss
        loss.backward()
        outputs.append(loss.detach().float())
        gradients.append(torch.cat([weight.grad.flatten().float() for weight in model.parameters()]))
    assert largest_difference(*outputs) < TOLERANCE[dtype]
    size = gradients[0].abs().max().item()
    assert largest_difference(gradients[0] / size, gradients[1] / size) < TOLERANCE[dtype]


def test_compiled_models_compute_the_same() -> None:
    model = make(CLASSIFIER).to(DEVICE)
    inputs = on_device(batch(CLASSIFIER, mask=True))
    # Inductor takes a minute. aot_eager gets the same graph.
    compiled = torch.compile(copy.deepcopy(model), backend="aot_eager")
    with torch.no_grad():
        assert largest_difference(compiled(**inputs).logits, model(**inputs).logits) < 1e-4


def test_data_parallel_with_one_process_takes_the_same_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.distributed.init_process_group(
        "nccl" if ON_GPU else "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1
    )
    try:
        plain = make("AlbertForPreTraining").to(DEVICE)
        parallel = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
        inputs = on_device(batch(segments=True) | labels_for("AlbertForPreTraining"))
        for model in (plain, parallel):
            model(**inputs).loss.backward()
        for ours, theirs in zip(plain.parameters(), parallel.parameters(), strict=True):
            assert largest_difference(ours.grad, theirs.grad) < 1e-6
    finally:
        torch.distributed.destroy_process_group()


def test_layers_compile_without_a_graph_break() -> None:
    model = make("AlbertForPreTraining").train()
    graphs = 0

    def count(graph: Any, _: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    for module in model.modules():
        if isinstance(module, AlbertLayer):
            module.compile(fullgraph=True, dynamic=True, backend=count)
    for rows, length, padding in ((4, 16, 0), (4, 16, 3), (8, 8, 2), (3, 24, 1), (5, 8, 0)):
        mask = torch.ones(rows, length, dtype=torch.bool)
        mask[0, length - padding :] = False
        model(torch.ones_like(mask).int(), mask, masked_positions=torch.arange(0, rows * length, 3))
    assert graphs <= 8  # PyTorch's limit, beyond which it no longer compiles


def test_a_gpu_does_not_change_the_answers_of_the_onnx_engines() -> None:
    text = "She opened the [MASK] and went into the room."
    answers = {
        engine: albertkit.pipeline("fill-mask", engine=engine)(text, top_k=3)
        for engine in ("torch", "onnx", "onnx-int8")
    }
    scores = {engine: [answer["score"] for answer in found] for engine, found in answers.items()}
    assert len({answer[0]["token"] for answer in answers.values()}) == 1
    np.testing.assert_allclose(scores["onnx"], scores["torch"], atol=1e-4)
    np.testing.assert_allclose(scores["onnx-int8"], scores["torch"], atol=0.1)


@pytest.mark.skipif(not ON_GPU, reason="tests/training has a compiled run on a CPU")
def test_compiled_layers_train_as_others_do(data: Path, tmp_path: Path) -> None:
    plain = losses(data, tmp_path / "plain", steps=8, precision="bf16")
    compiled = losses(data, tmp_path / "compiled", steps=8, precision="bf16", compile=True)
    np.testing.assert_allclose(compiled, plain, atol=0.05)
