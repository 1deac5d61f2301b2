"""Train one side of benchmarks/pretraining.py, and print its figures. Each side has separate processes.

    python benchmarks/pretraining_loops.py {albertkit,transformers} CASE.json OUTPUT

"albertkit" is `albertkit pretrain` as users run it: it draws examples during training, and writes metrics and
checkpoints. "transformers" is the loop that its users write: padded batches, logits for all positions, and
PyTorch's AdamW. It reads finished batches from a file, so its time does not include drawing examples. Each
side imports only what it needs, because its memory is measured. Under `torchrun`, both sides average their
gradients over the processes.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from albertkit.training.throughput import peak_memory

# Settings that the configs of ALBERT and BERT share.
_SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def albertkit_side(case: dict[str, Any], output: Path) -> dict[str, float] | None:
    """Train with the recipe of the case. Return the figures in the main process, None in the others."""
    from albertkit.pretraining.run import run_pretraining
    from albertkit.pretraining.settings import PretrainingSettings
    from albertkit.recipe import build
    from albertkit.training.distributed import join_world
    from albertkit.training.progress import read_metrics

    settings = build(PretrainingSettings, case["recipe"], where="benchmark")
    with join_world(case["device"]) as world:
        run_pretraining(settings, Path(case["shards"]), case["tokenizer"], output, world=world)
        if not world.is_main:
            return None
        memory = peak_memory(world.device)
    lines = read_metrics(output)  # one for each step
    steps = np.diff([line["tokens"] for line in lines], prepend=0)[case["warm_up"] :]  # tokens of each step
    counted = lines[case["warm_up"] :]
    seconds = sum(steps / [line["tokens_per_second"] for line in counted])
    mfu = float(np.mean([line["mfu"] for line in counted]))
    return _figures(int(steps.sum()), len(steps), seconds, memory) | {"mfu": mfu}


def transformers_side(case: dict[str, Any], _output: Path) -> dict[str, float] | None:
    """Train on the batches of the case. Return the figures in the main process, None in the others."""
    from transformers import get_linear_schedule_with_warmup

    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device(case["device"])
    training = case["recipe"]["training"]
    torch.manual_seed(0)
    model = _their_model(case).to(device).train()
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training["learning_rate"], weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, 1, 1_000_000)
    batches = _their_batches(case)
    tokens, begin = 0, 0.0
    for step, batch in enumerate(batches):
        if step == case["warm_up"]:
            _wait_for(device)
            tokens, begin = 0, time.perf_counter()
        inputs = {name: torch.tensor(rows[rank::world], device=device) for name, rows in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=training["precision"] == "bf16"):
            loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        tokens += int(batch["attention_mask"].sum())
    _wait_for(device)
    seconds = time.perf_counter() - begin
    memory = peak_memory(device)
    if world > 1:
        torch.distributed.destroy_process_group()
    return _figures(tokens, len(batches) - case["warm_up"], seconds, memory) if rank == 0 else None


def _their_model(case: dict[str, Any]) -> torch.nn.Module:
    from transformers import AlbertConfig, AlbertForPreTraining, BertConfig, BertForPreTraining

    shape = case["recipe"]["model"]
    if case["bert"]:
        of_bert = {name: shape[name] for name in (*_SHAPE, *_DROPOUT)}
        return BertForPreTraining(BertConfig(vocab_size=case["vocabulary_size"], **of_bert))
    return AlbertForPreTraining(AlbertConfig(vocab_size=case["vocabulary_size"], **shape))


def _their_batches(case: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """Return the arguments of each forward call, from a file of arrays named INDEX.ARGUMENT."""
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(case["batches"]) as file:
        for key in file.files:
            index, argument = key.split(".")
            if case["bert"] and argument == "sentence_order_label":
                argument = "next_sentence_label"
            batches.setdefault(int(index), {})[argument] = file[key]
    return [batches[index] for index in sorted(batches)]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _figures(tokens: int, steps: int, seconds: float, memory: int) -> dict[str, float]:
    return {
        "tokens_per_second": tokens / seconds,
        "steps_per_second": steps / seconds,
        "megabytes": memory / 1e6,
    }


if __name__ == "__main__":
    side, case_file, folder = sys.argv[1:]
    run = {"albertkit": albertkit_side, "transformers": transformers_side}[side]
    if figures := run(json.loads(Path(case_file).read_text()), Path(folder)):
        print(json.dumps(figures))
