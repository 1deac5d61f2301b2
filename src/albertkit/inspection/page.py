"""An attention report as a self-contained HTML page, which loads nothing from anywhere else.

The page combines the files of `html/` with the figures as JSON. User input reaches the browser only as data:
it is inserted as text, never as markup. A policy in the page lists the hashes of its script and its style and
forbids everything else, including requests.
"""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

import numpy as np

from albertkit.files import finite, json_text

SCALE = 65_535
"""Probabilities are stored as integers from 0 to this number, accurate to 8e-6."""
SHARED = ("shared.css", "shared.js")
"""Files of `html/` that other pages also use; the script is an ES module there."""
_SCRIPTS = ("shared.js", "figures.js", "drawing.js", "attention.js")
_MARK = re.compile(r"\{\{(policy|style|script|data)\}\}")


def attention_page(figures: dict[str, Any]) -> str:
    """Return the page for the figures of an attention report, with the name of the model for the heading."""
    folder = files("albertkit.inspection") / "html"
    shared_style, own_style, frame, *scripts = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("shared.css", "attention.css", "attention.html", *_SCRIPTS)
    )
    style = shared_style + own_style
    script = re.sub("^export ", "", "\n".join(scripts), flags=re.MULTILINE)
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    )
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "data": _as_json(figures),
    }
    return _MARK.sub(lambda found: parts[found[1]], frame)


def encoded(probabilities: np.ndarray) -> str:
    """Return (N, T, T) as base64 of little-endian 16-bit numbers, one after the other."""
    return base64.b64encode(np.rint(probabilities * SCALE).astype("<u2").tobytes()).decode("ascii")


def _as_json(value: dict[str, Any]) -> str:
    """Return JSON that HTML cannot take for the end of its script element, or for a comment."""
    text = json_text(finite(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
