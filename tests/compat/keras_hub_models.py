"""Compare the encoder and the tokenizer of every folder with a pooler and a head with keras-hub.

keras-hub converts only the encoder and its pooler, and writes presets in a different layout. Its tokenizer
does not normalize texts, so the script converts them to lower case and removes accents, as ALBERT does.
"""

import os
import unicodedata
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras_hub
import numpy as np
from comparing import Case, check_opens, compare_ids, read_cases, report_limit, report_versions, work_folder


def normalized(text: str) -> str:
    """Return a text in lower case and without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter)).lower()


def open_ours(case: Case) -> dict[str, Any]:
    """Open a folder as a preset, and return the outputs of the backbone."""
    tokenizer = keras_hub.models.AlbertTokenizer.from_preset(str(case.folder))
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    compare_ids(case, lambda text: [first, *np.asarray(tokenizer(normalized(text))).tolist(), last])
    backbone = keras_hub.models.AlbertBackbone.from_preset(str(case.folder))
    inputs = {
        "token_ids": case.inputs["input_ids"],
        "padding_mask": case.inputs["attention_mask"],
        "segment_ids": case.inputs["token_type_ids"],
    }
    outputs = backbone(inputs, training=False)
    return {
        "last_hidden_state": np.asarray(outputs["sequence_output"]),
        "pooler_output": np.asarray(outputs["pooled_output"]),
    }


if __name__ == "__main__":
    report_versions("keras-hub", "keras", "jax", "tensorflow-text")
    for case in read_cases(work_folder()):
        if case.head == "AlbertModel":
            report_limit(case, "expects tensor names with the prefix of models with a head")
        elif "pooler_output" in case.encoder:
            check_opens(case, open_ours, case.encoder)
        elif case.encoder:
            report_limit(case, "converts only models that have a pooler")
        else:
            report_limit(case, "has no head for this task")
