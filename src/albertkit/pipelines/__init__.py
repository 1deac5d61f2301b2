"""Pipelines: pass texts and get answers in the formats of `transformers`.

    fill = pipeline("fill-mask")                     # the bundled model
    fill("The nurse opened the [MASK].", top_k=3)  # [{score, token, token_str, sequence}, ...]

Texts of similar length share a batch. The answers keep the order of the texts and do not depend on the batch.
"""

from albertkit.pipelines.core import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]
