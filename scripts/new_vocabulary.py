"""Give a pretrained model another vocabulary and more positions, to continue its pretraining.

    python scripts/new_vocabulary.py MODEL TOKENIZER OUTPUT [--positions 256]

A piece that both vocabularies have keeps its embedding and its bias. Another piece starts with the mean
embedding of the old pieces of its text, and with their lowest bias, because it is rarer than each of them.
Further positions start as copies of the second half of the old ones, so attention to neighbors works there
from the start. All other weights stay.
"""

import argparse
from pathlib import Path

import torch
from pages import command_line

from albertkit import AlbertForPreTraining, AlbertTokenizer


def old_pieces(piece: str, old: AlbertTokenizer, ids: dict[str, int]) -> list[int]:
    """Return the old ids of the text of a new piece."""
    if piece in ids:
        return [ids[piece]]
    pieces = old.tokenize(piece.replace("▁", " ").strip())
    if not piece.startswith("▁") and pieces[:1] == ["▁"]:  # the tokenizer marks the start of the text
        pieces = pieces[1:]
    return [ids.get(name, ids["<unk>"]) for name in pieces] or [ids["<unk>"]]


def with_vocabulary(
    model: AlbertForPreTraining, old: AlbertTokenizer, new: AlbertTokenizer, positions: int
) -> AlbertForPreTraining:
    """Return the model for the new tokenizer."""
    ordered = sorted(new.get_vocab().items(), key=lambda item: item[1])
    ids = old.get_vocab()
    sources = [old_pieces(piece, old, ids) for piece, _ in ordered]
    kept = model.config.max_position_embeddings
    second_half = torch.arange(kept // 2, kept).repeat(positions)
    places = torch.cat([torch.arange(kept), second_half])[:positions]
    values = model.state_dict()
    for name, value in values.items():
        if name.endswith(("word_embeddings.weight", "decoder.weight")):
            values[name] = torch.stack([value[ids].mean(dim=0) for ids in sources])
        elif name.endswith(("predictions.bias", "decoder.bias")):
            values[name] = torch.stack([value[ids].min() for ids in sources])
        elif name.endswith("position_embeddings.weight"):
            values[name] = value[places]
    config = model.config.replace(vocab_size=len(ordered), max_position_embeddings=positions)
    changed = AlbertForPreTraining(config)
    changed.load_state_dict(values)
    return changed


def main() -> None:
    """Write the model with the new tokenizer."""
    parser: argparse.ArgumentParser = command_line(__doc__)
    parser.add_argument("model", help="name or folder of the pretrained model")
    parser.add_argument("tokenizer", help="folder of the new tokenizer")
    parser.add_argument("output", type=Path, help="new folder")
    parser.add_argument("--positions", type=int, help="maximum length (default: as before)")
    arguments = parser.parse_args()
    if arguments.output.exists():
        raise SystemExit(f"{arguments.output} exists. Choose another folder.")
    model = AlbertForPreTraining.from_pretrained(arguments.model).float()
    old = AlbertTokenizer.from_pretrained(arguments.model)
    new = AlbertTokenizer.from_pretrained(arguments.tokenizer)
    positions = arguments.positions or model.config.max_position_embeddings
    with_vocabulary(model, old, new, positions).save_pretrained(arguments.output)
    new.save_pretrained(arguments.output)
    same = len(new.get_vocab().keys() & old.get_vocab().keys())
    print(f"{same:,} of {len(new.get_vocab()):,} pieces are in both vocabularies")


if __name__ == "__main__":
    main()
