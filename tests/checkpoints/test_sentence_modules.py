"""Tests of reading the modules of sentence-transformers: vectors equal those of definitions in NumPy."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from json_lines import write_json_lines
from sentence_folders import (
    HIDDEN,
    POOLINGS,
    TEXTS,
    Encoder,
    WriteModel,
    add_dense,
    list_modules,
    pooling_of,
    same,
    vectors,
    write_json,
)

from albertkit import pipeline
from albertkit.errors import CheckpointError, ConfigError, DataError

pytestmark = pytest.mark.light


# --- pooling --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["weightedmean_tokens", "lasttoken"])
def test_unsupported_poolings(write_model: WriteModel, flag: str) -> None:
    folder = write_model("Pooling", pooling={f"pooling_mode_{flag}": True})
    with pytest.raises(CheckpointError, match=r"the pooling is .* Supported: mean, cls, max"):
        vectors(folder)


@pytest.mark.parametrize("flag", POOLINGS)
def test_pooling(write_model: WriteModel, encoder: Encoder, flag: str) -> None:
    folder = write_model("Pooling", pooling=pooling_of(flag))
    same(vectors(folder), [POOLINGS[flag](encoder.states(text)) for text in TEXTS])


def test_current_names(write_model: WriteModel, encoder: Encoder) -> None:
    pooling = {"embedding_dimension": HIDDEN, "pooling_mode": "cls", "include_prompt": True}
    folder = write_model(
        "Pooling", "Normalize", pooling=pooling, package="sentence_transformers.base.modules.x."
    )
    states = [encoder.states(text)[0] for text in TEXTS]
    same(vectors(folder), [state / np.linalg.norm(state) for state in states])


# --- Dense and Normalize --------------------------------------------------------------------------


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Tanh": np.tanh,
    "Identity": lambda values: values,
    "ReLU": lambda values: values * (values > 0),
    "GELU": lambda values: np.array([value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in values]),
    "SiLU": lambda values: values / (1 + np.exp(-values)),
    "Sigmoid": lambda values: 1 / (1 + np.exp(-values)),
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_dense(write_model: WriteModel, encoder: Encoder, activation: str) -> None:
    folder = write_model("Pooling", "Dense", "Dropout", "Normalize")
    tensors = add_dense(folder / "2_Dense", activation=activation)
    expected = []
    for text in TEXTS:
        mean = POOLINGS["mean_tokens"](encoder.states(text))
        vector = FUNCTIONS[activation](tensors["linear.weight"] @ mean + tensors["linear.bias"])
        expected.append(vector / np.linalg.norm(vector))
    same(vectors(folder), expected)
    # With another pooling, the pipeline skips the Dense module and only normalizes.
    unit = [state / np.linalg.norm(state) for state in (encoder.states(text)[0] for text in TEXTS)]
    same(vectors(folder, pooling="cls"), unit)


def test_residual_connections_and_normalized_inputs(write_model: WriteModel, encoder: Encoder) -> None:
    folder = write_model("Pooling", "Normalize", "Dense", "Dense")
    small = add_dense(folder / "4_Dense", bias=False, use_residual=True)
    square = add_dense(folder / "3_Dense", size=HIDDEN, activation="Identity", use_residual=True)
    expected = []
    for text in TEXTS:
        mean = POOLINGS["mean_tokens"](encoder.states(text))
        vector = mean / np.linalg.norm(mean)
        vector = square["linear.weight"] @ vector + square["linear.bias"] + vector
        expected.append(np.tanh(small["linear.weight"] @ vector) + small["residual.weight"] @ vector)
    same(vectors(folder), expected)


# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["sentence_bert_config.json", "sentence_albert_config.json", "tokenizer", "tokenizer, null"]
)
def test_maximum_length(write_model: WriteModel, encoder: Encoder, where: str) -> None:
    folder = write_model("Pooling")
    if where.endswith("null"):
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": None, "do_lower_case": False})
    if where.startswith("tokenizer"):
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        write_json(folder / "tokenizer_config.json", settings | {"model_max_length": 6})
    else:
        write_json(folder / where, {"max_seq_length": 6, "do_lower_case": False})
    expected = [POOLINGS["mean_tokens"](encoder.states(text, max_length=6)) for text in TEXTS]
    same(vectors(folder, truncation=True), expected)
    same(
        vectors(folder, truncation=True, max_length=5)[0],
        POOLINGS["mean_tokens"](encoder.states(TEXTS[0], max_length=5)),
    )
    with pytest.raises(DataError, match="maximum is 6"):
        vectors(folder)


def test_lower_case(tiny_vocabulary: Path, tmp_path: Path) -> None:
    encoder = Encoder(tiny_vocabulary, lower=False)
    encoder.write(tmp_path)
    list_modules(tmp_path, "Pooling")
    write_json(tmp_path / "1_Pooling" / "config.json", pooling_of("mean_tokens"))
    texts, mean = TEXTS[:2], POOLINGS["mean_tokens"]
    same(vectors(tmp_path, texts), [mean(encoder.states(text)) for text in texts])
    write_json(tmp_path / "sentence_bert_config.json", {"do_lower_case": True})
    same(vectors(tmp_path, texts), [mean(encoder.states(text.lower())) for text in texts])


def test_prompts(write_model: WriteModel, encoder: Encoder) -> None:
    folder = write_model("Pooling")
    prompts = {"prompts": {"query": "search: ", "document": "a text: "}, "default_prompt_name": "document"}
    write_json(folder / "config_sentence_transformers.json", prompts)

    def expected(prompt: str) -> list[np.ndarray]:
        return [POOLINGS["mean_tokens"](encoder.states(prompt + text)) for text in TEXTS]

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
    # The INSTRUCTOR models do not pool the tokens of the prompt.
    write_json(folder / "1_Pooling" / "config.json", pooling_of("mean_tokens") | {"include_prompt": False})
    with pytest.raises(CheckpointError, match="include_prompt is False"):
        vectors(folder)


# --- layouts, commands, errors --------------------------------------------------------------------


def test_transformer_in_a_sub_folder(
    write_model: WriteModel, encoder: Encoder, run: Run, tmp_path: Path
) -> None:
    folder = write_model("Pooling", inner="0_Transformer", pooling=pooling_of("max_tokens"))
    expected = [POOLINGS["max_tokens"](encoder.states(text)) for text in TEXTS]
    same(vectors(folder), expected)
    assert run("convert", folder, tmp_path / "flat").status == 0
    assert (tmp_path / "flat" / "config.json").is_file()
    same(vectors(tmp_path / "flat"), expected)


def test_commands(write_model: WriteModel, run: Run, tmp_path: Path) -> None:
    folder = write_model("Pooling", "Dense")
    add_dense(folder / "2_Dense")
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", prompts)
    expected = vectors(folder)
    assert expected.shape == (3, 5)
    printed = run("embed", *TEXTS, "--model", folder, "--json").json
    same([row["embedding"] for row in printed], expected)
    printed = run("embed", *TEXTS, "--model", folder, "--prompt-name", "query", "--json").json
    same([row["embedding"] for row in printed], vectors(folder, prompt_name="query"))
    write_json_lines(tmp_path / "texts.jsonl", ({"text": text} for text in TEXTS))
    target = tmp_path / "vectors.jsonl"
    files = ("--input", tmp_path / "texts.jsonl", "--output", target)
    result = run("predict", "--model", folder, *files)
    assert result.status == 0, result.errors
    same([json.loads(line)["vector"] for line in target.read_text().splitlines()], expected)


def test_a_cross_encoder_has_no_sentence_vectors(write_model: WriteModel, encoder: Encoder) -> None:
    folder = write_model("Pooling")
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    same(pipeline("feature-extraction", folder)(TEXTS[0]), encoder.states(TEXTS[0])[None])


def damaged(write_model: WriteModel, name: str) -> Path:
    """Write a folder with an error."""
    kinds = {"module": ("Pooling", "LSTM"), "first": ("Pooling",), "none": ("Normalize",)}.get(
        name, ("Pooling", "Dense")
    )
    folder = write_model(*kinds)
    if "Dense" in kinds:
        add_dense(folder / "2_Dense", inputs=HIDDEN + (name == "size"))
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
    if name == "dimensions":
        write_json(folder / "config_sentence_transformers.json", {"truncate_dim": 0})
    if name == "prompt":
        write_json(folder / "config_sentence_transformers.json", {"default_prompt_name": "query"})
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "module",
            "modules.json: a module after the pooling is 'LSTM'. Supported: Dense, Dropout",
        ),
        ("first", "the first module is 'BoW'. Supported: Transformer"),
        ("none", "the second module is 'Normalize'. Supported: Pooling"),
        ("activation", "activation_function is 'my.Function'. Supported: torch"),
        ("input", "module_input_name is 'token_embeddings'. Supported: sentence_embedding"),
        ("shape", r"'linear.weight': \(5, 32\).*describes .*'linear.weight': \(6, 32\)"),
        ("size", "a Dense module expects size 33, but gets size 32"),
        ("pooling", "the pooling is 'median'. Supported: mean, cls, max"),
        ("outside", "'../..' leads out of the folder"),
        ("json", "modules.json is damaged"),
        ("prompt", "default_prompt_name is 'query'"),
        ("dimensions", "truncate_dim is 0"),
    ],
)
def test_modules_that_cannot_be_read(write_model: WriteModel, name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        pipeline("feature-extraction", damaged(write_model, name))
