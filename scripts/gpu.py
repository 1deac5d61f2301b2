"""Check the code on a GPU, measure it, and train the bundled model, in one call of a few minutes.

    PYTHONPATH=src python3 scripts/gpu.py --shards carried --output OUT [--minutes 8] [--start MODEL]
        [--work gpu] [--tiny]

`dev/gpu.md` says what to copy to the machine and what to do with the files in OUT, at most 8 of up to 15 MB:

    report.json           results of all phases, rewritten after each
    log.txt               the log
    metrics.jsonl         metrics of the training run
    model.safetensors     the trained weights in fp16; config and tokenizer are in the state
    state.0, state.1 ...  parts of a tar file: the run before the learning rate decays, for an exact resume

There is one deadline for everything. A phase that fails is recorded, and the next one runs. The run is in the
folder of --work. If that folder has `before-decay`, the unpacked state of an earlier call, the call continues
from there. --tiny uses tiny shapes, also without a GPU. Its figures mean nothing.
"""

import dataclasses
import faulthandler
import logging
import platform
import shutil
import sys
import tarfile
import threading
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carry import unpack
from pages import command_line
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from albertkit import AlbertConfig, AlbertForPreTraining, pretrain  # noqa: E402
from albertkit.config import IGNORED_LABEL  # noqa: E402
from albertkit.files import write_json  # noqa: E402
from albertkit.modeling.layers import compile_layers  # noqa: E402
from albertkit.pretraining.batches import Position, PretrainingBatch, fixed_batches  # noqa: E402
from albertkit.pretraining.loss import PretrainingObjective  # noqa: E402
from albertkit.pretraining.masking import WordTable  # noqa: E402
from albertkit.pretraining.settings import PretrainingSettings  # noqa: E402
from albertkit.pretraining.shards import ShardSet  # noqa: E402
from albertkit.recipe import build, read_recipe  # noqa: E402
from albertkit.training.checkpoints import checkpoint_step, checkpoints  # noqa: E402
from albertkit.training.optimizers import build_optimizer, clip_gradients  # noqa: E402
from albertkit.training.progress import read_metrics  # noqa: E402
from albertkit.training.settings import TrainingSettings  # noqa: E402

ENDS = {"machine": 20, "correctness": 80, "speed": 150, "training": 450, "files": 480}  # of 480 seconds
DECAY_SHARE = 0.2  # of the training time
STARTING = 15  # seconds to start workers and compile again before the decay
PART_BYTES = 14_000_000
AIM_MFU = 0.5  # of the largest product
TINY = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
logger = logging.getLogger("albertkit.gpu")


class Call:
    """One call of the script: its arguments, its deadlines and its report.

    Args:
        output: folder of the files to return.
        work: folder of the unpacked shards and of the run.
        seconds: time limit of the call.
        tiny: whether to use tiny shapes.
    """

    def __init__(self, output: Path, work: Path, *, seconds: float, tiny: bool) -> None:
        self.output, self.work, self.tiny = output, work, tiny
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.begin = time.perf_counter()
        self.scale = seconds / ENDS["files"]
        self.report: dict[str, Any] = {}
        self.product_flops = 0.0  # of the largest matrix product in bfloat16

    def left(self, phase: str) -> float:
        """Return the seconds until the end of a phase."""
        return self.begin + self.scale * ENDS[phase] - time.perf_counter()

    def run(self, phase: str, work: Callable[["Call"], dict[str, Any]]) -> None:
        """Run a phase, and record its results or its error."""
        begin = time.perf_counter()
        try:
            result = work(self)
        except (Exception, SystemExit) as error:
            logger.exception("the phase %s failed", phase)
            result = {
                "error": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc()[-2000:],
            }
        self.report[phase] = result | {"seconds": round(time.perf_counter() - begin, 1)}
        write_json(self.output / "report.json", self.report)
        logger.info("%s: %s", phase, {key: value for key, value in result.items() if key != "traceback"})
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def each(self, phase: str, works: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Run the measurements of a phase while its time lasts; one that fails does not stop the next."""
        results: dict[str, Any] = {}
        for name, work in works.items():
            if self.left(phase) <= 0 and not self.tiny:
                results[name] = "skipped: no time"
                continue
            try:
                results[name] = work()
            except Exception as error:
                logger.exception("%s failed", name)
                results[name] = f"{type(error).__name__}: {error}"
            logger.info("%s: %s", name, results[name])
        return results

    def wait(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def fastest(self, work: Callable[[], Any], repeats: int = 5) -> float:
        """Return the seconds of the fastest of several calls."""
        times = []
        for _ in range(repeats):
            self.wait()
            begin = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - begin)
        return min(times)


def machine(call: Call) -> dict[str, Any]:
    """Return versions, the device, its largest matrix product and its copy bandwidth."""
    results: dict[str, Any] = {"python": platform.python_version(), "device": "no GPU"}
    for library in ("torch", "transformers", "numpy", "safetensors", "pyarrow"):
        results[library] = version(library)
    if call.device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        results |= {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    for size in (256,) if call.tiny else (4096, 8192, 16384):
        # Random values: a product of constants needs less power, so the clock is higher.
        left, right = (torch.randn(size, size, device=call.device, dtype=torch.bfloat16) for _ in range(2))
        flops = 2 * size**3 / call.fastest(lambda left=left, right=right: left @ right)
        call.product_flops = max(call.product_flops, flops)
    results["product_bf16_tflops"] = call.product_flops / 1e12
    data = torch.empty(1 << (16 if call.tiny else 28), dtype=torch.uint8, device=call.device)
    other = torch.empty_like(data)
    results["copy_gb_per_second"] = 2 * len(data) / call.fastest(lambda: other.copy_(data)) / 1e9
    if call.device.type == "cuda":
        pinned = torch.empty(len(data), dtype=torch.uint8, pin_memory=True)
        results["from_host_gb_per_second"] = len(data) / call.fastest(lambda: data.copy_(pinned)) / 1e9
    return results


class _Results:
    """A pytest plugin: the results of all tests, and an end when the time is up."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.results: dict[str, str] = {}

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that cannot be imported."""
        if report.failed:
            self.results[report.nodeid] = f"failed {report.longreprtext.strip().splitlines()[-1]}"

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a result."""
        if report.when == "call" or not report.passed:
            name = report.nodeid.rpartition("::")[2]
            reason = report.longreprtext.strip().splitlines()[-1:] if report.failed else []
            self.results[name] = " ".join([report.outcome, *reason])

    def pytest_runtest_teardown(self, item: Any) -> None:
        """Stop after this test if there is no time for another."""
        if self.call.left("correctness") <= 0:
            item.session.shouldstop = "no time"


def correctness(call: Call) -> dict[str, Any]:
    """Run the tests in tests/gpu in this process, because another one would start for ten seconds."""
    import pytest  # not above, because every worker process of the run imports this script

    plugin = _Results(call)
    # The fixtures of the whole suite need libraries that a GPU machine may lack.
    tests = ROOT / "tests" / "gpu"
    arguments = [f"--rootdir={ROOT}", f"--confcutdir={tests}", "-p", "no:cacheprovider", str(tests)]
    if call.tiny:  # the suite has the others
        arguments += ["-k", "all_engines or data_parallel or onnx_engines"]
    status = pytest.main(arguments, plugins=[plugin])
    failed = [name for name, result in plugin.results.items() if result.startswith("failed")]
    passed = bool(plugin.results) and not failed
    return {"passed": passed, "all_ran": status == pytest.ExitCode.OK, "failed": failed} | {
        "tests": plugin.results
    }


def training_speed(call: Call, shape: str, *, rows: int) -> dict[str, float]:
    """Return the speed of training steps in bfloat16 on full rows of 512 tokens, 15% masked."""
    length = 32 if call.tiny else 512
    tiny: dict[str, Any] = TINY | {"vocab_size": 300} if call.tiny else {}
    torch._dynamo.reset()  # the layers of another shape must not be compiled for any shape
    model = AlbertForPreTraining(AlbertConfig.preset(shape, hidden_dropout_prob=0.0, **tiny)).to(call.device)
    settings = TrainingSettings(steps=100, optimizer="lamb", learning_rate=1e-4)
    whole = PretrainingSettings(batch_size=rows, model={"hidden_size": 8}, training=settings)
    objective = PretrainingObjective(whole, call.device)
    optimizer = build_optimizer(model.train(), settings, bf16=True)
    random = np.random.default_rng(0)
    ids = random.integers(5, model.config.vocab_size, (rows, length), dtype=np.int32)
    masked = np.zeros(ids.shape, dtype=bool)
    masked[:, 1 : 1 + round(0.15 * length)] = True
    batch = PretrainingBatch(
        input_ids=ids,
        masked_labels=np.where(masked, ids, IGNORED_LABEL).astype(np.int32),
        order_labels=random.integers(2, size=rows, dtype=np.int32),
        lengths=np.full(rows, length, dtype=np.int32),
        second_begins=np.full(rows, length // 2, dtype=np.int32),
        position=Position(),
    )

    def loss() -> torch.Tensor:
        with torch.autocast(call.device.type, torch.bfloat16):
            return objective(model, batch, objective.counts(batch)).loss

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()

    with FlopCounterMode(display=False) as counter:
        loss().backward()
    begin = time.perf_counter()
    if not call.tiny:
        compile_layers(model)
    step()
    compiling = time.perf_counter() - begin
    step()
    seconds = call.fastest(step, repeats=2 if call.tiny else 10)
    memory = torch.cuda.max_memory_allocated() / 1e9 if call.device.type == "cuda" else 0.0
    speed = ids.size / seconds
    flops = counter.get_total_flops() / seconds
    return {
        "tokens_per_second": round(speed),
        "mfu": flops / call.product_flops,  # of the measured product
        "mfu_met": float(flops >= AIM_MFU * call.product_flops),
        "tflops": flops / 1e12,
        "memory_gb": memory,
        "compile_seconds": compiling,
    }


def speed(call: Call) -> dict[str, Any]:
    """Measure training against the largest product, and inference against transformers."""
    import inference_gpu  # imports transformers

    sizes = {"shape": "base", "dtypes": ["bfloat16"], "runs": 3, "device": call.device.type}
    sizes |= {"texts": 2048, "long": 256, "layers": None, "sizes": inference_gpu.BATCH_SIZES}
    if call.tiny:
        sizes |= {"texts": 8, "long": 1, "layers": 1, "runs": 1, "sizes": (8,)}

    def inference(*, compiled: bool) -> list[dict[str, Any]]:
        return [dataclasses.asdict(figure) for figure in inference_gpu.figures(**sizes, compiled=compiled)]

    return call.each(
        "speed",
        {
            "training, base": lambda: training_speed(call, "base", rows=2 if call.tiny else 64),
            "training, large": lambda: training_speed(call, "large", rows=2 if call.tiny else 32),
            "inference, against eager": lambda: inference(compiled=False),
            "inference, against compiled": lambda: {} if call.tiny else inference(compiled=True),
        },
    )


def train(call: Call, start: str | None) -> dict[str, Any]:
    """Train at a constant learning rate until the decay must begin, keep that state, and decay to the end."""
    shards, run = call.work / "shards", call.work / "run"
    recipe = read_recipe(Path("bundled"))
    training = recipe["training"] | {
        "tokens": 10**15,
        "decay_tokens": 0,
        "log_every": 50,
        "keep_checkpoints": 2,
    }
    if start:  # a trained model needs none of the special beginning
        recipe |= {"init_from": start, "frequency_bias": False}
        recipe |= {"sinusoidal_positions": False, "unit_mapping": False}
        recipe["examples"]["warmup_documents"] = 0
    if call.tiny:
        recipe["model"] |= TINY
        recipe |= {"batch_tokens": 1024, "evaluation_sequences": 8}
        training |= {"warmup_tokens": 256, "precision": "fp32", "compile": False, "log_every": 1}
    before = call.work / "before-decay"
    shutil.rmtree(run, ignore_errors=True)
    if before.exists():  # of an earlier call
        shutil.copytree(before, run)

    def attempt(length: dict[str, Any]) -> Any:
        return pretrain(
            recipe | {"training": training | length},
            data=shards,
            tokenizer=shards / "tokenizer",
            output=run,
        )

    decay = DECAY_SHARE * call.left("training")
    minutes = max(call.left("training") - decay - 2 * STARTING * call.scale, 0.1) / 60
    torch._dynamo.reset()
    try:
        constant = attempt({"max_minutes": minutes})
    except Exception:
        if not training["compile"] or any(checkpoint_step(folder) for folder in checkpoints(run)):
            raise
        logger.exception("training without compilation, because this failed")
        shutil.rmtree(run)
        training["compile"] = False
        minutes = max(call.left("training") - decay - 2 * STARTING * call.scale, 0.1) / 60
        constant = attempt({"max_minutes": minutes})
    newest = checkpoints(run)[-1]
    shutil.rmtree(before, ignore_errors=True)
    shutil.copytree(newest, before / "checkpoints" / newest.name)
    shutil.copy(run / "metrics.jsonl", before)

    speeds = [line["tokens_per_second"] for line in read_metrics(run) if "tokens_per_second" in line]
    speed = sorted(speeds[-9:])[len(speeds[-9:]) // 2]  # the median of the last lines
    left = max(call.left("training") - STARTING * call.scale, call.scale)
    tokens = max(round(left * speed), recipe["batch_tokens"])
    length = {"tokens": constant.tokens + tokens, "decay_tokens": tokens, "max_minutes": left / 60 + 0.1}
    final = attempt(length) if constant.tokens > training["warmup_tokens"] else constant
    return {
        "steps": final.step,
        "tokens": final.tokens,
        "tokens_per_second": round(speed),
        "minutes": final.minutes,
        "compiled": training["compile"],
        "steps_before_decay": constant.step,
        "final": final.metrics,
        "mfu_of_stated_peak": next((line["mfu"] for line in reversed(final.history) if "mfu" in line), None),
    } | {f"held_out_{name}": held_out(call, name, recipe) for name in ("books", "modern")}


def held_out(call: Call, name: str, recipe: dict[str, Any]) -> dict[str, float]:
    """Return the metrics on held-out books or modern text, as in scripts/bundle_model.py."""
    shards = call.work / "shards"
    settings = build(PretrainingSettings, recipe | {"training": {"steps": 1}}, where="the recipe bundled")
    model = AlbertForPreTraining.from_pretrained(call.work / "run").to(call.device).eval()
    words = WordTable(shards / "tokenizer" / "spiece.model")
    examples = dataclasses.replace(settings.examples, max_seq_length=128, max_predictions=26)
    batches = fixed_batches(ShardSet(shards / name), words, examples, 64, limit=8 if call.tiny else 1024)
    with torch.no_grad():
        return PretrainingObjective(settings, call.device).evaluate(model, batches)


def write_files(call: Call) -> dict[str, Any]:
    """Write the weights in fp16, the metrics, and the state before the decay in parts.

    If the training has failed, these are the weights and the state of its newest checkpoint.
    """
    run, before = call.work / "run", call.work / "before-decay"
    newest = checkpoints(run)[-1]
    if not before.exists():
        shutil.copytree(newest, before / "checkpoints" / newest.name)
        shutil.copy(run / "metrics.jsonl", before)
    model = run if (run / "config.json").exists() else newest
    half = AlbertForPreTraining.from_pretrained(model, dtype=torch.float16)
    half.save_pretrained(call.work / "half")
    shutil.copy(call.work / "half" / "model.safetensors", call.output)
    shutil.copy(run / "metrics.jsonl", call.output)
    archive = call.work / "state.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(before, arcname=".")
    parts = 0
    with archive.open("rb") as file:
        while content := file.read(PART_BYTES):
            (call.output / f"state.{parts}").write_bytes(content)
            parts += 1
    return {"state_bytes": archive.stat().st_size, "parts": parts}


def main() -> None:
    """Run all phases."""
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="time limit of the call")
    parser.add_argument("--shards", type=Path, required=True, help="folder of shards.tar.xz")
    parser.add_argument("--output", type=Path, required=True, help="folder of the files to return")
    parser.add_argument("--work", type=Path, default=ROOT / "gpu", help="folder of the shards and the run")
    parser.add_argument("--start", help="model folder whose weights the run starts with")
    parser.add_argument("--tiny", action="store_true", help="use tiny shapes, also without a GPU")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.tiny:
        raise SystemExit("PyTorch finds no GPU. To rehearse the call on the CPU, use --tiny.")
    for path in (arguments.shards / "shards.tar.xz", arguments.start):
        if path is not None and not Path(path).exists():
            raise SystemExit(f"{path}: no such file or folder")
    if arguments.start and (arguments.work / "before-decay").exists():
        raise SystemExit(f"{arguments.work} has a run to continue. Omit --start, or choose another --work.")
    output, work = arguments.output.resolve(), arguments.work.resolve()
    output.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    log = (output / "log.txt").open("w", encoding="utf-8")
    for handler in (logging.StreamHandler(log), logging.StreamHandler()):
        logging.getLogger("albertkit").addHandler(handler)
    logging.getLogger("albertkit").setLevel(logging.INFO)
    call = Call(output, work, seconds=60 * arguments.minutes, tiny=arguments.tiny)
    if not arguments.tiny:  # whatever hangs, the report of the phases before it comes back
        faulthandler.dump_traceback_later(60 * arguments.minutes + 20, exit=True, file=log)
    unpacking = threading.Thread(target=unpack, args=(arguments.shards / "shards.tar.xz", work / "shards"))
    unpacking.start()
    settings = {"tiny": arguments.tiny, "minutes": arguments.minutes, "start": arguments.start}
    call.report["call"] = settings | {"resumed": (work / "before-decay").exists()}
    call.run("machine", machine)
    call.run("correctness", correctness)
    call.run("speed", speed)
    unpacking.join()
    call.run("training", lambda call: train(call, arguments.start))
    call.run("files", write_files)
    faulthandler.cancel_dump_traceback_later()
    failed = [
        name for name, result in call.report.items() if "error" in result or result.get("passed") is False
    ]
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
