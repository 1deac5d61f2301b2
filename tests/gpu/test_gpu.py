"""Tests of engines, kernels, mixed precision and optimizers on a GPU, or on the CPU if there is no GPU.

make gpu                             # also runs the benchmarks and a training run
python -m pytest tests/gpu           # uses the GPU if there is one
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
from pretraining_runs import SIZES, write_pretraining_data
from safetensors.torch import load_file

import albertkit
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token, first_token
from albertkit.engines.plain import PlainEngine
from albertkit.engines.torch_engine import TorchEngine
from albertkit.training.state import checkpoint_folder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
# Data type -> the maximum difference of two computations, for scores of about 1.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
TRAINING_HEADS = ["AlbertForPreTraining", CLASSIFIER, "AlbertForQuestionAnswering"]


def on_device(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(DEVICE) for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("head", OUTPUTS)
def test_rows_without_padding_have_the_scores_of_the_padded_model(head: str, dtype: torch.dtype) -> None:
    model = make(head, initializer_range=0.05).to(DEVICE, dtype)
    rows = rows_of([24, 3, 24, 9, 1, 17, 9])
    for read in (first_token,) if head in WHOLE_TEXT else (first_token, every_token, some_tokens):
        options = {"output": OUTPUTS[head], "read": read}
        expected = PlainEngine(model.float()).run(rows, **options)
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
    # On a CPU, inductor takes a minute. aot_eager gets the same graph.
    compiled = torch.compile(copy.deepcopy(model), backend="inductor" if ON_GPU else "aot_eager")
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    """Return a folder with shards in `shards/` and their tokenizer in `tokenizer/`."""
    folder = tmp_path_factory.mktemp("gpu")
    return write_pretraining_data(folder, tiny_texts, tiny_vocabulary, holdout_every=10)


RECIPE: dict[str, Any] = {
    "batch_size": 8,
    "evaluation_sequences": 16,
    "model": SIZES,
    "examples": {"max_seq_length": 32},
}


def losses(data: Path, output: Path, *, interrupted: bool = False, **training: Any) -> list[float]:
    """Return the losses of six steps, in one run or interrupted after the first step."""
    training = {
        "steps": 6,
        "learning_rate": 1e-3,
        "warmup_steps": 1,
        "log_every": 1,
        "save_every": 3,
    } | training
    run = None
    for limit in ({"max_minutes": 1e-9}, {}) if interrupted else ({},):
        run = albertkit.pretrain(
            RECIPE | {"training": training | limit},
            data=data / "shards",
            tokenizer=data / "tokenizer",
            output=output,
            device=DEVICE.type,
        )
    assert run
    return [line["train/masked_loss"] for line in run.history if "train/masked_loss" in line]


# On the CPU, tests/training tests the other optimizers.
@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "muon"] if ON_GPU else ["muon"])
def test_mixed_precision_trains_like_float32_and_resumes_exactly(
    data: Path, tmp_path: Path, optimizer: str
) -> None:
    exact = losses(data, tmp_path / "fp32", optimizer=optimizer, precision="fp32")
    mixed = losses(data, tmp_path / "bf16", optimizer=optimizer, precision="bf16")
    assert len(exact) == len(mixed) == 6
    assert exact != mixed
    np.testing.assert_allclose(mixed, exact, atol=0.1)
    assert (
        losses(data, tmp_path / "interrupted", interrupted=True, optimizer=optimizer, precision="bf16")
        == mixed
    )
    weights, resumed = (
        load_file(checkpoint_folder(tmp_path / name, 6) / "model.safetensors")
        for name in ("bf16", "interrupted")
    )
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
