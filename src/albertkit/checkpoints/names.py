"""The one table of tensor names: ours, which are Hugging Face's, and what other writers call them.

Our name of a tensor is its path in the module tree, so a state dict needs no translation. A name without a
prefix belongs to the encoder (`embeddings.`, `encoder.`, `pooler.`); a model with a head holds the encoder
under `albert.` and its head beside it.
"""

BASE_PREFIX = "albert."

TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
"""Two names of one tensor -> the name it is stored under (ALBERT shares them; so do the files of others)."""
