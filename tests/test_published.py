"""Tests of the table of published checkpoints, and of warnings if a config or tokenizer contradicts it."""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from albertkit import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertModel,
    AlbertTokenizer,
    AlbertTokenizerFast,
    AutoTokenizer,
    pipeline,
)
from albertkit.conversion import convert
from albertkit.published import (
    CHECKPOINTS,
    REPOSITORIES,
    VOCABULARY_SHA256,
    ContradictionWarning,
    contradictions,
    find,
)
from albertkit.tokenization.model_file import vocab_lines

pytestmark = pytest.mark.light

SIZES = ("base", "large", "xlarge", "xxlarge")
NAMES = [f"albert-{size}-{version}" for version in ("v1", "v2") for size in SIZES]


def test_every_published_model_under_both_its_names() -> None:
    assert list(CHECKPOINTS) == NAMES
    assert {name: f"albert/{name}" for name in NAMES} == REPOSITORIES
    assert AlbertConfig.pretrained_config_archive_map == REPOSITORIES
    for name in NAMES:
        assert find(name) is find(f"albert/{name}") is CHECKPOINTS[name]
        archive = name.replace("-", "_") + ".tar.gz"
        assert find(Path("some/where") / archive) is CHECKPOINTS[name]
        _, size, version = name.split("-")
        assert AlbertConfig.preset(size, version=version) == AlbertConfig(**CHECKPOINTS[name].config)  # type: ignore[arg-type]
    for other in ("albert-base", "someone/albert-base-v2", "./albert-base-v2", "bundled"):
        assert find(other) is None


def test_the_published_vocabulary_has_its_hash(shared: Path) -> None:
    content = (shared / "data" / "spiece.model").read_bytes()
    assert hashlib.sha256(content).hexdigest() == VOCABULARY_SHA256
    # The lines for Julia are the lines of the published 30k-clean.vocab, byte for byte.
    lines = "".join(f"{line}\n" for line in vocab_lines(content))
    assert (
        hashlib.sha256(lines.encode()).hexdigest()
        == "1de4ad94a1b98f5f5f2c75af0f52bc85714d67b8578aa8f7650521bb123335c0"
    )


def test_contradictions_cause_a_warning_unless_overridden() -> None:
    values = AlbertConfig.preset("base", version="v1", hidden_act="gelu", hidden_dropout_prob=0).to_dict()
    message = contradictions("albert/albert-base-v1", values)
    assert "hidden_act is 'gelu', but the model was trained with 'gelu_new'" in message
    assert "hidden_dropout_prob is 0, but the model was trained with 0.1" in message
    assert message.endswith("pass hidden_act='gelu_new', hidden_dropout_prob=0.1")
    assert "hidden_act" not in contradictions("albert-base-v1", values, settled={"hidden_act"})
    assert contradictions("someone/model", values) == ""
    assert contradictions("albert-base-v2", AlbertConfig.preset("base").to_dict()) == ""
    same = AlbertConfig.preset("base", hidden_act="gelu_pytorch_tanh").to_dict()
    assert contradictions("albert-base-v2", same) == ""


def hub_cache(folder: Path, repository: str, config: AlbertConfig, model: AlbertModel | None) -> Path:
    """Write a cache of the hub with one repository, as a download does, and return its folder."""
    root = folder / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0" * 40)
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    if model is not None:
        model.save_pretrained(snapshot)
    (snapshot / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
}


def test_loading_a_config_warns_unless_overrides_agree(tmp_path: Path) -> None:
    published = AlbertConfig.preset("base", version="v1", hidden_act="gelu")  # as on the hub
    cache = hub_cache(tmp_path, "albert/albert-base-v1", published, None)
    with pytest.warns(
        ContradictionWarning, match=r"albert-base-v1 contradict .*hidden_act is 'gelu'"
    ) as caught:
        assert AlbertConfig.from_pretrained("albert-base-v1", cache_dir=cache).hidden_act == "gelu"
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = AlbertConfig.from_pretrained("albert-base-v1", cache_dir=cache, hidden_act="gelu_new")
    assert config == AlbertConfig.preset("base", version="v1")


def test_loading_a_model_warns_of_each_contradiction(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config = AlbertConfig(**SMALL)
    cache = hub_cache(tmp_path, "albert/albert-base-v2", config, AlbertModel(config))
    with pytest.warns(ContradictionWarning, match="contradict the published model") as caught:
        AlbertModel.from_pretrained("albert/albert-base-v2", cache_dir=cache, hidden_dropout_prob=0.1)
    assert caught[0].filename == __file__
    (message,) = [str(warning.message) for warning in caught]
    assert all(f"{name} is {value}, but" in message for name, value in SMALL.items())
    assert "dropout" not in message
    with warnings.catch_warnings():  # a config argument prevents the warning
        warnings.simplefilter("error")
        model = AlbertModel.from_pretrained(
            "albert/albert-base-v2", cache_dir=cache, config=config, hidden_dropout_prob=0.1
        )
    assert model.config.hidden_dropout_prob == 0.1


def test_a_pipeline_warns_too(tiny_vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    AlbertForMaskedLM(AlbertConfig(**{**SMALL, "vocab_size": 500})).save_pretrained("albert-base-v2")
    AlbertTokenizer(tiny_vocabulary).save_pretrained("albert-base-v2")
    with pytest.warns(ContradictionWarning) as caught:
        pipeline("fill-mask", "albert-base-v2", device="cpu")
    assert [("hidden_size is 16" in str(warning.message)) for warning in caught] == [True, False]
    assert "the SHA-256 of spiece.model" in str(caught[1].message)


def test_a_conversion_reports_contradictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    AlbertModel(AlbertConfig(**SMALL)).save_pretrained("albert-base-v2")
    (note,) = [note for note in convert("albert-base-v2", "out").notes if "contradict" in note]
    assert "hidden_size is 16, but the model was trained with 768" in note
    AlbertModel(AlbertConfig(**SMALL)).save_pretrained("mine")
    assert not [note for note in convert("mine", "other").notes if "contradict" in note]


def test_a_tokenizer_under_a_published_name(
    tiny_vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    AlbertTokenizer(tiny_vocabulary, do_lower_case=False).save_pretrained("albert-base-v2")
    for cls in (AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer):
        with pytest.warns(ContradictionWarning, match="contradict the published model") as caught:
            cls.from_pretrained("albert-base-v2")
        (message,) = [str(warning.message) for warning in caught]
        assert "do_lower_case is False, but the model was trained with True" in message
        digest = hashlib.sha256(tiny_vocabulary.read_bytes()).hexdigest()
        assert f"the SHA-256 of spiece.model is '{digest}'" in message
        assert message.endswith("pass do_lower_case=True")
        assert caught[0].filename == __file__


def test_the_published_tokenizer_causes_no_warning(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    AlbertTokenizer(shared / "data" / "spiece.model").save_pretrained("albert-base-v2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AutoTokenizer.from_pretrained("albert-base-v2")
