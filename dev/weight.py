"""Count the code of the package: files, lines, code, docstrings, `raise`, classes and functions of each part.

    python dev/weight.py [FOLDER]     # default: src/albertkit

Code is lines without blanks, comments and docstrings. "raise" counts the lines of `raise` statements.
"""

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

COLUMNS = ("files", "lines", "code", "docstrings", "raise", "classes", "functions")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def weigh(text: str) -> Counter[str]:
    """Return the counts of one file, by column."""
    docstrings: set[int] = set()
    counts = Counter(files=1, lines=len(text.splitlines()))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Raise):
            counts["raise"] += (node.end_lineno or node.lineno) - node.lineno + 1
        counts["classes"] += isinstance(node, ast.ClassDef)
        counts["functions"] += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    counts["code"], counts["docstrings"] = len(code - docstrings), len(docstrings)
    return counts


def main() -> None:
    """Print a row for each package, for the modules beside them, and for everything."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/albertkit")
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in root.rglob("*.py"):
        first, *rest = path.relative_to(root).parts
        parts[f"{first}/" if rest else "modules"] += weigh(path.read_text(encoding="utf-8"))
    rows = sorted(parts.items(), key=lambda part: -part[1]["lines"])
    print(f"{'':16}" + "".join(f"{name:>12}" for name in COLUMNS))
    for name, counts in [*rows, ("total", sum(parts.values(), Counter()))]:
        print(f"{name:16}" + "".join(f"{counts[column]:>12,}" for column in COLUMNS))


if __name__ == "__main__":
    main()
