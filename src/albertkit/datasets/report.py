"""What was read of a source, and what was left out and why."""

from dataclasses import dataclass, field
from typing import Any, Literal

Problem = Literal["malformed", "empty", "unlabelled", "mislabelled"]
"""Rows that cannot be read as the layout says; without text; without label; with one that cannot be right."""

ANSWERED = "predicted all the same"
"""The end of the detail of a row without labels that is an example in spite of its problem."""

SHOWN = 5
"""How many rows with a problem are named."""


@dataclass
class ProblemRows:
    """The rows with one problem: how many, and the first of them with what is wrong."""

    count: int = 0
    first: list[str] = field(default_factory=list)


@dataclass
class ReadingReport:
    """One reading of one source. `examples` are those used, `rows` all that were seen."""

    source: str
    rows: int = 0
    examples: int = 0
    problems: dict[Problem, ProblemRows] = field(default_factory=dict)
    counts_all: bool = False
    """Count rows without labels that cannot be read, instead of raising for the first one."""

    def add(self, problem: Problem, origin: str, detail: str = "") -> None:
        """Count a row that is left out.

        Args:
            problem: why.
            origin: the row: "train.csv, line 12".
            detail: what is wrong with it.
        """
        rows = self.problems.setdefault(problem, ProblemRows())
        rows.count += 1
        if len(rows.first) < SHOWN:
            rows.first.append(f"{origin}: {detail}" if detail else origin)

    def lines(self) -> list[str]:
        """Return the report as lines to be shown before training."""
        left_out = self.rows - self.examples
        also = f", {left_out:,} left out" if left_out else ""
        lines = [f"{self.source}: {self.examples:,} examples{also}"]
        for problem, rows in self.problems.items():
            lines.append(f"  {problem}: {rows.count:,}")
            lines += [f"    {one}" for one in rows.first]
            if rows.count > len(rows.first):
                lines.append("    ...")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        problems = {
            problem: {"count": rows.count, "first": rows.first} for problem, rows in self.problems.items()
        }
        return {"source": self.source, "rows": self.rows, "examples": self.examples, "problems": problems}
