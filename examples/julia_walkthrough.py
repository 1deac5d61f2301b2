"""Load a checkpoint of ALBERT in Julia (TextAnalysis.jl) and print the output of each stage of the model.

    python examples/julia_walkthrough.py MODEL.tfbson SPIECE.MODEL

Without arguments, the script writes the bundled model in the Julia format and loads that file.

The steps are those of the article that introduced the Julia model: load the config, the weights and the
vocabulary from a file of BSON.jl, make cased ids without special tokens, pad a batch, and look at every stage
of the pretrained model. As in Julia, the printed ids begin at 1, and the shapes begin with the features.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from albertkit import AlbertForPreTraining, AlbertTokenizer, convert

SENTENCES = [
    "God is Great! I won a lottery.",
    "If all their conversations in the three months he had been coming to the diner were put together, "
    "it was doubtful that they would make a respectable paragraph.",
    "She had the job she had planned for the last three years.",
]


def main(weights: str, vocabulary: str) -> None:
    model = AlbertForPreTraining.from_pretrained(weights)
    config = model.config
    print(f"config   {config.num_hidden_layers} layers of width {config.hidden_size}")
    print(f"weights  {len(model.state_dict())} arrays")

    # The article's tokenizer keeps the case and adds no special tokens.
    tokenizer = AlbertTokenizer(vocabulary, do_lower_case=False, keep_accents=True)
    print(f"vocab    {len(tokenizer):,} pieces, such as {tokenizer.convert_ids_to_tokens([0, 1, 2])}")
    batch = tokenizer(
        SENTENCES,
        add_special_tokens=False,
        padding=True,
        truncation=True,
        max_length=config.max_position_embeddings,
        return_tensors="pt",
    )
    first = batch["input_ids"][0][batch["attention_mask"][0] == 1]
    print(f"\nids of the first sentence, from 1: {(first + 1).tolist()}")
    # The model of a test can have fewer embeddings than the vocabulary has pieces.
    input_ids = batch["input_ids"] % config.vocab_size
    segments = torch.zeros_like(input_ids)
    print(f"batch, tokens x sentences: {tuple(input_ids.T.shape)}")

    with torch.no_grad():
        embedded = model.albert.embeddings(input_ids, segments)
        show("embedding", embedded)
        output = model.albert(input_ids, batch["attention_mask"], segments)
        show("transformer", output.last_hidden_state)
        show("pooler", output.pooler_output)
        show("masked-word head", model.predictions(output.last_hidden_state))
        show("sentence-order head", model.sop_classifier(output.pooler_output).log_softmax(-1))


def show(stage: str, values: torch.Tensor) -> None:
    """Print the shape of a stage's output, in Julia's order of dimensions, and the first values."""
    first = " ".join(f"{value:.4f}" for value in values.flatten()[:4].tolist())
    print(f"{stage:<20} {'x'.join(map(str, reversed(values.shape)))} (features first)   {first} ...")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    elif len(sys.argv) == 1:
        with TemporaryDirectory() as folder:
            convert("bundled", Path(folder) / "bundled.tfbson", dtype="float32")
            vocabulary = AlbertTokenizer.from_pretrained("bundled").save_vocabulary(folder)[0]
            main(f"{folder}/bundled.tfbson", vocabulary)
    else:
        sys.exit(__doc__)
