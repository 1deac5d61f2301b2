"""The engines `torch` and `plain`, which call a PyTorch model.

`torch` concatenates the rows of a batch without padding, and the last layer computes only the read tokens.
`plain` pads the rows of a batch and calls the model as a user would; tests compare the other engines with it.

Shapes: M tokens of a batch, B rows, T tokens of the longest row, R read tokens of a row, P read tokens of all
rows, H hidden, K scores of a token.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from albertkit.cores import VARIABLE, usable_cores
from albertkit.engines.engine import (
    BATCH_TOKENS,
    Batch,
    BatchScores,
    Engine,
    Job,
    Row,
    check_output,
    check_rows,
    plan,
)
from albertkit.engines.light_model import class_name
from albertkit.engines.token_table import TokenTable, mixes_no_tokens
from albertkit.heads import HEADS, Output, base_prefix, scores_of
from albertkit.modeling.auto import model_class
from albertkit.modeling.heads import MaskedWordModel
from albertkit.modeling.layers import PackedRows
from albertkit.modeling.pretrained import AlbertPreTrainedModel, ModuleNetwork

_ACCELERATOR_BATCH_TOKENS = 16 * BATCH_TOKENS
_SHAPES_AN_OCTAVE = 16  # numbers of tokens per power of 2; oneDNN keeps code for each number
_SMALLEST_STEP = 4
_WELL_TESTED = ("cpu", "cuda")  # devices on which the engine `auto` computes without padding
_WORTH_SELECTING = 0.75  # if a larger share of tokens is read, the last layer computes all tokens


class TorchEngine(Engine):
    """Calls a PyTorch model, without dropout and gradients, also if the model is in training mode.

    Args:
        model: The model.
        padded: Whether to pad the rows of a batch instead of concatenating them.
    """

    def __init__(self, model: AlbertPreTrainedModel, *, padded: bool = False) -> None:
        self.model = model
        self.padded = padded

    @property
    def batch_tokens(self) -> int:
        """Default number of tokens in a batch."""
        return BATCH_TOKENS if self.model.device.type == "cpu" else _ACCELERATOR_BATCH_TOKENS

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does, the longest rows first."""
        model = self.model
        name = class_name(model)
        if name in HEADS:
            check_output(job.output, HEADS[name], model=name)
        check_rows(rows, model.config)
        padded = self.padded or not takes_packed_rows(model)
        compute = _compute_padded if padded else _compute_packed
        budget = job.batch_tokens or self.batch_tokens
        for batch in plan(rows, job.positions, budget, job.batch_size, padded=padded):
            with evaluating(model):
                scores = compute(model, batch, job.output)
            yield batch.numbers, scores

    def token_table(self) -> TokenTable | None:
        """Return a table for one call, because the weights can change."""
        model = self.model
        if self.padded or not takes_packed_rows(model):
            return None
        weights = dict(model.named_parameters())
        is_alone = mixes_no_tokens(model.config, weights, base_prefix(class_name(model)))
        return TokenTable(model.config) if is_alone else None


def takes_packed_rows(model: AlbertPreTrainedModel) -> bool:
    """Return whether every module of a model computes each token alone, or knows where packed rows end.

    Hooks and modules of other packages may combine tokens. Compiled modules would compile again for each
    batch.
    """
    name = type(model).__name__
    return (
        name in HEADS
        and type(model) is model_class(name)
        and not (torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)
        and all(
            not (part._forward_hooks or part._forward_pre_hooks or part._compiled_call_impl)
            and "forward" not in vars(part)
            for part in parts_of(model)
        )
        and all(
            type(part).__module__.startswith(("albertkit.", "torch.nn.modules."))
            for part in parts_of(model.base_model)
        )
    )


def _compute_packed(model: AlbertPreTrainedModel, batch: Batch, output: Output) -> Sequence[np.ndarray]:
    lengths, reads = batch.sizes().tolist()
    count, num_reads = sum(lengths), sum(reads)
    tokens = rounded(count)
    if tokens > count:
        lengths, reads = [*lengths, tokens - count], [*reads, 0]  # a row of padding
    # Additional reads, so that few different numbers occur: the first token of the last row.
    extra = rounded(num_reads) - num_reads
    reads[-1] += extra
    positions = np.concatenate([batch.read_tokens(), np.full(extra, tokens - lengths[-1])])
    device = model.device
    ids, segments, position_ids = torch.from_numpy(batch.inputs(tokens)).to(device)[:, None]  # (1, M) each
    read = torch.from_numpy(positions).to(device)[None]  # (1, P)
    selects = num_reads <= _WORTH_SELECTING * count
    encoded = model.base_model(
        input_ids=ids,
        token_type_ids=segments,
        position_ids=position_ids,
        packed=PackedRows(lengths, reads),
        query_positions=read if selects else None,
        output_attentions=False,
        output_hidden_states=False,
        return_dict=True,
    )
    states = encoded.last_hidden_state[0] if selects else encoded.last_hidden_state[0, read[0]]  # (P, H)
    scores = scores_of(type(model).__name__, output)
    assert scores is not None
    values = scores.compute(ModuleNetwork(model), states)[:num_reads]
    return batch.split(values.float().cpu().numpy())


def rounded(tokens: int) -> int:
    """Round a number of tokens up to one of few numbers, so that few different shapes occur."""
    tokens = max(tokens, 1)
    step = max(_SMALLEST_STEP, 2 ** (tokens.bit_length() - 1) // _SHAPES_AN_OCTAVE)
    return tokens + -tokens % step


class PaddedBatch(TypedDict):
    """The inputs of every model, each (B, T)."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor


def _compute_padded(model: AlbertPreTrainedModel, batch: Batch, output: Output) -> Sequence[np.ndarray]:
    inputs: dict[str, Any] = {
        **pad_batch(batch.rows, pad_token_id=model.config.pad_token_id, device=model.device)
    }
    if output == "hidden_states":
        values = model.base_model(**inputs, return_dict=True).last_hidden_state
    else:
        name = class_name(model)
        head = HEADS.get(name, HEADS["AlbertForTokenClassification"])  # default for custom classes
        check_output(output, head, model=name)
        scores = head.scores[output]
        if head.has_choices:
            inputs = {name: values[:, None] for name, values in inputs.items()}  # (B, T) -> (B, 1, T)
        if isinstance(model, MaskedWordModel):  # compute the vocabulary's scores only for the read tokens
            length = inputs["input_ids"].shape[1]
            read = [] if scores.reads_first else enumerate(batch.positions)
            flat = [row * length + position for row, some in read for position in some]
            inputs["masked_positions"] = torch.tensor(flat, dtype=torch.long)
        outputs = cast(Any, model)(**inputs, return_dict=True)
        columns = [outputs[name] for name in scores.names]
        values = columns[0] if len(columns) == 1 else torch.stack(columns, dim=-1)
        if scores.reads_first:
            return list(values[:, None].float().cpu().numpy())  # (B, K) -> B of (1, K)
        if "masked_positions" in inputs:
            return batch.split(values.float().cpu().numpy())  # (P, V)
    return [row[list(read)].float().cpu().numpy() for row, read in zip(values, batch.positions, strict=True)]


def pad_batch(
    rows: Sequence[Row], *, pad_token_id: int, device: torch.device, length: int | None = None
) -> PaddedBatch:
    """Pad rows of any lengths to a batch; T is `length`, or the length of the longest row if it is None."""
    lengths = torch.tensor([[len(row.input_ids)] for row in rows])
    length = length or int(lengths.max())
    return {
        "input_ids": pad([row.input_ids for row in rows], pad_token_id, length).to(device),
        "attention_mask": (torch.arange(length) < lengths).long().to(device),  # (T,) < (B, 1) -> (B, T)
        "token_type_ids": pad([row.token_type_ids for row in rows], 0, length).to(device),
    }


def pad(rows: Sequence[Sequence[int]], value: int, length: int) -> Tensor:
    """Return lists or arrays of up to `length` numbers as a tensor (B, length), padded on the right."""
    padded = np.full((len(rows), length), value, np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return torch.from_numpy(padded)


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Return a module and all modules in it. Shared modules occur several times.

    `modules()` takes three times as long, which delays short texts.
    """
    parts = [module]
    for part in parts:  # the list grows during the loop
        parts += [child for child in part._modules.values() if child is not None]
    return parts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients within the block; afterwards each part has its previous mode."""
    modes = [(part, part.training) for part in parts_of(model)]  # a part can be frozen during training
    changes = any(training for _, training in modes)
    if changes:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if changes:
            for part, training in modes:
                part.training = training


def module_engine(model: AlbertPreTrainedModel, name: str) -> TorchEngine:
    """Return the engine "auto", "torch" or "plain" of a PyTorch model."""
    settle_threads()
    return TorchEngine(
        model, padded=name == "plain" or (name == "auto" and model.device.type not in _WELL_TESTED)
    )


def settle_threads() -> None:
    """Set PyTorch's number of threads to the number of usable cores, unless it is lower or the user set it.

    PyTorch respects the CPU affinity of a process, but not the limit of a container: a container with 2 of 64
    cores would get 64 threads.
    """
    cores = usable_cores()
    from_user = os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS")
    if os.environ.get(VARIABLE) or (cores < torch.get_num_threads() and not from_user):
        torch.set_num_threads(cores)
