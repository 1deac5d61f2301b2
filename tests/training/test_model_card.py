"""Tests of `push_to_hub` for runs: the uploaded files and the model card."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_server import SECRET, Hub
from huggingface_hub import ModelCard
from json_lines import write_json_lines

import albertkit
from albertkit.errors import ConfigError, TrainingError
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.pretraining.run import PretrainingRun
from albertkit.recipe import build

pytestmark = pytest.mark.usefixtures("blank_pictures")
ROWS = [{"text": text, "label": label} for text, label in [("A fine day.", "yes"), ("Rain.", "no")] * 10]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run")
    for name in ("train", "dev"):
        write_json_lines(folder / f"{name}.jsonl", ROWS)
    return albertkit.finetune(
        "text-classification", train=folder / "train.jsonl", validation=folder / "dev.jsonl",
        output=folder / "run", steps=3, batch_size=4, max_length=16, precision="fp32", device="cpu",
    )  # fmt: skip


def test_a_run_is_pushed_with_its_card(run: Any, hub: Hub) -> None:
    run.push_to_hub(
        "org/weather", token=SECRET, license="apache-2.0", language=["en"], limitations="It knows two texts.",
        commit_message="First",
    )  # fmt: skip
    files = hub.repositories["org/weather"]["main"]
    pictures = {"by_length.png", "calibration.png", "confusion.png", "curves.png"}
    assert set(files) - pictures == {
        *("README.md", "config.json", "model.safetensors", "special_tokens_map.json", "spiece.model"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert hub.messages == ["First"]
    card: Any = ModelCard(files["README.md"].decode())
    data = card.data.to_dict()
    assert data.items() >= {
        "license": "apache-2.0", "language": ["en"], "library_name": "transformers",
        "pipeline_tag": "text-classification", "tags": ["albert", "albertkit"],
    }.items()  # fmt: skip
    assert "base_model" not in data  # the bundled model has no name on the hub
    measured = {one.metric_type: one.metric_value for one in card.data.eval_results or []}
    assert measured == pytest.approx(run.metrics, abs=1e-6)
    assert card.text.startswith("\n# weather\n\nA model for text classification, fine-tuned from `bundled`")
    assert f"| accuracy | {run.metrics['accuracy']:.4f} | {run.baseline['accuracy']:.4f} |" in card.text
    assert "* training: 20 of 20 rows of train.jsonl" in card.text
    assert "* Its only labels are `no`, `yes`.\n" in card.text
    assert "repeats the biases" not in card.text
    assert card.text.rstrip().endswith("It knows two texts.")
    # Nothing tells where it was made.
    assert str(run.folder.parent) not in files["README.md"].decode()
    recipe = tomllib.loads(card.text.partition("```toml\n")[2].partition("```")[0])
    settings = build(FinetuningSettings, recipe, where="card")
    assert (settings.steps, settings.batch_size, settings.task.max_length) == (3, 4, 16)
    example = card.text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["pipeline"]("Rain.") == run.pipeline()("Rain.")


def test_the_hub_s_name_of_the_first_model_is_in_the_card(run: Any, hub: Hub) -> None:
    published = replace(run, report=run.report | {"model": "albert-base-v2"})
    published.push_to_hub("org/base", token=SECRET, datasets=["org/weather"])
    data: Any = ModelCard(hub.repositories["org/base"]["main"]["README.md"].decode()).data
    assert (data.base_model, data.datasets) == ("albert/albert-base-v2", ["org/weather"])
    worse = run.report | {"metrics": run.metrics | {"accuracy": 0.1}, "beats_untrained": False}
    replace(run, report=worse).push_to_hub("org/bad", token=SECRET, base_model="org/other")
    card: Any = ModelCard(hub.repositories["org/bad"]["main"]["README.md"].decode())
    assert card.data.base_model == "org/other"
    assert "* Its accuracy is no better than the baseline.\n" in card.text
    assert "* Training did not improve on the untrained model." in card.text


@pytest.mark.parametrize(
    ("start", "name", "base"),
    [
        ("albert-base-v1", "albert/albert-base-v1", "albert/albert-base-v1"),
        ("/home/someone/secret/my-model", "my-model", None),
        ("bundled", "bundled", None),
    ],
)
def test_a_pretraining_run_is_pushed_with_its_card(
    tmp_path: Path, hub: Hub, start: str, name: str, base: str | None
) -> None:
    albertkit.pipeline("fill-mask").save_pretrained(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    run = PretrainingRun(
        tmp_path, True, 500, 1_234_567, 12.34, {"masked_loss": 2.5},
        settings={"batch_size": 8, "init_from": start, "training": {"steps": 500, "tokens": None}},
    )  # fmt: skip
    run.push_to_hub("org/pretrained", token=SECRET, language="la")
    files = hub.repositories["org/pretrained"]["main"]
    assert {"metrics.jsonl", "checkpoints"} & set(files) == set()
    card: Any = ModelCard(files["README.md"].decode())
    assert (card.data.pipeline_tag, card.data.language) == ("fill-mask", "la")
    assert card.data.base_model == base
    assert "secret" not in card.text
    assert "| masked_loss | 2.5000 |" in card.text
    assert "steps: 500; tokens: 1,234,567; minutes of training: 12.3. The recipe:" in card.text
    recipe = tomllib.loads(card.text.partition("```toml\n")[2].partition("```")[0])
    assert recipe == {"batch_size": 8, "init_from": name, "training": {"steps": 500}}


def test_unsuitable_runs_cannot_be_pushed(run: Any, hub: Hub) -> None:
    with pytest.raises(ConfigError, match=r"unknown argument 'licence'\. Did you mean 'license'"):
        run.push_to_hub("org/weather", licence="mit")
    with pytest.raises(TrainingError, match=r"is not finished\. Repeat the call"):
        type(run)(run.folder, run.task, run.loop, None).push_to_hub("org/weather")
    assert hub.requests == []
