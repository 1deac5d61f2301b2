"""Run every block of code in the documentation, and compare its output with the page.

The blocks of a page run one after the other in one folder. A block with a title creates the file of that
name. The test compares a `text` block without a title with the output of the block before it. The line `...`
matches any lines. `GIVEN` in documented_files.py lists the files that a page needs. In
documented_commands.py, `SMALLER` and `SHORTER` list the commands that run with other settings, and `NOT_RUN`
the blocks that do not run.

`--write-outputs` writes the new outputs into the pages, for example after the bundled model has changed. It
runs the commands in `SHORTER` as they are shown, and compares all numbers. An output with one line `...`
keeps as many lines before and after it as it had. By hand, edit outputs with several such lines, where the
test fails and shows the output, and the pages in `SMALLER`.
"""

import re
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from documented_commands import LOCAL, NOT_RUN, NUMBERS_VARY, PRINTED, SHORTER, SMALLER, VARYING
from documented_files import FILES, GIVEN
from markdown_it import MarkdownIt
from places import ROOT

DOCS = ROOT / "docs"
DEV = ROOT / "dev"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
PAGES += ["README.md", *sorted(str(page.relative_to(ROOT)) for page in DEV.rglob("*.md"))]
RUN = ("bash", "python")
CLI = "reference/cli.md"
"""A generated page, which tests/cli/test_cli_reference.py checks. Its `text` blocks show usages of commands,
not outputs."""
SHOWN = ("text", "toml", "csv", "json", "jsonl", "yaml", "bibtex")
"""Languages of the blocks that are outputs or files."""
ELSEWHERE = ("javascript",)
"""Languages of the blocks that tests/compat/test_transformers_js.py runs."""


def path_of(page: str) -> Path:
    return (ROOT if page == "README.md" or page.startswith("dev/") else DOCS) / page


SERVING = """
albertkit() {
  if [ "$1" != serve ]; then command albertkit "$@"; return; fi
  if [ -f server.pid ]; then kill "$(cat server.pid)"; fi
  while curl -s localhost:$PORT/healthz > health; do sleep 0.05; done
  command albertkit "$@" --port $PORT & echo $! > server.pid
  until curl -fs localhost:$PORT/readyz > health; do kill -0 $!; sleep 0.05; done
}
"""
"""Shell code before each bash block: it runs `albertkit serve` in the background, on a free port."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    code: str


def blocks_of(page: str) -> list[Block]:
    tokens = MarkdownIt().parse(path_of(page).read_text(encoding="utf-8"))
    blocks = []
    for token in tokens:
        if token.type == "fence":
            language, _, rest = token.info.partition(" ")
            title = re.search(r'title="([^"]+)"', rest)
            blocks.append(Block(token.map[0] + 1, language, title[1] if title else "", token.content))
    return blocks


@pytest.fixture(scope="module")
def prepared_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the files of `GIVEN`, which the pages share."""
    return tmp_path_factory.mktemp("prepared_files")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the root of the repository, so that scripts do not change the pages."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copytree(DEV, tmp_path / "dev")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_blocks(
    page: str,
    folder: Path,
    prepared_files: Path,
    warm_shell: dict[str, str],
    tiny_texts: list[str],
    request: pytest.FixtureRequest,
) -> None:
    may_write = request.config.getoption("write_outputs") and page not in SMALLER
    changes = LOCAL.get(page, {}) | SMALLER.get(page, {}) | ({} if may_write else SHORTER.get(page, {}))
    vary = page in NUMBERS_VARY and not may_write
    for name, kind in GIVEN.get(page, {}).items():
        if not (prepared_files / kind).exists():
            FILES[kind](prepared_files / kind, tiny_texts, warm_shell)
        (folder / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (prepared_files / kind).is_dir() else shutil.copy)(
            prepared_files / kind, folder / name
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        environment = warm_shell | {"PORT": str(free.getsockname()[1])}
    printed = output = ""
    ran = False
    not_run = tuple(NOT_RUN.get(page, ()))
    for block in blocks_of(page):
        code = block.code
        for text, replacement in changes.items():
            code = code.replace(text, replacement)
        if block.title:
            (folder / block.title).write_text(code, encoding="utf-8")
        if block.language in RUN:
            ran = not code.startswith(not_run)
            output = run_block(page, block, code, folder, environment) if ran else ""
            printed += output
        elif block.language == "text" and not block.title and page != CLI and ran:
            shown, given = (
                re.sub(VARYING[page], "#", text) if page in VARYING else text for text in (block.code, output)
            )
            same = prints(shown, given, vary=vary)
            if may_write and not same and block.code.count("...\n") < 2:
                write_output(path_of(page), block.code, output)
            else:
                assert same, f"{page}, line {block.line}:\n{output}"
    for pattern, minimum in PRINTED.get(page, {}).items():
        numbers = re.findall(pattern, printed, flags=re.MULTILINE)
        assert numbers, (pattern, printed)
        assert all(float(number) >= minimum for number in numbers), (pattern, printed)


def run_block(page: str, block: Block, code: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block and return its output. Errors in Python have the line numbers of the page."""
    if block.language == "python":
        (folder / "block.py").write_text("\n" * block.line + code, encoding="utf-8")
        command = ["python", "block.py"]
    else:
        command = ["bash", "-euo", "pipefail", "-c", SERVING + code]
    # A server in the background would keep a pipe open. It writes its log to the file of its own block.
    with tempfile.TemporaryFile() as printed:
        result = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=printed,
            stderr=subprocess.STDOUT, timeout=600,
        )  # fmt: skip
        printed.seek(0)
        output = printed.read().decode()
    assert result.returncode == 0, f"{page}, line {block.line}:\n{code}\n{output[-4000:]}"
    return output


def write_output(page: Path, shown: str, output: str) -> None:
    """Replace an output in a page."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    first, elided, last = (part.count("\n") for part in shown.partition("...\n"))
    if elided:
        lines = [*lines[:first], "...", *lines[len(lines) - last :]]
    before, old, after = page.read_text(encoding="utf-8").partition(f"```text\n{shown}```")
    assert old, f"{page} has no block with this output:\n{shown}"
    page.write_text(before + "\n".join(["```text", *lines, "```"]) + after, encoding="utf-8")


def prints(shown: str, output: str, *, vary: bool) -> bool:
    """Return whether an output is the one on the page. With `vary`, numbers, bars and columns may differ."""

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
    page.write_text("```text\na\n...\nb\nc\n```\n")
    write_output(page, "a\n...\nb\nc\n", "1\n2\n3\n4\n5\n")
    assert page.read_text() == "```text\n1\n...\n4\n5\n```\n"
    with pytest.raises(AssertionError, match="has no block with this output"):
        write_output(page, "c\n", "d\n")


def test_output_is_compared() -> None:
    assert prints("a 1\n...\nb\n", "a 1\nx\ny\nb\n", vary=False)
    assert prints("a 1.5%  ██\n", "a  22.7%  █\n", vary=True)
    assert not prints("a 1.5\n", "a 1.6\n", vary=False)
    assert not prints("a\nb\n", "a\n", vary=True)
    assert not prints("a\n", "a\nb\n", vary=True)


def test_output_follows_the_block_that_prints_it_and_languages_are_known() -> None:
    for page in PAGES:
        blocks = blocks_of(page)
        for before, block in zip([None, *blocks], blocks, strict=False):
            where = f"{page}, line {block.line}"
            assert block.language in (*RUN, *SHOWN, *ELSEWHERE), f"{where}: {block.language!r}"
            if block.language == "text" and not block.title and page != CLI:
                assert before is not None, where
                assert before.language in RUN, where


def test_exceptions_refer_to_pages_and_blocks_that_exist() -> None:
    for exceptions in (GIVEN, SMALLER, SHORTER, LOCAL, NOT_RUN, PRINTED, NUMBERS_VARY, VARYING):
        assert exceptions.keys() <= set(PAGES)
    for page, beginnings in NOT_RUN.items():
        for beginning in beginnings:
            assert any(block.code.startswith(beginning) for block in blocks_of(page)), f"{page}: {beginning}"
    for exceptions in (SMALLER, SHORTER, LOCAL):
        for page, changes in exceptions.items():
            for text in changes:
                assert any(text in block.code for block in blocks_of(page)), f"{page}: {text}"
