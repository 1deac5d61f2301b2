"""Check the project's prose: the terms of the glossary, and the length of sentences.

    python dev/prose.py              # README, docs, docstrings and comments; used by `make check`
    python dev/prose.py docs/how-to/serve.md src/albertkit/hub.py

codespell checks the spelling. `prose.toml` has the terms to avoid, each with its replacement, and the limits.
Code in Markdown (fences and `spans`) is not prose. The exit status is 1 if there are findings.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = Path(__file__).with_suffix(".toml")

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"``[^`]*``|`[^`\n]*`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
MARKUP = re.compile(r"<[^>]+>|[*_]{1,2}(?=\w)|(?<=\w)[*_]{1,2}|^#+ ")
NEW_ITEM = re.compile(r"^\s*([-*+]|\d+\.) |^\s*\||^.*\S {2,}\S|^.*[├└]")  # list items and rows of tables
FIELD = re.compile(
    r"^\s*(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note|\*{0,2}[\w., *]+):(\s|$)"
)
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\s\|\s")


@dataclass(frozen=True)
class Rules:
    """Terms with their replacements, the maximum number of words in a sentence, and the files to skip."""

    terms: tuple[tuple[re.Pattern[str], str], ...]
    max_words: int
    skip: tuple[str, ...]

    @classmethod
    def read(cls, path: Path = RULES) -> Rules:
        """Read the rules from a TOML file."""
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        terms = tuple(
            (re.compile(rf"\b(?:{term})\b", re.IGNORECASE), word) for term, word in table["terms"].items()
        )
        return cls(terms, table["limits"]["max_words"], tuple(table["limits"]["skip"]))


@dataclass(frozen=True)
class Paragraph:
    """Consecutive lines of prose and the number of the first one."""

    line: int
    text: str


def paragraphs(lines: list[tuple[int, str]]) -> Iterator[Paragraph]:
    """Yield the paragraphs, list items and table rows of numbered lines, without code blocks."""
    first, parts, fenced = 0, [], False
    for number, line in [*lines, (0, "")]:
        fence = FENCE.match(line)
        if fence or fenced or not line.strip() or NEW_ITEM.match(line) or FIELD.match(line):
            if parts:
                yield Paragraph(first, " ".join(parts))
            parts = []
        if fence:
            fenced = not fenced
        elif not fenced and line.strip():
            if not parts:
                first = number
            text = CODE.sub(lambda span: "X" + "\n" * span.group().count("\n"), FIELD.sub("", line))
            parts.append(MARKUP.sub("", LINK.sub(r"\1", text)).strip())


def markdown(text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a Markdown page."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1)]
    yield from paragraphs(
        [(n, "" if line.startswith(("    ", "!!!")) and "|" not in line else line) for n, line in lines]
    )


def strings(node: ast.AST) -> Iterator[Paragraph]:
    """Yield the strings of several words in a node, such as messages. Values in f-strings become X."""
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
        message, nested = "".join(parts), []
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        message, nested = node.value, []
    else:
        message, nested = "", list(ast.iter_child_nodes(node))
    if message.count(" ") > 3:
        yield Paragraph(node.lineno, message)  # type: ignore[attr-defined]
    for child in nested:
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):  # no docstrings
            yield from strings(child)


def python(text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a Python file: strings of several words, docstrings and comments."""
    tree = ast.parse(text)
    yield from strings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                start = node.body[0].lineno
                kept = [(start + i, line) for i, line in enumerate(docstring.splitlines())]
                yield from paragraphs([(n, "" if ">>>" in line else line) for n, line in kept])
    comments = [
        (token.start[0], token.string.lstrip("#").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    previous, lines = 0, []
    for number, comment, is_alone in comments:
        if number != previous + 1 or not is_alone:  # a comment after code is a separate paragraph
            lines.append((0, ""))
        lines.append((number, comment))
        previous = number if is_alone else 0
    yield from paragraphs(lines)


def findings(path: str, text: str, rules: Rules) -> Iterator[str]:
    """Yield a line for each term to avoid and each sentence that is too long."""
    for paragraph in python(text) if path.endswith(".py") else markdown(text):
        for pattern, word in rules.terms:
            for match in pattern.finditer(paragraph.text):
                yield f"{path}:{paragraph.line}: '{match.group()}': write {word}"
        for sentence in SENTENCE_END.split(paragraph.text):
            count = len(sentence.split())
            if count > rules.max_words:
                start = " ".join(sentence.split()[:8])
                yield f"{path}:{paragraph.line}: {count} words, more than {rules.max_words}: {start} ..."


def default_files() -> list[Path]:
    """Return the pages, and the Python files of the package."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [*pages, *sorted(ROOT.glob("src/**/*.py"))]


def main(arguments: list[str]) -> int:
    """Check the given files, or all, and print the findings."""
    rules = Rules.read()
    count = 0
    for path in [Path(argument).resolve() for argument in arguments] or default_files():
        name = path.relative_to(ROOT).as_posix()
        if not arguments and any(
            name == skip or (skip.endswith("/") and name.startswith(skip)) for skip in rules.skip
        ):
            continue
        for finding in findings(name, path.read_text(encoding="utf-8"), rules):
            print(finding)
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
