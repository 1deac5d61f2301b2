"""Every block of code in the documentation, run as it stands on its page.

The blocks of a page run one after the other in one folder. A block with a title is a file of that name there.
A `text` block without a title is compared with what the block before it prints; the line `...` is any lines.
`GIVEN` in documented_files.py lists what a page takes for granted, `SMALLER` what is run otherwise than it is
written, `NOT_RUN` what is not run: nothing else is.

With `--write-outputs`, a page shows afterwards what its blocks print now, for example with new weights of the
bundled model. Outputs with `...`, and those of a page in `SMALLER`, are left for a person.
"""

import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from documented_files import FILES, GIVEN
from markdown_it import MarkdownIt
from places import ROOT

DOCS = ROOT / "docs"
DEV = ROOT / "dev"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
PAGES += ["README.md", *sorted(str(page.relative_to(ROOT)) for page in DEV.rglob("*.md"))]
RUN = ("bash", "python")
CLI = "reference/cli.md"
"""Generated; tests/cli/test_cli_reference.py compares it. Its `text` blocks are the usage of commands."""
SHOWN = ("text", "toml", "csv", "json", "jsonl", "bibtex")
"""Languages of blocks that are output or files."""
ELSEWHERE = ("javascript",)
"""Languages of blocks that tests/compat/test_transformers_js.py runs."""


def place_of(page: str) -> Path:
    return (ROOT if page == "README.md" or page.startswith("dev/") else DOCS) / page


TINY_CORPUS = {
    "--vocab-size 8192": "--vocab-size 500",
    "--holdout-every 40": "--holdout-every 20 --workers 1",
}
IN_FP32 = "--precision fp32"  # a CPU without bf16 takes a multiple of the time for it
STEPS = f"--steps 1 --warmup-steps 0 {IN_FP32}"
ONE_STEP = f"{STEPS} --evaluation-sequences 16 --batch-tokens 512"
SMALLER: dict[str, dict[str, str]] = {
    "README.md": TINY_CORPUS
    | {
        "--model albert/albert-base-v2": f"{STEPS} --model bundled",
        "--recipe recipes/bundled.toml": f"--recipe recipes/bundled.toml {ONE_STEP} --decay-steps 0",
    },
    "tutorials/pretrain-your-books.md": {
        "--vocab-size 4000": "--vocab-size 500",
        "--holdout-every 8": "--holdout-every 8 --workers 1",
        "--recipe books.toml": f"--recipe books.toml {ONE_STEP} --decay-steps 0",
    },
    "how-to/answer.md": {"--steps 60": f"--steps 20 {IN_FP32}"},
    "dev/bundled-model.md": TINY_CORPUS
    | {
        "--recipe recipes/bundled.toml": f"--recipe recipes/bundled.toml {ONE_STEP} --decay-steps 0",
        "excerpts-start.toml --data": f"excerpts-start.toml {ONE_STEP} --data",
        "excerpts.toml --data": f"excerpts.toml {ONE_STEP} --data",
        "further.toml --data": f"further.toml {ONE_STEP} --data",
    },
    "how-to/classify.md": {"--steps 30": f"--steps 30 {IN_FP32}"},
    "how-to/clients.md": {
        '"http://localhost:8080/models/bundled"': 'os.path.expandvars("http://localhost:$PORT/models/bundled")',
        "from huggingface_hub": "import os\nos.environ.pop('HF_HUB_OFFLINE', None)\nfrom huggingface_hub",
    },
    "reference/cli.md": {
        'of Leith." --model my-model': 'of Leith." --model tagger',
        'the harbor." --model my-model': 'the harbor." --model reader',
    },
    "how-to/continue-pretraining.md": {
        "--holdout-every 20": "--holdout-every 20 --workers 1",
        "--batch-tokens 2048 --steps 1000 --warmup-steps 50": ONE_STEP,
        "finetune text": f"finetune {STEPS} text",
    },
    "how-to/corpora.md": TINY_CORPUS,
    "how-to/fine-tune.md": {
        "finetune text-classification": f"finetune text-classification {STEPS}",
        "finetune sentence-embedding": f"finetune sentence-embedding {STEPS}",
        "--model albert-base-v2": "--model bundled",
        "cola sst2 qqp qnli wnli": "qnli",
        "glue_$task.toml": f"glue_$task.toml {STEPS} --batch-size 8 --max-length 64",
    },
    "how-to/new-language.md": {
        "--vocab-size 2000": "--vocab-size 500",
        "--holdout-every 10": "--holdout-every 10 --workers 1",
        "max_minutes = 5": "max_minutes = 0.001",
    },
    "how-to/own-task.md": {
        'output="letters"': 'output="letters", steps=1, precision="fp32"',
        "epochs=6, batch_size=16": 'steps=1, precision="fp32"',
    },
    "how-to/transformers-trainer.md": {"max_steps=40": "max_steps=40, report_to=[], use_cpu=True"},
    "how-to/peft.md": {"max_steps=40": "max_steps=40, report_to=[], use_cpu=True"},
    "how-to/accelerate.md": {
        # The warm shell has no such command; without an interface, gloo asks the name server.
        "accelerate launch": f"GLOO_SOCKET_IFNAME=lo {sys.executable} -m accelerate.commands.launch",
    },
    "how-to/training-callbacks.md": {"epochs=6, batch_size=16": 'epochs=1, batch_size=16, precision="fp32"'},
    "how-to/pandas-and-pytorch.md": {
        "epochs=6, batch_size=16": 'epochs=4, batch_size=16, precision="fp32"',
        "epochs=2": 'epochs=1, precision="fp32"',
    },
    "how-to/pretrain.md": TINY_CORPUS
    | {
        "recipes/smoke.toml": f"recipes/smoke.toml {ONE_STEP}",
        "recipes/paper/albert-base-v2.toml": f"recipes/smoke.toml {ONE_STEP}",
        "recipes/paper/albert-xxlarge-v2.toml": f"recipes/smoke.toml {ONE_STEP}",
    },
    "how-to/serve.md": {"localhost:8080": "localhost:$PORT"},
    "how-to/speed.md": {
        "--against transformers,": "--lengths 16 --batches 4 --rounds 1 --against ",  # tests/bench does
        "--early-exit\n": f"--early-exit {STEPS}\n",
        "--calibrate dev.tsv": "--calibrate dev.tsv --max-drop 100",
    },
    "how-to/embed.md": {"finetune sentence-embedding": f"finetune sentence-embedding {STEPS}"},
    "how-to/train-on-gpus.md": {"finetune text-classification": f"finetune text-classification {STEPS}"},
    "how-to/multiple-choice.md": {"--steps 40": f"--steps 40 {IN_FP32}"},
    "tutorials/csv-to-server.md": {
        "--epochs 12": f"--epochs 12 {IN_FP32}",
        "localhost:8080": "localhost:$PORT",
    },
    "how-to/tag.md": {"--steps 60": f"--steps 20 {IN_FP32}"},
    "how-to/zero-shot.md": {
        # The model that answers is made by documented_files.py, in all steps.
        "--steps 60": "--steps 1 --warmup-steps 0",
        "--output topics": "--output again",
        "localhost:8080": "localhost:$PORT",
    },
}
"""Page -> {what it says: what is run}, for the time (hours), the data and models it takes."""

PIP = "installs packages"
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"pip install": PIP},
    "how-to/training-callbacks.md": {
        "import wandb": "tests/project/test_examples.py does, with a stand-in; tests/compat/test_trackers.py",
    },
    "how-to/optuna.md": {
        "import optuna": "tests/compat/test_optuna.py does",
        "python search.py": "the same",
    },
    "how-to/install.md": {"pip install": PIP},
    "how-to/share.md": {
        "hf ": "uploads",
        "import albertkit\n\nrun": "uploads; tests/training/test_model_card.py does",
        "from albertkit": "uploads; tests/test_hub_upload.py does",
    },
    "how-to/train-on-gpus.md": {"torchrun": "dev/bundled-model.md and tests/training/test_distributed.py do"},
    "tutorials/csv-to-server.md": {"pip install": PIP},
    "tutorials/examples.md": {"pip install": PIP},
    "tutorials/first-steps.md": {"pip install": PIP},
    "tutorials/pretrain-your-books.md": {"pip install": PIP},
    "dev/bundled-model.md": {
        "python scripts/sentence_vectors.py": "tests/project/test_sentence_vectors.py does, with a few books",
    },
    "dev/gpu.md": {"python scripts/carry.py": "tests/project/test_carry.py does, with a small model"},
    "reference/cli.md": {
        "albertkit serve": "how-to/serve.md does",
        "albertkit playground": "tests/serving/test_playground.py does, with a browser",
        "albertkit train-tokenizer": "how-to/corpora.md does",
        "albertkit prepare": "how-to/corpora.md does",
        "albertkit pretrain": "dev/bundled-model.md does",
        "albertkit finetune": "how-to/fine-tune.md does",
        "albertkit evaluate": "how-to/fine-tune.md does",
        "albertkit predict": "how-to/fine-tune.md does",
        "albertkit bench": "how-to/speed.md does",
    },
    "how-to/browser.md": {
        "albertkit export web bundled site --page": "needs npm; tests/compat/test_web_page.py opens the page",
    },
    "reference/keras.md": {"from albertkit": "tests/keras/test_keras.py does, on TensorFlow"},
    "reference/compatibility.md": {
        "make compat": "installs environments; tests/project/test_compatibility.py reads its results",
        ".venv/bin/python tests/compat": "the same, for one tool",
    },
    "how-to/embed.md": {"from sentence_transformers": "tests/compat does, in an environment of its own"},
    "how-to/clients.md": {"from openai": "tests/compat does, in an environment of its own"},
    "index.md": {"pip install": PIP},
    "how-to/own-task.md": {"python examples/own_task.py": "tests/project/test_examples.py does"},
    "how-to/keras.md": {
        "from albertkit": "tests/keras/test_keras.py does, on TensorFlow",
        "import keras": "the same",
    },
    "dev/figures.md": {"make test": "is this suite, and benchmarks of an hour"},
}
"""Page -> {how a block begins: why it is not run here, or which page runs the same}."""

PRINTED: dict[str, dict[str, float]] = {
    "how-to/browser.md": {r"agreement \(100\.00 to ([\d.]+), on 744": 98.5},
    "how-to/pandas-and-pytorch.md": {
        r"^accuracy +([\d.]+) \(baseline": 0.4,
        r"^examples +(\d+)": 36,
        r"praise +([\d.]+)": 0.3,
        r"^accuracy ([\d.]+)$": 0.4,
    },
    "how-to/zero-shot.md": {
        r"^cooking +([\d.]+)%": 60,
        r"^cooking ([\d.]+)$": 0.6,
        r'\[\[{"label": "cooking", "score": ([\d.]+)': 0.6,
    },
}
"""Page -> {a pattern of what its blocks print: the minimum of each number that it finds}."""

NUMBERS_VARY = {
    "how-to/multiple-choice.md": "",
    "how-to/corpora.md": "the corpus is smaller",
    "how-to/new-language.md": "the vocabulary is smaller",
    "how-to/pandas-and-pytorch.md": "the model is trained in fewer epochs",
    "how-to/pretrain.md": "the corpus is smaller, and the model is trained in one step",
    "tutorials/csv-to-server.md": "",
    "tutorials/pretrain-your-books.md": "the corpus is smaller, and the model is trained in one step",
    "how-to/answer.md": "the model is trained in fewer steps",
    "how-to/own-task.md": "the model is trained in one step",
    "how-to/tag.md": "the model is trained in fewer steps",
    "how-to/classify.md": "",
    "how-to/serve.md": "",
    "how-to/streaming.md": "",
    "how-to/training-callbacks.md": "",
    "how-to/transformers-trainer.md": "",
    "how-to/peft.md": "",
    "how-to/accelerate.md": "",
    "how-to/zero-shot.md": "",
}
"""Pages whose models are trained: the numbers in their output differ between processors -> and why else."""

VARYING = {"how-to/browser.md": r"by at most [\d.e-]+|loses [\d.]+ points|to [\d.]+, on 744"}
"""Page -> a pattern of the only numbers in its output that differ between processors."""

SERVING = """
albertkit() {
  if [ "$1" != serve ]; then command albertkit "$@"; return; fi
  if [ -f server.pid ]; then kill "$(cat server.pid)"; fi
  while curl -s localhost:$PORT/healthz > health; do sleep 0.05; done
  command albertkit "$@" --port $PORT & echo $! > server.pid
  until curl -fs localhost:$PORT/readyz > health; do kill -0 $!; sleep 0.05; done
}
"""
"""In front of every block for a shell: `albertkit serve` goes on in the background, at a free port."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    code: str


def blocks_of(page: str) -> list[Block]:
    tokens = MarkdownIt().parse(place_of(page).read_text(encoding="utf-8"))
    found = []
    for token in tokens:
        if token.type == "fence":
            language, _, rest = token.info.partition(" ")
            title = re.search(r'title="([^"]+)"', rest)
            found.append(Block(token.map[0] + 1, language, title[1] if title else "", token.content))
    return found


@pytest.fixture(scope="module")
def larder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("larder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like the root of the repository, in which scripts write their own copy of the pages."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copytree(DEV, tmp_path / "dev")
    for name in ("examples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_blocks(
    page: str,
    folder: Path,
    larder: Path,
    warm_shell: dict[str, str],
    tiny_texts: list[str],
    request: pytest.FixtureRequest,
) -> None:
    may_write = request.config.getoption("write_outputs") and page not in SMALLER
    for name, kind in GIVEN.get(page, {}).items():
        if not (larder / kind).exists():
            FILES[kind](larder / kind, tiny_texts, warm_shell)
        (folder / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (larder / kind).is_dir() else shutil.copy)(larder / kind, folder / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        environment = warm_shell | {"PORT": str(free.getsockname()[1]), "BLANK_PICTURES": "1"}
    printed = output = ""
    ran = False
    smaller, not_run = SMALLER.get(page, {}), tuple(NOT_RUN.get(page, ()))
    for block in blocks_of(page):
        code = block.code
        for written, instead in smaller.items():
            code = code.replace(written, instead)
        if block.title:
            (folder / block.title).write_text(code, encoding="utf-8")
        if block.language in RUN:
            ran = not code.startswith(not_run)
            output = run_block(page, block, code, folder, environment) if ran else ""
            printed += output
        elif block.language == "text" and not block.title and page != CLI and ran:
            shown, given = (
                re.sub(VARYING[page], "#", one) if page in VARYING else one for one in (block.code, output)
            )
            same = prints(shown, given, vary=page in NUMBERS_VARY)
            if may_write and not same and "...\n" not in block.code:
                write_output(place_of(page), block.code, output)
            else:
                assert same, f"{page}, line {block.line}:\n{output}"
    for pattern, minimum in PRINTED.get(page, {}).items():
        numbers = re.findall(pattern, printed, flags=re.MULTILINE)
        assert numbers, (pattern, printed)
        assert all(float(number) >= minimum for number in numbers), (pattern, printed)


def run_block(page: str, block: Block, code: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block, with the line numbers of its page in errors; return what it prints."""
    if block.language == "python":
        (folder / "block.py").write_text("\n" * block.line + code, encoding="utf-8")
        command = ["python", "block.py"]
    else:
        command = ["bash", "-euo", "pipefail", "-c", SERVING + code]
    with (folder / "printed").open("w+b") as printed:  # a pipe would be held open by a server
        result = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=printed,
            stderr=subprocess.STDOUT, timeout=600,
        )  # fmt: skip
        printed.seek(0)
        output = printed.read().decode()
    assert result.returncode == 0, f"{page}, line {block.line}:\n{code}\n{output[-4000:]}"
    return output


def write_output(page: Path, shown: str, output: str) -> None:
    """Put an output into a page, in place of the one that it shows."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    before, found, after = page.read_text(encoding="utf-8").partition(f"```text\n{shown}```")
    assert found, f"{page} has no block with this output:\n{shown}"
    page.write_text(before + "\n".join(["```text", *lines, "```"]) + after, encoding="utf-8")


def prints(shown: str, output: str, *, vary: bool) -> bool:
    """Whether a program printed what a page shows. With `vary`, numbers, bars and columns may differ."""

    def lines_of(text: str) -> list[str]:
        if vary:
            text = re.sub(r"-?\d[\d.,:e+-]*", "#", re.sub(r" *[\u2588-\u258f]+", "", text))
            text = re.sub(r" +", " ", text)
        return [line.rstrip() for line in text.strip("\n").splitlines()]

    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in lines_of(shown))
    return re.fullmatch(pattern, "\n".join(lines_of(output)) + "\n") is not None


def test_an_output_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text\na\n```\n\n```text\nb  1\n\nc\n```\n\nEnd.\n")
    write_output(page, "b  1\n\nc\n", "\nb  2   \n\nd\n\n")
    assert page.read_text() == "```text\na\n```\n\n```text\nb  2\n\nd\n```\n\nEnd.\n"
    with pytest.raises(AssertionError, match="has no block with this output"):
        write_output(page, "c\n", "d\n")


def test_output_is_compared() -> None:
    assert prints("a 1\n...\nb\n", "a 1\nx\ny\nb\n", vary=False)
    assert prints("a 1.5%  ██\n", "a  22.7%  █\n", vary=True)
    assert not prints("a 1.5\n", "a 1.6\n", vary=False)
    assert not prints("a\nb\n", "a\n", vary=True)
    assert not prints("a\n", "a\nb\n", vary=True)


@pytest.mark.parametrize("page", [page for page in PAGES if page != CLI])
def test_output_follows_the_block_that_prints_it(page: str) -> None:
    blocks = blocks_of(page)
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.language == "text" and not block.title:
            assert before is not None, f"{page}, line {block.line}"
            assert before.language in RUN, f"{page}, line {block.line}"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_their_language(page: str) -> None:
    for block in blocks_of(page):
        assert block.language in (*RUN, *SHOWN, *ELSEWHERE), f"{page}, line {block.line}: {block.language!r}"


def test_exceptions_are_of_pages_that_are_there() -> None:
    for exceptions in (GIVEN, SMALLER, NOT_RUN, PRINTED, NUMBERS_VARY, VARYING):
        assert exceptions.keys() <= set(PAGES)
    for page, beginnings in NOT_RUN.items():
        for beginning in beginnings:
            assert any(block.code.startswith(beginning) for block in blocks_of(page)), f"{page}: {beginning}"
    for page, changes in SMALLER.items():
        for written in changes:
            assert any(written in block.code for block in blocks_of(page)), f"{page}: {written}"
