"""Open the folders of `albertkit export onnx` and their tokenizers with optimum and onnxruntime."""

from typing import Any

import torch
from comparing import Case, check_opens, compare_ids, read_cases, report_versions, work_folder
from optimum import onnxruntime
from transformers import AutoTokenizer

CLASSES = {
    "AlbertModel": "ORTModelForFeatureExtraction",
    "AlbertForPreTraining": "ORTModelForCustomTasks",
    "AlbertForMaskedLM": "ORTModelForMaskedLM",
    "AlbertForSequenceClassification": "ORTModelForSequenceClassification",
    "AlbertForTokenClassification": "ORTModelForTokenClassification",
    "AlbertForQuestionAnswering": "ORTModelForQuestionAnswering",
    "AlbertForMultipleChoice": "ORTModelForMultipleChoice",
}


def open_ours(case: Case) -> dict[str, Any]:
    """Open a folder and its tokenizer, and return the outputs."""
    tokenizer = AutoTokenizer.from_pretrained(case.onnx)
    compare_ids(case, lambda text: tokenizer(text)["input_ids"])
    model = getattr(onnxruntime, CLASSES[case.head]).from_pretrained(case.onnx)
    outputs = model(**{name: torch.from_numpy(values) for name, values in case.inputs.items()})
    return {name: values.numpy() for name, values in outputs.items()}


if __name__ == "__main__":
    report_versions("optimum", "optimum-onnx", "onnxruntime", "transformers")
    for case in read_cases(work_folder()):
        check_opens(case, open_ours)
