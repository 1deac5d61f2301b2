"""Published results of ALBERT on labeled data, in percent.

The sources are the README of google-research/albert, whose table of all sizes the model cards on the hub
repeat, and Lan et al. 2019 (arXiv:1909.11942v6), tables 2, 9 and 10. Where the sources overlap, they agree.

The results of MNLI are for the matched set (appendix A.3). The paper does not name the other metrics of
GLUE's development sets. It follows Liu et al. 2019, so we assume Matthews' correlation for CoLA, Pearson's
correlation for STS-B, and accuracy for the other tasks.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Column(NamedTuple):
    """A column of a table of results."""

    name: str
    metric: str
    """The metrics and the split, in words."""
    keys: tuple[str, ...]
    """The measured values for this column, as MEASUREMENT/METRIC: see `albertkit.finetuning.suites`."""


@dataclass(frozen=True)
class PublishedTable:
    """A published table. Several values in one column are in the order of the column's keys."""

    title: str
    source: str
    columns: tuple[Column, ...]
    rows: dict[str, str]
    """The cells of each row, after its average if the table has averages. "-" is not published."""
    has_averages: bool = False


_SQUAD1 = Column("SQuAD1.1", "F1/exact, dev", ("squad1/f1", "squad1/exact"))
_SQUAD2 = Column("SQuAD2.0", "F1/exact, dev", ("squad2/f1", "squad2/exact"))

DOWNSTREAM = PublishedTable(
    title="SQuAD, MNLI, SST-2 and RACE",
    source="The README of google-research/albert, repeated by the model cards. Version 1 is as in the paper: "
    "table 2, development sets; for xxlarge tables 9 and 10, where RACE is the test set. For version 2 the "
    "README does not name the sets.",
    columns=(
        _SQUAD1,
        _SQUAD2,
        Column("MNLI", "accuracy, matched", ("mnli/accuracy",)),
        Column("SST-2", "accuracy, dev", ("sst2/accuracy",)),
        Column("RACE", "accuracy, dev", ("race_dev/accuracy",)),
    ),
    rows={
        "albert-base-v2": "82.3 90.2/83.2 82.1/79.3 84.6 92.9 66.8",
        "albert-large-v2": "85.7 91.8/85.2 84.9/81.8 86.5 94.9 75.2",
        "albert-xlarge-v2": "87.9 92.9/86.4 87.9/84.1 87.9 95.4 80.7",
        "albert-xxlarge-v2": "90.9 94.6/89.1 89.8/86.9 90.6 96.8 86.8",
        "albert-base-v1": "80.1 89.3/82.3 80.0/77.1 81.6 90.3 64.0",
        "albert-large-v1": "82.4 90.6/83.9 82.3/79.4 83.5 91.7 68.5",
        "albert-xlarge-v1": "85.5 92.5/86.1 86.1/83.1 86.4 92.4 74.8",
        "albert-xxlarge-v1": "91.0 94.8/89.3 90.2/87.4 90.8 96.9 86.5",
    },
    has_averages=True,
)

GLUE = PublishedTable(
    title="GLUE, development sets",
    source="Lan et al. 2019, table 9: single models in the shape of xxlarge after 1 and 1.5 million steps, "
    "medians of five runs. RTE, STS-B and MRPC begin with the model fine-tuned on MNLI.",
    columns=(
        Column("MNLI", "accuracy, matched", ("mnli/accuracy",)),
        Column("QNLI", "accuracy", ("qnli/accuracy",)),
        Column("QQP", "accuracy", ("qqp/accuracy",)),
        Column("RTE", "accuracy", ("rte/accuracy",)),
        Column("SST-2", "accuracy", ("sst2/accuracy",)),
        Column("MRPC", "accuracy", ("mrpc/accuracy",)),
        Column("CoLA", "Matthews", ("cola/matthews",)),
        Column("STS-B", "Pearson", ("stsb/pearson",)),
        Column("WNLI", "accuracy", ("wnli/accuracy",)),
    ),
    rows={
        "ALBERT (1M)": "90.4 95.2 92.0 88.1 96.8 90.2 68.7 92.7 -",
        "ALBERT (1.5M)": "90.8 95.3 92.2 89.2 96.9 90.9 71.4 93.0 -",
    },
)

READING = PublishedTable(
    title="SQuAD, development sets, and RACE, test set",
    source="Lan et al. 2019, table 10: single models in the shape of xxlarge after 1 and 1.5 million steps.",
    columns=(
        _SQUAD1,
        _SQUAD2,
        Column("RACE", "accuracy, test", ("race_test/accuracy",)),
        Column("RACE middle", "accuracy, test", ("race_test/middle",)),
        Column("RACE high", "accuracy, test", ("race_test/high",)),
    ),
    rows={
        "ALBERT (1M)": "94.8/89.2 89.9/87.2 86.0 88.2 85.1",
        "ALBERT (1.5M)": "94.8/89.3 90.2/87.4 86.5 89.0 85.5",
    },
)

TABLES = (DOWNSTREAM, GLUE, READING)
