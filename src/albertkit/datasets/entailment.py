"""The files of the PASCAL challenges of recognizing textual entailment, of which GLUE's RTE is made.

    <pair id="8" entailment="NO" task="IE"><t>text</t><h>hypothesis</h></pair>

RTE-1 writes value="FALSE". Labels are called as in GLUE.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from albertkit.datasets.reader import Reader, existing_file, text_of
from albertkit.datasets.report import ReadingReport
from albertkit.errors import DataError
from albertkit.tasks.examples import TextExample

_LABELS = {
    **dict.fromkeys(("YES", "TRUE"), "entailment"),
    **dict.fromkeys(("NO", "FALSE"), "not_entailment"),
}


class EntailmentFile(Reader[TextExample]):
    """The pairs of one XML file: text and hypothesis.

    Args:
        path: the file.
        labelled: whether to read labels, and leave out what has none.
    """

    def __init__(self, path: str | Path, *, labelled: bool = True) -> None:
        self.path = existing_file(path)
        super().__init__(str(path), labelled=labelled)

    def label_names(self) -> tuple[str, ...]:
        """Return the two labels in the order of GLUE."""
        return ("entailment", "not_entailment")

    def read(self, report: ReadingReport) -> Iterator[tuple[str, TextExample]]:
        """Yield the pairs."""
        number = 0
        try:
            for _, element in ElementTree.iterparse(self.path):
                if element.tag != "pair":
                    continue
                number += 1
                report.rows += 1
                name = element.get("id", str(number))
                origin = f"{self.path}, pair {name}"
                example = self._example(element, name, origin, report)
                element.clear()
                if example is not None:
                    report.examples += 1
                    yield origin, example
        except ElementTree.ParseError as error:
            raise DataError(f"{self.path}, after pair {number}: not XML ({error})") from error

    def _example(
        self, element: ElementTree.Element, name: str, origin: str, report: ReadingReport
    ) -> TextExample | None:
        text, hypothesis = text_of(element.findtext("t")), text_of(element.findtext("h"))
        if text is None or hypothesis is None:
            return self.leave_out(report, "empty", origin)
        label = None
        if self.labelled:
            written = element.get("entailment") or element.get("value")
            if written is None:
                return self.leave_out(report, "unlabelled", origin)
            label = _LABELS.get(written)
            if label is None:
                known = ", ".join(_LABELS)
                return self.leave_out(report, "mislabelled", origin, f"{written!r}, expected {known}")
        return TextExample(text, hypothesis, label, name)
