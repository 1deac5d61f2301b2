"""Fixtures of the tests of commands. Import PyTorch inside the fixtures: `make light` loads this file too."""

from pathlib import Path

import pytest
from command_line import LABELED_ROWS


@pytest.fixture(scope="session")
def folder(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a random encoder in `model/`, and tables of labeled texts."""
    from small_task import tiny_model

    from albertkit.modeling.model import AlbertModel

    folder = tmp_path_factory.mktemp("labeled")
    tiny_model(tiny_vocabulary, folder / "model", AlbertModel)
    for name, repeats in (("train", 16), ("dev", 4)):
        lines = ["kind,sentence", *(f"{label},{text}" for text, label in LABELED_ROWS * repeats)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n,no label\n")
    return folder


@pytest.fixture(scope="session")
def classifier(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of one step on single texts."""
    from albertkit.finetuning.finetune import finetune
    from albertkit.training import progress

    output = tmp_path_factory.mktemp("classifier")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "plot_curves", lambda output: None)
        finetune(
            "text-classification",
            model=folder / "model",
            train=folder / "train.csv",
            validation=folder / "dev.csv",
            output=str(output),
            device="cpu",
            steps=1,
            precision="fp32",
            text_column="sentence",
            label_column="kind",
        )
    return output
