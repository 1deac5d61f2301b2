"""Test of the search in docs/how-to/optuna.md with Optuna.

pip install optuna
pytest tests/compat/test_optuna.py
"""

import re
from pathlib import Path

import pytest
from places import ROOT

PAGE = ROOT / "docs" / "how-to" / "optuna.md"


def test_optuna_drives_finetune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optuna = pytest.importorskip("optuna", reason="needs Optuna: pip install optuna")
    block = re.search(r'```python title="search.py"\n(.*?)```', PAGE.read_text(), flags=re.DOTALL)
    assert block
    code = block[1].replace(
        "epochs=2", 'steps=2, evaluate_every=1, batch_size=4, precision="fp32", device="cpu"'
    )
    code = code.replace("n_trials=8", "n_trials=3").replace("MedianPruner()", "ThresholdPruner(lower=2)")
    assert len([line for line in block[1].splitlines() if line.strip()]) <= 25
    monkeypatch.chdir(tmp_path)
    rows = ["A fine day.,yes", "Rain.,no"] * 10
    Path("tickets.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    names: dict = {}
    exec(code.replace("ThresholdPruner(lower=2)", "NopPruner()"), names)
    study = names["study"]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    assert study.best_value == max(trial.value for trial in study.trials)
    assert list(study.trials[0].intermediate_values) == [0, 1, 2]
    # The threshold prunes every trial. Each pruned trial has a checkpoint.
    Path("trials").rename("first")
    with pytest.raises(ValueError, match="No trials are completed"):
        exec(code, names)
    assert sorted(path.name for path in Path("trials").iterdir()) == ["0", "1", "2"]
    assert Path("trials/0/checkpoints/step-0000000/model.safetensors").is_file()
    assert optuna.trial.TrialState.PRUNED in {trial.state for trial in names["study"].trials}
