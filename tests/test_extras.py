"""Tests of public names whose extra is missing: importing works, and the error of a call names the extra."""

import re
import subprocess
import sys
import tomllib

import pytest
from places import ROOT
from torchless import run_without_torch

pytestmark = pytest.mark.light

NAMES = """
import copy, inspect
sys.modules["keras"] = None  # importing it takes seconds
import albertkit
from albertkit import *
from albertkit import AlbertModel, MissingExtraError, TFAlbertModel

assert all(hasattr(albertkit, name) and name in dir(albertkit) for name in albertkit.__all__)
assert not hasattr(albertkit, "AlbertModle")
assert AutoConfig.from_pretrained("bundled") == AlbertConfig.from_pretrained("bundled")

def answer(model: AlbertModel | None) -> albertkit.AlbertForMaskedLM: ...

assert not isinstance(albertkit.pipeline("fill-mask").model, AlbertModel)
assert not issubclass(AlbertConfig, AlbertModel)
assert inspect.isclass(AlbertModel) and copy.copy(AlbertModel) is AlbertModel
assert not hasattr(AlbertModel, "__wrapped__") and not hasattr(AlbertModel, "nosuch")
assert hasattr(AlbertModel, "from_config") and hasattr(AlbertModel, "from_pretrained")
"""

USES = """
uses = [
    lambda: AlbertModel(AlbertConfig()),
    lambda: AlbertModel.from_pretrained("bundled"),
    lambda: AutoModel.from_config(AlbertConfig()),
    lambda: type("Mine", (AlbertPreTrainedModel,), {}),
    lambda: AutoTokenizer.from_pretrained("bundled")("A text.", return_tensors="pt"),
    lambda: albertkit.finetune("text-classification", train="a.csv", output="run"),
    lambda: albertkit.pretrain(data="a", tokenizer="b", output="c"),
    lambda: pipeline("fill-mask", engine="torch"),
    lambda: pipeline("fill-mask").model(),
    lambda: pipeline("fill-mask").model.to("cuda"),
]
for use in uses:
    try:
        use()
    except MissingExtraError as error:
        print(error)
"""


NAMED = re.compile(
    r"""(?:optional|require)\("[\w.]+", extra="(\w+)"|(?:albertkit|'\.)\[([\w,]+)\]|\bextra\s+`(\w+)`"""
)
"""Mentions of an extra: in a call of `extras.optional` or `require`, in a command, or in a sentence."""


def test_extras_that_code_and_documentation_name_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [ROOT / "README.md"] + [
        file for room in ("docs", "examples", "src") for file in ROOT.glob(f"{room}/**/*")
    ]
    named = {
        (file.relative_to(ROOT), extra)
        for file in files
        if file.is_file() and file.suffix in (".py", ".md", ".ipynb")
        for groups in NAMED.findall(file.read_text())
        for extra in "".join(groups).split(",")
    }
    assert len(named) > 30
    unknown = [
        (file, extra) for file, extra in sorted(named) if extra not in project["optional-dependencies"]
    ]
    assert unknown == []


def test_without_torch_public_names_can_be_imported_and_name_the_extra_if_called() -> None:
    lines = run_without_torch(NAMES + USES).splitlines()
    command = "torch is not installed. To install it: pip install 'albertkit[torch]'"
    named = ["AlbertModel", "AlbertModel", "AutoModel", "AlbertPreTrainedModel"]
    training = command.replace("[torch]", "[train]")
    named_lines = [f"albertkit.{name}: {command}" for name in named]
    assert lines == [
        *named_lines, command, f"albertkit.finetune: {training}", f"albertkit.pretrain: {training}",
        command, command, command,
    ]  # fmt: skip


def test_attributes_that_need_torch_are_missing_without_it() -> None:
    """Check that `hasattr` works, and that the error names the extra."""
    code = """
from albertkit import AlbertModel, pipeline

model = pipeline("fill-mask").model
assert not hasattr(model, "nosuch") and not hasattr(AlbertModel, "nosuch")
assert getattr(model, "hf_device_map", None) is None
assert model.to("cpu") is model and model.to(device="cpu") is model and model.eval() is model
for owner in (model, AlbertModel):
    try:
        owner.parameters()
    except AttributeError as error:
        print(error)
"""
    command = "torch is not installed. To install it: pip install 'albertkit[torch]'"
    assert run_without_torch(code).splitlines() == [
        f"LightModel has no attribute 'parameters': {command}",
        f"no attribute 'parameters': albertkit.AlbertModel: {command}",
    ]


@pytest.mark.parametrize("verb", ["finetune", "pretrain"])
def test_training_commands_name_the_missing_extra(verb: str) -> None:
    arguments = {
        "finetune": ["text-classification", "--train", "a.csv", "--validation", "b.csv"],
        "pretrain": ["--data", "shards", "--tokenizer", "bundled"],
    }
    code = "from albertkit.cli.main import run; sys.argv[0] = 'albertkit'; run()"
    with pytest.raises(AssertionError, match=r"error: torch is not .* pip install 'albertkit\[train\]'"):
        run_without_torch(code, verb, *arguments[verb], "--output", "run")


def test_keras_classes_can_be_imported_without_keras() -> None:
    code = """
import sys
sys.modules["keras"] = None
import albertkit
assert hasattr(albertkit, "TFAlbertModel")
try:
    albertkit.TFAlbertModel.from_pretrained("bundled")
except albertkit.MissingExtraError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.startswith("albertkit.TFAlbertModel: albertkit.keras needs Keras 3")
    assert "pip install 'albertkit[keras]'" in result.stdout
