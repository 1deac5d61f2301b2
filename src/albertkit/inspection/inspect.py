"""Inspect a named or loaded model: `inspect_attention`."""

from dataclasses import replace
from pathlib import Path

from albertkit.engines.light_model import Model
from albertkit.files import atomic_path, check_new_file
from albertkit.hub import BUNDLED
from albertkit.inspection.attention import AttentionReport, compute_attention
from albertkit.pipelines import pipeline
from albertkit.tokenization.base import TokenizerBase


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
        html: new file for an HTML page with the attention of every layer and head; None to write no page.
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
    result = replace(report, model=_name(model))
    if html is not None:
        with atomic_path(Path(html)) as temporary:
            temporary.write_text(result.to_html(), encoding="utf-8")
    return result


def _name(model: str | Path | Model) -> str:
    return str(model) if isinstance(model, str | Path) else type(model).__name__
