"""Export a model to ONNX in float32 and in int8, and compare the two.

    python examples/export_int8.py

The same on the command line:

    albertkit export onnx bundled model-float32 --architecture AlbertForMaskedLM --dtype float32
    albertkit export onnx bundled model-int8 --architecture AlbertForMaskedLM --int8 --max-drop 2
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from albertkit import export_onnx, pipeline

HEAD = "AlbertForMaskedLM"  # with the sentence-order head too, only its answers would be compared
TEXTS = [
    "The teacher closed the [MASK] and looked at the class.",
    "She gave him her [MASK] and smiled.",
    "We drove along the [MASK] until the sun went down.",
    "The customer was very [MASK] with our answer.",
    "He drank a glass of [MASK] and went to bed.",
    "In the middle of the [MASK] somebody knocked at the door.",
]


def main() -> None:
    with TemporaryDirectory() as name:
        exact = export_onnx("bundled", Path(name) / "exact", architecture=HEAD, dtype="float32")
        # Rounding can swap two words that are almost equally probable: allow a drop of two points.
        int8 = export_onnx("bundled", Path(name) / "int8", architecture=HEAD, int8=True, max_drop=2)
        fill = pipeline("fill-mask", Path(name) / "int8")  # use the folder like any other model
    drop = int8.accuracy_drop
    assert drop is not None
    difference = exact.largest_difference
    print(f"float32  {exact.file_bytes / 1e6:.1f} MB, differs from the reference by {difference:.0e}")
    print(f"int8     {int8.file_bytes / 1e6:.1f} MB, loses {drop.points:.2f} points of {drop.metric}\n")

    same = 0
    for text, before, after in zip(TEXTS, pipeline("fill-mask")(TEXTS), fill(TEXTS), strict=True):
        words = [f"{answers[0]['token_str']} {answers[0]['score']:.1%}" for answers in (before, after)]
        same += before[0]["token"] == after[0]["token"]
        print(f"{words[0]:>14} -> {words[1]:<14} {text}")
    print(f"\nthe same word in {same} of {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
