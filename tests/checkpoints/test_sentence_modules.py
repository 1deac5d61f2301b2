"""Folders of sentence-transformers, written by hand: read without torch, as plain NumPy says; and back."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from safetensors.numpy import save_file

from albertkit import pipeline
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.sentence_modules import ACTIVATIONS, sentence_modules
from albertkit.checkpoints.shapes import expected_shapes
from albertkit.config import AlbertConfig
from albertkit.conversion import convert
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, ConfigError, DataError
from albertkit.export.onnx import export_onnx
from albertkit.reference import forward
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.web.export import export_web

pytestmark = pytest.mark.light

HIDDEN = 32
PACKAGE = "sentence_transformers.models."
TEXTS = ["The captain opened an empty house.", "My sister lost the silver key in 1847.", "Rain."]
CONFIG = AlbertConfig(
    vocab_size=500,
    embedding_size=16,
    hidden_size=HIDDEN,
    num_attention_heads=4,
    intermediate_size=48,
    num_hidden_layers=2,
    max_position_embeddings=64,
    architectures=["AlbertModel"],
)
Write = Callable[..., Path]


class Encoder:
    """A random encoder, and the states that its definition computes."""

    def __init__(self, vocabulary: Path, *, lower: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.tokenizer = AlbertTokenizer(vocabulary, do_lower_case=lower)
        self.weights = {
            name: rng.normal("orm.weight" in name, 0.4, shape).astype(np.float32)
            for name, shape in expected_shapes("AlbertModel", CONFIG).items()
        }

    def write(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)
        write_folder(folder, CONFIG.to_dict(), self.weights)

    def states(self, text: str, *, most: int = 64) -> np.ndarray:
        """Return the states (T, H) of a text, its end cut off."""
        encoded = self.tokenizer(text, truncation=True, max_length=most)
        inputs = {name: np.array([ids]) for name, ids in encoded.items()}
        return forward("AlbertModel", CONFIG, self.weights, **inputs)["last_hidden_state"][0]


@pytest.fixture(scope="module")
def encoder(tiny_vocabulary: Path) -> Encoder:
    return Encoder(tiny_vocabulary)


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def list_modules(folder: Path, *kinds: str, inner: str = "", package: str = PACKAGE) -> None:
    """Write modules.json; `inner` is the folder of the transformer."""
    paths = [inner, *(f"{number}_{kind}" for number, kind in enumerate(kinds, start=1))]
    named = ("Transformer", *kinds)
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{package}{kind}"}
        for number, (kind, path) in enumerate(zip(named, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)


def pooling_of(*flags: str) -> dict[str, Any]:
    return {"word_embedding_dimension": HIDDEN} | {f"pooling_mode_{one}": one in flags for one in PLAIN}


@pytest.fixture
def write(encoder: Encoder, tmp_path: Path) -> Write:
    """Write a folder of a transformer and these further modules."""

    def written(*kinds: str, pooling: Any = None, inner: str = "", **options: Any) -> Path:
        folder = tmp_path / "model"
        encoder.write(folder / inner)
        list_modules(folder, *kinds, inner=inner, **options)
        write_json(folder / "1_Pooling" / "config.json", pooling or pooling_of("mean_tokens"))
        return folder

    return written


def add_dense(
    folder: Path,
    *,
    inputs: int = HIDDEN,
    size: int = 5,
    activation: str = "Tanh",
    bias: bool = True,
    **more: Any,
) -> dict[str, np.ndarray]:
    """Write a Dense module; return its matrices."""
    rng = np.random.default_rng(1)
    tensors = {"linear.weight": rng.normal(0, 0.5, (size, inputs)).astype(np.float32)}
    if bias:
        tensors["linear.bias"] = rng.normal(0, 0.5, size).astype(np.float32)
    if more.get("use_residual") and size != inputs:
        tensors["residual.weight"] = rng.normal(0, 0.5, (size, inputs)).astype(np.float32)
    path = next(name for name in ACTIVATIONS if name.endswith(f".{activation}"))
    config = {"in_features": inputs, "out_features": size, "bias": bias, "activation_function": path} | more
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def vectors(folder: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    return np.stack(pipeline("feature-extraction", folder)(texts, return_tensors="np", **options))


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


# --- pooling --------------------------------------------------------------------------------------

PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls_token": lambda states: states[0],
    "max_tokens": lambda states: np.max(states, axis=0),
    "mean_tokens": lambda states: np.sum(states, axis=0) / len(states),
    "mean_sqrt_len_tokens": lambda states: np.sum(states, axis=0) / math.sqrt(len(states)),
    "weightedmean_tokens": lambda states: np.average(states, axis=0, weights=range(1, len(states) + 1)),
    "lasttoken": lambda states: states[-1],
}


@pytest.mark.parametrize("flag", PLAIN)
def test_pooling(write: Write, encoder: Encoder, flag: str) -> None:
    folder = write("Pooling", pooling=pooling_of(flag))
    same(vectors(folder), [PLAIN[flag](encoder.states(text)) for text in TEXTS])


def test_current_names_and_several_poolings(write: Write, encoder: Encoder) -> None:
    pooling = {"embedding_dimension": HIDDEN, "pooling_mode": ["mean", "cls"], "include_prompt": True}
    folder = write("Pooling", "Normalize", pooling=pooling, package="sentence_transformers.base.modules.x.")
    expected = []
    for text in TEXTS:
        vector = np.concatenate([PLAIN[flag](encoder.states(text)) for flag in ("mean_tokens", "cls_token")])
        expected.append(vector / np.linalg.norm(vector))
    same(vectors(folder), expected)
    # Older flags have an order of their own.
    write_json(folder / "1_Pooling" / "config.json", pooling_of("cls_token", "mean_tokens"))
    same(vectors(folder, normalize=True), np.roll(expected, HIDDEN, axis=1))


# --- what follows ---------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Tanh": np.tanh,
    "Identity": lambda values: values,
    "ReLU": lambda values: values * (values > 0),
    "GELU": lambda values: np.array([one * (1 + math.erf(one / math.sqrt(2))) / 2 for one in values]),
    "SiLU": lambda values: values / (1 + np.exp(-values)),
    "Sigmoid": lambda values: 1 / (1 + np.exp(-values)),
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_dense(write: Write, encoder: Encoder, activation: str) -> None:
    folder = write("Pooling", "Dense", "Dropout", "Normalize")
    tensors = add_dense(folder / "2_Dense", activation=activation)
    expected = []
    for text in TEXTS:
        mean = PLAIN["mean_tokens"](encoder.states(text))
        vector = FUNCTIONS[activation](tensors["linear.weight"] @ mean + tensors["linear.bias"])
        expected.append(vector / np.linalg.norm(vector))
    same(vectors(folder), expected)
    # Another pooling than the model's stands alone.
    unit = [state / np.linalg.norm(state) for state in (encoder.states(text)[0] for text in TEXTS)]
    same(vectors(folder, pooling="cls"), unit)


def test_residual_connections_and_normalized_inputs(write: Write, encoder: Encoder) -> None:
    folder = write("Pooling", "Normalize", "Dense", "Dense")
    small = add_dense(folder / "4_Dense", bias=False, use_residual=True)
    square = add_dense(folder / "3_Dense", size=HIDDEN, activation="Identity", use_residual=True)
    expected = []
    for text in TEXTS:
        mean = PLAIN["mean_tokens"](encoder.states(text))
        vector = mean / np.linalg.norm(mean)
        vector = square["linear.weight"] @ vector + square["linear.bias"] + vector
        expected.append(np.tanh(small["linear.weight"] @ vector) + small["residual.weight"] @ vector)
    same(vectors(folder), expected)


# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    ["sentence_bert_config.json", "sentence_albert_config.json", "tokenizer", "tokenizer, null"],
)
def test_maximum_length(write: Write, encoder: Encoder, where: str) -> None:
    folder = write("Pooling")
    if where.endswith("null"):
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": None, "do_lower_case": False})
    if where.startswith("tokenizer"):
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        write_json(folder / "tokenizer_config.json", settings | {"model_max_length": 6})
    else:
        write_json(folder / where, {"max_seq_length": 6, "do_lower_case": False})
    expected = [PLAIN["mean_tokens"](encoder.states(text, most=6)) for text in TEXTS]
    same(vectors(folder, truncation=True), expected)
    same(
        vectors(folder, truncation=True, max_length=5)[0],
        PLAIN["mean_tokens"](encoder.states(TEXTS[0], most=5)),
    )
    with pytest.raises(DataError, match="maximum is 6"):
        vectors(folder)


def test_lower_case(tiny_vocabulary: Path, tmp_path: Path) -> None:
    encoder = Encoder(tiny_vocabulary, lower=False)
    encoder.write(tmp_path)
    list_modules(tmp_path, "Pooling")
    write_json(tmp_path / "1_Pooling" / "config.json", pooling_of("mean_tokens"))
    texts, mean = TEXTS[:2], PLAIN["mean_tokens"]
    same(vectors(tmp_path, texts), [mean(encoder.states(text)) for text in texts])
    write_json(tmp_path / "sentence_bert_config.json", {"do_lower_case": True})
    same(vectors(tmp_path, texts), [mean(encoder.states(text.lower())) for text in texts])


def test_prompts(write: Write, encoder: Encoder) -> None:
    folder = write("Pooling")
    prompts = {"prompts": {"query": "search: ", "document": "a text: "}, "default_prompt_name": "document"}
    write_json(folder / "config_sentence_transformers.json", prompts)

    def expected(prompt: str, first: int = 0) -> list[np.ndarray]:
        return [PLAIN["mean_tokens"](encoder.states(prompt + text)[first:]) for text in TEXTS]

    same(vectors(folder), expected("a text: "))
    same(vectors(folder, prompt_name="query"), expected("search: "))
    same(vectors(folder, prompt=""), expected(""))
    with pytest.raises(
        ConfigError,
        match=r"'quary' \(did you mean 'query'\?\)\. Expected a prompt of the model: 'query', 'document'",
    ):
        vectors(folder, prompt_name="quary")
    with pytest.raises(ConfigError, match="Expected only one of them"):
        vectors(folder, prompt_name="query", prompt="q: ")
    # INSTRUCTOR's models do not pool the prompt.
    write_json(folder / "1_Pooling" / "config.json", pooling_of("mean_tokens") | {"include_prompt": False})
    tokens = len(encoder.tokenizer("search: ")["input_ids"]) - 1
    same(vectors(folder, prompt_name="query"), expected("search: ", tokens))
    for flag, mode in (("cls_token", lambda states: states[tokens]), ("weightedmean_tokens", None)):
        write_json(folder / "1_Pooling" / "config.json", pooling_of(flag) | {"include_prompt": False})
        states = encoder.states("search: " + TEXTS[0])
        places = range(tokens + 1, len(states) + 1)
        wanted = mode(states) if mode else np.average(states[tokens:], axis=0, weights=places)
        same(vectors(folder, TEXTS[:1], prompt_name="query")[0], wanted)


# --- layouts, verbs, errors -----------------------------------------------------------------------


def test_transformer_in_a_sub_folder(write: Write, encoder: Encoder, run: Run, tmp_path: Path) -> None:
    folder = write("Pooling", inner="0_Transformer", pooling=pooling_of("max_tokens"))
    expected = [PLAIN["max_tokens"](encoder.states(text)) for text in TEXTS]
    same(vectors(folder), expected)
    assert run("convert", folder, tmp_path / "flat").status == 0
    assert (tmp_path / "flat" / "config.json").is_file()
    same(vectors(tmp_path / "flat"), expected)


def test_verbs(write: Write, run: Run, tmp_path: Path) -> None:
    folder = write("Pooling", "Dense")
    add_dense(folder / "2_Dense")
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", prompts)
    expected = vectors(folder)
    assert expected.shape == (3, 5)
    printed = run("embed", *TEXTS, "--model", folder, "--json").json
    same([one["embedding"] for one in printed], expected)
    printed = run("embed", *TEXTS, "--model", folder, "--prompt-name", "query", "--json").json
    same([one["embedding"] for one in printed], vectors(folder, prompt_name="query"))
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    target = tmp_path / "vectors.jsonl"
    files = ("--input", tmp_path / "texts.jsonl", "--output", target)
    result = run("predict", "sentence-embedding", "--model", folder, *files)
    assert result.status == 0, result.errors
    same([json.loads(line)["vector"] for line in target.read_text().splitlines()], expected)


def test_a_cross_encoder_is_no_model_for_vectors(write: Write, encoder: Encoder) -> None:
    folder = write("Pooling")
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    same(pipeline("feature-extraction", folder)(TEXTS[0]), encoder.states(TEXTS[0])[None])


def damaged(write: Write, name: str) -> Path:
    kinds = {"module": ("Pooling", "LSTM"), "first": ("Pooling",), "none": ("Normalize",)}.get(
        name, ("Pooling", "Dense")
    )
    folder = write(*kinds)
    if "Dense" in kinds:
        add_dense(folder / "2_Dense")
        config = json.loads((folder / "2_Dense" / "config.json").read_text())
        changes = {
            "activation": {"activation_function": "my.Function"},
            "input": {"module_input_name": "token_embeddings"},
            "shape": {"out_features": 6},
        }
        write_json(folder / "2_Dense" / "config.json", config | changes.get(name, {}))
    if name == "pooling":
        write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "median"})
    if name == "first":
        write_json(folder / "modules.json", [{"type": "sentence_transformers.models.BoW", "path": ""}])
    if name == "outside":
        write_json(
            folder / "modules.json", [{"type": "sentence_transformers.models.Pooling", "path": "../.."}]
        )
    if name == "json":
        (folder / "modules.json").write_text("{")
    if name == "prompt":
        write_json(folder / "config_sentence_transformers.json", {"default_prompt_name": "query"})
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "module",
            "modules.json: the module 'LSTM' follows the pooling.*Expected Dense, Dropout or Normalize",
        ),
        ("first", "the first module is 'BoW'.*Expected Transformer"),
        ("none", "the second module is 'Normalize'.*Expected Pooling"),
        ("activation", "activation_function is 'my.Function'.*Expected torch"),
        ("input", "module_input_name is 'token_embeddings'.*Expected sentence_embedding"),
        ("shape", r"linear.weight \(5, 32\).*Expected linear.weight \(6, 32\)"),
        ("pooling", r"pooling is 'median'. Expected one of mean, cls, max"),
        ("outside", "'../..' leads out of the folder"),
        ("json", "modules.json is damaged: expected a list of modules"),
        ("prompt", "default_prompt_name is 'query'.*Expected the name of a prompt"),
    ],
)
def test_what_cannot_be_read_is_an_error(write: Write, name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        pipeline("feature-extraction", damaged(write, name))


# --- writing --------------------------------------------------------------------------------------


def test_what_is_written_is_what_was_read(write: Write, run: Run, tmp_path: Path) -> None:
    folder = write("Pooling", "Normalize", "Dense", "Normalize", pooling={"pooling_mode": ["max", "cls"]})
    add_dense(folder / "3_Dense", size=7, inputs=2 * HIDDEN, use_residual=True)
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": True})
    expected = vectors(folder)
    assert expected.shape == (3, 7)
    pipeline("feature-extraction", folder).save_pretrained(tmp_path / "saved")
    assert run("convert", folder, tmp_path / "converted").status == 0
    for name in ("saved", "converted"):
        np.testing.assert_array_equal(vectors(tmp_path / name), expected)
        modules = sentence_modules(LightModel.from_pretrained(tmp_path / name, "AlbertModel").config)
        assert modules is not None
        assert (modules.max_length, modules.lower_case, modules.similarity) == (40, True, "dot")
        assert dict(modules.prompts) == {"query": "search: "}
        listed = json.loads((tmp_path / name / "modules.json").read_text())
        assert [one["path"] for one in listed] == ["", "1_Pooling", "2_Normalize", "3_Dense", "4_Normalize"]


def test_the_config_alone_is_enough(encoder: Encoder, tmp_path: Path) -> None:
    """The folders of earlier fine-tunings have no modules.json."""
    folder = tmp_path / "model"
    encoder.write(folder)
    entries = {"sentence_pooling": "max", "sentence_normalize": True, "task_settings": {"max_length": 9}}
    write_folder(folder, CONFIG.to_dict() | entries, encoder.weights)
    expected = vectors(folder, truncation=True)
    pipeline("feature-extraction", folder).save_pretrained(folder)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_max_tokens"]
    assert not pooling["pooling_mode_mean_tokens"]
    write_folder(tmp_path / "plain", CONFIG.to_dict(), encoder.weights)
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling", "2_Normalize"):
        (folder / name).rename(tmp_path / "plain" / name)
    encoder.tokenizer.save_pretrained(tmp_path / "plain")
    np.testing.assert_array_equal(vectors(tmp_path / "plain", truncation=True), expected)


def test_another_model_over_it_has_no_modules(write: Write, encoder: Encoder) -> None:
    folder = write("Pooling")
    write_folder(folder, CONFIG.to_dict(), encoder.weights)
    assert not (folder / "modules.json").exists()
    same(pipeline("feature-extraction", folder)(TEXTS[0]), encoder.states(TEXTS[0])[None])


def test_exports_keep_the_modules(write: Write, tmp_path: Path) -> None:
    folder = write("Pooling", "Dense", pooling=pooling_of("max_tokens"))
    add_dense(folder / "2_Dense")
    export_onnx(folder, tmp_path / "exported")
    same(vectors(tmp_path / "exported"), vectors(folder))


def test_the_page_refuses_vectors_that_it_does_not_make(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertkit.web.export.check_npm", lambda: None)
    folder = write("Pooling", "Normalize", pooling=pooling_of("max_tokens"))
    with pytest.raises(ConfigError, match=r"need pooling by max\. Expected only the pooling mean or cls"):
        export_web(folder, tmp_path / "web", page=True)
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    with pytest.raises(ConfigError, match=r"need pooling by max, the default prompt 'query'\. Expected"):
        export_web(folder, tmp_path / "web", page=True)


def test_the_browser_export_says_how_vectors_are_made(write: Write, tmp_path: Path) -> None:
    def note(folder: Path) -> str:
        shutil.rmtree(tmp_path / "web", ignore_errors=True)
        report = export_web(folder, tmp_path / "web", int8=False)
        (found,) = [one for one in report.notes if "vectors" in one]
        return found

    folder = write("Pooling", pooling=pooling_of("cls_token"))
    assert note(folder).endswith('{ pooling: "cls", normalize: false } to its feature-extraction pipeline')
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    assert note(folder).endswith("pipeline, and prepend 'search: ' to each text")
    write_json(folder / "1_Pooling" / "config.json", pooling_of("cls_token") | {"include_prompt": False})
    assert "need a pooling without the prompt, which transformers.js does not compute" in note(folder)
    shutil.rmtree(folder)
    folder = write("Pooling", "Dense", pooling=pooling_of("max_tokens"))
    add_dense(folder / "2_Dense")
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    assert "need pooling by max, Dense after the pooling, texts in lower case, which" in note(folder)


def test_formats_without_modules_say_so(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("crc32c", reason="needs crc32c: pip install 'albertkit[convert]'")
    report = convert(write("Pooling"), tmp_path / "google", to="tf1")
    assert any("modules of sentence-transformers were left out" in note for note in report.notes)
