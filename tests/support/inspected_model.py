"""Texts, outputs and page data that the tests of inspection share."""

import json
import re

import torch

TEXT = "The captain carried a silver key before dinner."
SECOND = "My sister found the river!"
TEMPLATE = "The [X] found the [MASK] before dinner."


def outputs(model, tokenizer, *texts: str):
    """Return the output of the model for a text or a pair, with attentions and hidden states."""
    with torch.no_grad():
        return model(
            **tokenizer(*texts, return_tensors="pt"), output_attentions=True, output_hidden_states=True
        )


def page_data(page: str) -> dict:
    """Return the data that the script of a page reads."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)
