"""Compute the attention of every layer and head for a text, and the change of its vectors by layer.

In ALBERT, layers share their weights: the same function is applied to a text again and again. The change of
the vectors in a layer shows how far they have converged.

Shapes: T tokens, N heads of a layer, L executed layers, H hidden.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.names import executed_layers
from albertkit.engines.engine import BatchScores, Engine, Job, Row, check_rows, every_token, plan
from albertkit.engines.light_model import LightModel, Model
from albertkit.engines.onnx import OnnxNetwork
from albertkit.errors import DataError, TooLongError, short
from albertkit.files import atomic_path, check_new_file, finite, json_text
from albertkit.hub import BUNDLED
from albertkit.pipelines import pipeline
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.special_tokens import Parsing

SCALE = 65_535
"""Probabilities are stored as integers from 0 to this number, accurate to 8e-6."""
SHARED = ("shared.css", "shared.js")
"""Files of `html/` that other pages also use; the script is an ES module there."""
_SCRIPTS = ("shared.js", "figures.js", "drawing.js", "attention.js")
_MARK = re.compile(r"\{\{(policy|style|script|data)\}\}")
MOST_PROBABILITIES = 6_000_000
"""Maximum of L * N * T * T in a report: a page of 16 MB, 204 tokens of ALBERT-base."""

_TINY = 1e-8  # instead of a length of 0


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """The attention of one executed layer."""

    stored: int
    """Number of the stored layer whose weights it uses, from 1."""
    heads: list[int]
    """Numbers of its heads, from 1."""
    probabilities: np.ndarray
    """(N, T, T) float32: the attention probability of each token (row) for each token (column)."""


@dataclass(frozen=True, repr=False, eq=False)
class AttentionReport:
    """The attention and the vectors of one text. A notebook shows it as a page to click through."""

    text: str
    text_pair: str | None
    tokens: list[str]
    segments: list[int]
    """0, or 1 for the tokens of the second text and its [SEP]."""
    special: list[bool]
    """Whether a token is [CLS] or [SEP]."""
    cut: int
    """Number of removed tokens, if the text was truncated."""
    layers: list[AttentionLayer]
    cosine_to_previous: np.ndarray
    """(L, T): cosine of each token's vector after a layer with the vector before the layer."""
    cosine_to_last: np.ndarray
    """(L + 1, T): cosine of each token's vector with the vector after the last layer, from the embeddings
    on."""

    model: str = ""
    """Name of the model."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain numbers, rounded to five decimals."""
        return {"model": self.model, **self._figures(_rounded)}

    def page_figures(self) -> dict[str, Any]:
        """Return everything as browsers read it: the attention of a layer (N, T, T) as base64."""
        return {"scale": SCALE, **self._figures(encoded)}

    def to_html(self) -> str:
        """Return an HTML page with the attention of every layer and head."""
        folder = files("albertkit.inspection") / "html"
        shared_style, own_style, frame, *scripts = (
            (folder / name).read_text(encoding="utf-8")
            for name in ("shared.css", "attention.css", "attention.html", *_SCRIPTS)
        )
        style = shared_style + own_style
        script = re.sub("^export ", "", "\n".join(scripts), flags=re.MULTILINE)
        # The page loads nothing. Its policy lists the hashes of script and style, and forbids the rest.
        policy = (
            "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
        )
        data = json_text(finite({"model": self.model, **self.page_figures()}))
        # The text cannot end the script element, or begin a comment.
        data = re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", data)
        parts = {"policy": policy, "style": style, "script": script, "data": data}
        return _MARK.sub(lambda match: parts[match[1]], frame)

    def _figures(self, encode: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        return {
            "text": self.text,
            "text_pair": self.text_pair,
            "tokens": self.tokens,
            "segments": self.segments,
            "special": self.special,
            "cut": self.cut,
            "cosine_to_previous": _rounded(self.cosine_to_previous),
            "cosine_to_last": _rounded(self.cosine_to_last),
            "layers": [
                {"stored": layer.stored, "heads": layer.heads, "attention": encode(layer.probabilities)}
                for layer in self.layers
            ],
        }

    def __repr__(self) -> str:
        heads = max((len(layer.heads) for layer in self.layers), default=0)
        return (
            f"Attention of {self.model} on {len(self.tokens)} tokens: {len(self.layers)} layers of {heads} "
            "heads"
        )

    def _repr_html_(self) -> str:
        return f"<iframe srcdoc='{escape(self.to_html())}' width='100%' height='900'></iframe>"


def inspect_attention(
    text: str,
    pair: str | None = None,
    *,
    model: str | Path | Model = BUNDLED,
    tokenizer: str | Path | TokenizerBase | None = None,
    html: str | Path | None = None,
    truncation: bool = False,
    device: str | None = None,
) -> AttentionReport:
    """Compute the attention of each token by layer and head, and how the hidden states change by layer.

    Args:
        text: the text to inspect.
        pair: the second text, to inspect a pair of texts.
        model: folder or hub name of a model, or a loaded model.
        tokenizer: the tokenizer of a loaded model.
        html: new file for an HTML page with the attention of every layer and head. In Python also None,
            to write no page.
        truncation: whether to truncate a text that is too long instead of raising an error.
        device: "cpu", "cuda" and so on; None for the best available device.

    Returns:
        The attention probabilities by layer, and the similarity of the hidden states of different layers. In
        a notebook, it is displayed as the HTML page.

    Raises:
        DataError: a text is empty, or too long for the model or for a report; or the HTML file exists.
    """
    if html is not None:
        check_new_file(Path(html))
    encode = pipeline("feature-extraction", model, tokenizer=tokenizer, device=device)
    report = compute_attention(encode.model, encode.tokenizer, text, pair, truncation=truncation)
    result = replace(report, model=str(model) if isinstance(model, str | Path) else type(model).__name__)
    if html is not None:
        with atomic_path(Path(html)) as temporary:
            temporary.write_text(result.to_html(), encoding="utf-8")
    return result


def compute_attention(
    model: Model,
    tokenizer: TokenizerBase,
    text: str,
    text_pair: str | None = None,
    *,
    truncation: bool = False,
    parse_special_tokens: Parsing | None = None,
    engine: Engine | None = None,
) -> AttentionReport:
    """Run one text, or a pair, through the model and record its attention and vectors.

    `engine` computes like an `InsideEngine` of the model; None creates one.
    """
    for one in [text] if text_pair is None else [text, text_pair]:
        if not isinstance(one, str) or not one.strip():
            raise DataError(f"the text is {short(one)}. Expected a string with at least one word.")
    config = model.config
    readable = config.max_position_embeddings
    shown = isqrt(MOST_PROBABILITIES // (config.depth * config.num_attention_heads))
    (row,) = text_rows(
        tokenizer,
        [text if text_pair is None else (text, text_pair)],
        max_length=min(readable, shown) if truncation else readable,
        truncation="longest_first" if truncation else False,
        parse_special_tokens=parse_special_tokens,
    )
    if len(row.input_ids) > shown:
        raise TooLongError(
            f"the text {short(text)} has {len(row.input_ids)} tokens, but for this model's attention "
            f"({config.depth} layers of {config.num_attention_heads} heads) at most {shown} can be shown.",
            len(row.input_ids),
            shown,
        )
    (inside,) = (engine or InsideEngine(model)).run([row])
    executed = executed_layers(config, "")
    distinct = list(dict.fromkeys(executed))
    stored = [distinct.index(layer) for layer in executed]
    length, depth, heads = len(row.input_ids), len(executed), config.num_attention_heads
    sizes = [heads * length**2] * depth
    *attentions, to_previous, to_last = np.split(inside[0], np.cumsum([*sizes, depth * length]))
    return AttentionReport(
        text=text,
        text_pair=text_pair,
        tokens=tokenizer.convert_ids_to_tokens(row.input_ids),
        segments=row.token_type_ids,
        special=[token_id in (tokenizer.cls_token_id, tokenizer.sep_token_id) for token_id in row.input_ids],
        cut=row.cut,
        layers=[
            AttentionLayer(
                stored=number + 1,
                heads=list(range(1, heads + 1)),
                probabilities=probabilities.reshape(heads, length, length),
            )
            for number, probabilities in zip(stored, attentions, strict=True)
        ],
        cosine_to_previous=to_previous.reshape(depth, length),
        cosine_to_last=to_last.reshape(depth + 1, length),
    )


class InsideEngine(Engine):
    """Computes the numbers of a report for each row, concatenated as (1, K) in float32.

    They are the attention of each layer, N * T * T; the cosines with the previous layer, L * T; and the
    cosines with the last layer, (L + 1) * T. Every row is a batch of its own, and all its tokens are read.

    Args:
        model: a light model, which ONNX Runtime computes; or a PyTorch model, which is called on its device.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the attentions and cosines of one row after the other, (1, K) each."""
        del job
        model = self.model
        for number, row in enumerate(rows):
            if isinstance(model, LightModel) and model.module is None:
                attentions, states = _run(model, row)
            else:
                attentions, states = _call(model, row)
            unit = states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), _TINY)
            to_previous, to_last = (unit[1:] * unit[:-1]).sum(-1), (unit * unit[-1]).sum(-1)
            parts = [part.ravel() for part in (*attentions, to_previous, to_last)]
            yield [number], [np.concatenate(parts)[None]]


def _run(model: LightModel, row: Row) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the attentions (N, T, T) of each layer and the states (L + 1, T, H). Use ONNX Runtime."""
    check_rows([row], model.config)
    network = OnnxNetwork(model, int8=False, inside=True)
    (batch,) = plan([row], every_token, len(row.input_ids), None)
    ((last, *inside),) = network.run(batch)
    depth = model.config.depth
    return [layer[0] for layer in inside[depth:]], np.stack([*inside[:depth], last])


def _call(model: Model, row: Row) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the same as `_run`. Call the encoder of a PyTorch model."""
    from albertkit.engines.torch import evaluating, pad_batch

    encoder: Any = model.base_model
    with evaluating(encoder):
        batch = pad_batch([row], pad_token_id=encoder.config.pad_token_id, device=encoder.device)
        found = encoder(**batch, output_attentions=True, output_hidden_states=True, return_dict=True)
        attentions, states = (
            [layer[0].float().cpu().numpy() for layer in layers]
            for layers in (found.attentions, found.hidden_states)
        )
    return attentions, np.stack(states)


def _rounded(values: np.ndarray) -> Any:
    return values.astype(np.float64).round(5).tolist()


def encoded(probabilities: np.ndarray) -> str:
    """Return (N, T, T) as base64 of little-endian 16-bit numbers, one after the other."""
    return base64.b64encode(np.rint(probabilities * SCALE).astype("<u2").tobytes()).decode("ascii")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
