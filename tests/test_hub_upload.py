"""Tests of `push_to_hub` of models, tokenizers and pipelines, with a hub on localhost."""

from typing import Any

import numpy as np
import pytest
from hub_server import READER, SECRET, Hub, commit_of
from huggingface_hub import ModelCard

import albertkit
from albertkit.errors import ConfigError, UploadError
from albertkit.hub import BUNDLED
from albertkit.hub_upload import upload
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light

MODEL = {"config.json", "model.safetensors"}
TOKENIZER = {"special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer_config.json"}


def test_a_pipeline_is_pushed_and_answers_from_the_hub(hub: Hub) -> None:
    fill = albertkit.pipeline("fill-mask")
    url = fill.push_to_hub("org/filled", token=SECRET, private=True)
    assert url == f"{hub.url}/org/filled/commit/{commit_of('org/filledmain 1')}"
    assert set(hub.repositories["org/filled"]["main"]) == MODEL | TOKENIZER
    assert hub.created == {"org/filled": True}
    assert hub.messages == ["Upload Pipeline"]
    again = albertkit.pipeline("fill-mask", "org/filled")
    text = "She opened the [MASK]."
    assert again(text) == fill(text)


def test_a_pushed_tokenizer_keeps_the_other_files(hub: Hub) -> None:
    tokenizer = AlbertTokenizer.from_pretrained(BUNDLED)
    tokenizer.push_to_hub("org/words", token=SECRET, commit_message="New words", tags=["books", "albert"])
    files = hub.repositories["org/words"]["main"]
    assert set(files) == TOKENIZER | {"README.md"}
    assert hub.messages == ["New words"]
    card: Any = ModelCard(files["README.md"].decode())
    assert card.text.strip() == "no model here"
    assert card.data.tags == ["books", "albert"]
    tokenizer.push_to_hub("org/words", token=SECRET, tags=["albert", "english"], max_shard_size="5MB")
    card = ModelCard(hub.repositories["org/words"]["main"]["README.md"].decode())
    assert card.data.tags == ["books", "albert", "english"]
    tokenizer.push_to_hub("org/words", token=SECRET, tags="poems")
    card = ModelCard(hub.repositories["org/words"]["main"]["README.md"].decode())
    assert card.data.tags == ["books", "albert", "english", "poems"]
    loaded = AlbertTokenizer.from_pretrained("org/words")
    assert loaded("A quiet evening.") == tokenizer("A quiet evening.")


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("problem", ["broken", "unreachable"])
def test_a_card_that_cannot_be_downloaded_is_not_replaced(hub: Hub, problem: str, is_cached: bool) -> None:
    tokenizer = AlbertTokenizer.from_pretrained(BUNDLED)
    tokenizer.push_to_hub("org/words", token=SECRET, tags=["books"])
    if is_cached:
        tokenizer.push_to_hub("org/words", token=SECRET, tags=["books"])
    files = hub.repositories["org/words"]["main"]
    files["README.md"] += b"\nA long text."
    card = files["README.md"]
    getattr(hub, problem).add("README.md")
    with pytest.raises(UploadError, match=r"could not upload to 'org/words': "):
        tokenizer.push_to_hub("org/words", token=SECRET, tags=["albert"])
    assert files["README.md"] == card


def test_a_config_is_pushed(hub: Hub) -> None:
    config = albertkit.AlbertConfig.from_pretrained(BUNDLED)
    config.push_to_hub("org/config", token=SECRET, max_shard_size="5MB")  # no effect, as in transformers
    assert set(hub.repositories["org/config"]["main"]) == {"config.json"}
    assert albertkit.AlbertConfig.from_pretrained("org/config").hidden_size == 256


def test_a_light_model_goes_to_a_branch_or_a_pull_request(hub: Hub) -> None:
    model = albertkit.pipeline("fill-mask").model
    model.push_to_hub("org/new", token=SECRET, revision="trial")
    assert set(hub.repositories["org/new"]["trial"]) == MODEL
    assert hub.repositories["org/new"]["main"] == {}
    url = model.push_to_hub("org/new", token=SECRET, create_pr=True, commit_description="Why")
    assert url == f"{hub.url}/org/new/discussions/1"
    # A name without an organization belongs to the account of the token.
    model.push_to_hub("mine", token=SECRET)
    assert set(hub.repositories["me/mine"]["main"]) == MODEL


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("org/new", {"token": "wrong"}, "401"),
        ("org/new", {"token": READER}, "403"),
        ("a/b/c", {"token": SECRET}, "HFValidationError"),
    ],
)
def test_errors_of_the_hub(hub: Hub, name: str, options: Any, message: str) -> None:
    with pytest.raises(UploadError, match=r"could not upload to '.*': ") as raised:
        upload({"config.json": b"{}"}, name, **options)
    assert message in str(raised.value)
    assert hub.created == {}


def test_offline_and_without_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.stop()
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        with pytest.raises(UploadError, match="could not upload to 'org/new': "):
            upload({"config.json": b"{}"}, "org/new", token=SECRET)


@pytest.mark.parametrize("kind", ["model", "tokenizer", "pipeline"])
def test_an_unknown_option_uploads_nothing(hub: Hub, kind: str) -> None:
    """Check that a misspelled `private` does not create a public repository."""
    fill = albertkit.pipeline("fill-mask")
    pushed = {"model": fill.model, "tokenizer": fill.tokenizer, "pipeline": fill}[kind]
    for name, help_ in (("privat", r"Did you mean 'private'\?"), ("license", "Expected some of")):
        expected = rf"push_to_hub: unknown argument '{name}'\. {help_}"
        with pytest.raises(ConfigError, match=expected):
            pushed.push_to_hub("org/secret", token=SECRET, **{name: True})
    assert hub.created == {}
    assert hub.requests == []


def test_the_current_weights_of_the_model_are_pushed(hub: Hub) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'albertkit[torch]'")
    model = albertkit.AlbertForMaskedLM.from_pretrained(BUNDLED)
    with torch.no_grad():
        model.albert.embeddings.word_embeddings.weight[7] = 0.5
    model.push_to_hub("org/changed", token=SECRET, max_shard_size="6MB")
    files = hub.repositories["org/changed"]["main"]
    assert "model.safetensors.index.json" in files
    assert max(len(content) for name, content in files.items() if name.endswith(".safetensors")) < 6.1e6
    loaded = albertkit.AlbertForMaskedLM.from_pretrained("org/changed")
    row = loaded.albert.embeddings.word_embeddings.weight[7].detach().numpy()
    assert np.all(row == 0.5)
