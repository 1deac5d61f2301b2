"""Tests of names that resolve to folders: bundled models, local folders, downloads from a local hub."""

import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from hub_server import SECRET, Hub, commit_of, model_files
from packaging.version import Version

from albertkit.checkpoints.formats import locate
from albertkit.errors import ModelNotFoundError
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES, resolve
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light

PATTERNS = ("config.json", "*.safetensors")


def needs_hub(version: str, older: str) -> pytest.MarkDecorator:
    """Skip a test if huggingface_hub is older than a version; `older` says what an older one does."""
    found = huggingface_hub.__version__
    return pytest.mark.skipif(Version(found) < Version(version), reason=f"huggingface_hub {found} {older}")


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- the hub ------------------------------------------------------------------------------------


def test_resolve_downloads_only_files_that_match_the_patterns(hub: Hub) -> None:
    folder = resolve("org/model", patterns=PATTERNS)
    expected = model_files("main")
    del expected["pytorch_model.bin"]
    assert contents_of(folder) == expected


def test_locate_downloads_one_format_of_the_weights(hub: Hub) -> None:
    assert set(contents_of(locate("org/model"))) == {"config.json", "model.safetensors"}
    del hub.repositories["albert/albert-base-v2"]["main"]["model.safetensors"]
    assert set(contents_of(locate("albert-base-v2"))) == {"config.json", "pytorch_model.bin"}
    hub.stop()
    assert set(contents_of(locate("albert-base-v2"))) == {"config.json", "pytorch_model.bin"}


def test_published_short_name(hub: Hub) -> None:
    assert contents_of(resolve("albert-base-v2", patterns=("config.json",))) == {
        "config.json": model_files("base")["config.json"]
    }


def test_second_use_needs_no_server_and_no_second_download(hub: Hub) -> None:
    first = resolve("org/model", patterns=PATTERNS)
    hub.requests.clear()
    assert resolve("org/model", patterns=PATTERNS) == first
    assert not [request for request in hub.requests if request.startswith("GET /org/model/resolve")]
    hub.requests.clear()
    assert resolve("org/model", patterns=PATTERNS, local_files_only=True) == first
    assert hub.requests == []
    hub.stop()
    assert resolve("org/model", patterns=PATTERNS) == first


def test_a_model_and_its_tokenizer_come_from_the_hub(
    hub: Hub, tmp_path: Path, tokenizer: AlbertTokenizer
) -> None:
    torch = pytest.importorskip("torch")
    from random_models import save_random_model

    from albertkit.modeling.heads import AlbertForMaskedLM

    folder = save_random_model(AlbertForMaskedLM, tokenizer, tmp_path / "local")
    model = AlbertForMaskedLM.from_pretrained(folder)
    hub.repositories["org/albert"] = {"main": contents_of(folder)}
    downloaded = AlbertForMaskedLM.from_pretrained("org/albert")
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in downloaded.state_dict().items())
    encoded = AlbertTokenizer.from_pretrained("org/albert")("The captain [MASK].", return_tensors="pt")
    assert encoded.input_ids.tolist() == [tokenizer("The captain [MASK].")["input_ids"]]
    hub.stop()
    assert AlbertForMaskedLM.from_pretrained("org/albert").config.hidden_size == 32


def test_revisions_by_tag_and_by_commit(hub: Hub) -> None:
    by_tag = resolve("org/model", patterns=PATTERNS, revision="v1.0")
    by_commit = resolve("org/model", patterns=PATTERNS, revision=commit_of("org/modelv1.0"))
    assert by_tag == by_commit
    assert contents_of(by_tag)["config.json"] == b'{"label": "v1.0"}'
    assert contents_of(resolve("org/model", patterns=PATTERNS))["config.json"] == b'{"label": "main"}'


def test_token_opens_a_private_repository(hub: Hub) -> None:
    folder = resolve("org/secret", patterns=PATTERNS, token=SECRET)
    assert contents_of(folder)["config.json"] == b'{"label": "secret"}'


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("org/nothing", {}, "RepositoryNotFoundError"),
        ("org/secret", {"token": "hf_wrong"}, "401"),
        ("org/terms", {"token": SECRET}, "GatedRepoError"),
        ("org/model", {"revision": "v9"}, "at revision 'v9': RevisionNotFoundError"),
        ("org/model", {"local_files_only": True}, "LocalEntryNotFoundError"),
        ("org/words", {}, r"has no config.json or \*.safetensors"),
        ("org/mo del", {}, "HFValidationError"),
    ],
)
def test_errors_of_the_hub(hub: Hub, name: str, options: dict, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as error:
        resolve(name, patterns=PATTERNS, **options)
    assert repr(name) in str(error.value)


@needs_hub("1.0", "copies this constant when it is imported")
def test_offline_without_cache(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match=r"offline|disabled"):
        resolve("org/model", patterns=PATTERNS)
    assert hub.requests == []


def test_no_network(hub: Hub) -> None:
    hub.stop()
    with pytest.raises(ModelNotFoundError, match="Could not get 'org/model'"):
        resolve("org/model", patterns=PATTERNS)


@needs_hub("1.33", "returns a folder that lacks files; loading its weights then fails")
def test_an_incomplete_download_is_not_a_model(hub: Hub) -> None:
    hub.broken = {"model.safetensors"}
    for options in ({}, {"local_files_only": True}):
        with pytest.raises(ModelNotFoundError, match="Could not get 'org/model'"):
            resolve("org/model", patterns=PATTERNS, **options)
    hub.broken.clear()
    folder = resolve("org/model", patterns=PATTERNS)
    assert contents_of(folder)["model.safetensors"] == model_files("main")["model.safetensors"]


# --- folders ------------------------------------------------------------------------------------


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "model")
    assert resolve(folder, patterns=PATTERNS) == folder
    assert resolve(str(folder) + "/", patterns=PATTERNS) == folder
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/model", patterns=PATTERNS) == folder


def test_a_local_folder_has_priority_over_a_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "org" / "model")
    make_model(tmp_path / "albert-base-v2")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/model", patterns=PATTERNS) == Path("org/model")
    assert resolve("albert-base-v2", patterns=PATTERNS) == Path("albert-base-v2")


@pytest.mark.parametrize(
    "name",
    ["./x", "../x", "/tmp/no/such", "models/x/y/z", "org/model/", "~/nowhere", "a\\b", "C:\\models", "."],
)
def test_names_like_paths_send_no_request_to_the_hub(
    hub: Hub, name: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"no folder|is not the folder of one model"):
        resolve(name, patterns=PATTERNS)
    assert hub.requests == []


def test_the_error_for_a_run_that_has_not_finished_names_its_checkpoints(tmp_path: Path) -> None:
    for step in ("step-0000020", "step-0000100"):
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
        (tmp_path / "checkpoints" / step / "config.json").write_text("{}")
    expected = r"Pass one of them: checkpoints/step-0000020, checkpoints/step-0000100\.$"
    with pytest.raises(ModelNotFoundError, match=expected):
        resolve(tmp_path, patterns=PATTERNS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (Path("org/model"), "no folder 'org/model'"),
        ("", "no folder ''"),
        ("albert-bas-v2", "did you mean 'albert-base-v2'"),
        ("gpt", "named 'organization/model'"),
        ("x" * 5_000, "cannot be the name of a model"),
        ("~no-such-user-here/model", "cannot be the name of a model"),
    ],
)
def test_impossible_names(hub: Hub, name: str | Path, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        resolve(name, patterns=PATTERNS)
    assert hub.requests == []


def test_folder_of_models_lists_them(tmp_path: Path) -> None:
    make_model(tmp_path / "first")
    make_model(tmp_path / "second")
    with pytest.raises(ModelNotFoundError, match="Pass one of them: first, second"):
        resolve(tmp_path, patterns=PATTERNS)


@pytest.mark.parametrize("name", [BUNDLED, BUNDLED_SENTENCES])
def test_bundled_models_are_inside_the_package(name: str) -> None:
    import albertkit.hub

    folder = Path(albertkit.hub.__file__).parent / "assets" / name
    assert folder.is_dir()
    assert resolve(name, patterns=PATTERNS) == folder


def test_local_names_import_neither_torch_nor_the_hub_library(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    code = (
        "import sys; from albertkit.hub import resolve; "
        f"resolve({str(folder)!r}, patterns=('config.json',)); "
        "print({'torch', 'huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
