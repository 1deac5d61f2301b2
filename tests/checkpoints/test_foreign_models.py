"""Tests of models in TensorFlow and Julia files: pipelines, commands, and errors of other classes."""

import pickle
from pathlib import Path
from shutil import copytree

import pytest
from command_line import Run

from albertkit import AlbertTokenizer, AutoConfig, AutoTokenizer, pipeline
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.folder import WEIGHTS_FILE
from albertkit.checkpoints.formats import load_config, read
from albertkit.checkpoints.julia import write
from albertkit.conversion import convert
from albertkit.errors import ConfigError, ModelNotFoundError, TokenizerError

pytestmark = pytest.mark.light

MASKED = "The captain opened the [MASK]."
TO = {"julia": "model.tfbson", "tf1": "tf1/model.ckpt-best"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the bundled model in two formats."""
    pytest.importorskip("bson")
    root = tmp_path_factory.mktemp("models")
    convert("bundled", root / "model.tfbson")
    convert("bundled", root / "hf")
    return root


@pytest.fixture(scope="module", params=TO)
def model(request: pytest.FixtureRequest, folder: Path) -> Path:
    """Return the bundled model in the format of another program."""
    if request.param == "tf1":
        pytest.importorskip("crc32c")
        convert("bundled", folder / "tf1", to="tf1")
    return folder / TO[request.param]


def test_pipelines_give_the_answers_of_the_bundled_model(model: Path) -> None:
    expected = pipeline("fill-mask")(MASKED)
    fill = pipeline("fill-mask", model)
    assert fill(MASKED) == expected
    assert pipeline(None, model)(MASKED) == expected  # with the task of the config
    assert pipeline("fill-mask", model, tokenizer="bundled")(MASKED) == expected
    assert fill.tokenizer.name_or_path == fill.model.name_or_path == str(model)


def test_a_folder_may_have_the_ending_of_a_julia_file(folder: Path, tmp_path: Path) -> None:
    model = copytree(folder / "hf", tmp_path / "run.bson")
    assert pipeline("fill-mask", model)(MASKED) == pipeline("fill-mask")(MASKED)


def test_the_tokenizer_can_be_saved_and_pickled(model: Path, tmp_path: Path) -> None:
    tokenizer = pipeline("fill-mask", model).tokenizer
    expected = tokenizer(MASKED)
    tokenizer.save_pretrained(tmp_path)
    for other in (pickle.loads(pickle.dumps(tokenizer)), AutoTokenizer.from_pretrained(tmp_path)):
        assert other(MASKED) == expected


def test_commands(model: Path, folder: Path, run: Run) -> None:
    command = ["fill-mask", MASKED, "--json", "--model"]
    assert run(*command, model).json == run(*command, "bundled").json
    inspected = run("inspect", model, "--json")
    assert inspected.status == 0, inspected.errors
    assert inspected.json[0]["tokenizer"]["pieces"] == 10240


def test_exports_of_a_julia_file_contain_the_tokenizer(folder: Path, tmp_path: Path, run: Run) -> None:
    result = run("export", "onnx", folder / "model.tfbson", tmp_path / "exported")
    assert result.status == 0, result.errors
    assert pipeline("fill-mask", tmp_path / "exported")(MASKED)[0]["token_str"]


def test_a_file_without_a_vocabulary_needs_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    source = read(folder / "model.tfbson")
    model = tmp_path / "bare.tfbson"
    write(model, Checkpoint("julia", source.config, source.tensors, []))
    with pytest.raises(ModelNotFoundError, match=r"bare\.tfbson has no vocabulary. Pass the tokenizer"):
        pipeline("fill-mask", model)
    assert pipeline("fill-mask", model, tokenizer="bundled")(MASKED) == pipeline("fill-mask")(MASKED)


def test_a_weight_file_of_a_folder_is_not_a_model(folder: Path) -> None:
    message = "is a file. Expected the folder of a model"
    file = folder / "hf" / WEIGHTS_FILE
    for load in (AutoConfig.from_pretrained, load_config, lambda path: pipeline("fill-mask", path)):
        with pytest.raises(ModelNotFoundError, match=message):
            load(file)
    with pytest.raises(ModelNotFoundError, match=message):
        AutoConfig.from_pretrained(folder / "model.tfbson")  # only models and pipelines open this file
    with pytest.raises(TokenizerError, match="is damaged"):
        AutoTokenizer.from_pretrained(file)


def test_a_config_file_may_have_any_name(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "config.copy"
    other.write_bytes((folder / "hf" / "config.json").read_bytes())
    assert AutoConfig.from_pretrained(other) == AutoConfig.from_pretrained(folder / "hf")


def test_invalid_names() -> None:
    for load in (
        AutoConfig.from_pretrained,
        AutoTokenizer.from_pretrained,
        load_config,
        AlbertTokenizer.from_pretrained,
    ):
        with pytest.raises(ConfigError, match=r"received None \(NoneType\). Expected a folder or a hub name"):
            load(None)
        for name in ("~no-such-user/model", "a" * 5000):
            with pytest.raises(ModelNotFoundError):
                load(name)
