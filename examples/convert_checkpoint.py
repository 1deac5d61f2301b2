"""Convert a Hugging Face folder to Google's TensorFlow 1 format and back, with a report of every tensor.

    python examples/convert_checkpoint.py

You do not need TensorFlow, only the `convert` and `torch` extras. The same on the command line:

    albertkit convert bundled checkpoint --to tf1 --dtype float32 --verify
    albertkit convert checkpoint folder --verify
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from albertkit import AlbertForPreTraining, AutoTokenizer, convert


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        there = convert("bundled", folder / "tf1", to="tf1", dtype="float32", verify=True)
        back = convert(folder / "tf1", folder / "hf", verify=True)
        print("written:", *sorted(file.name for file in (folder / "tf1").iterdir()))
        for report in (there, back):
            print(f"\n{report.source_format} -> {report.target_format}: {len(report.tensors)} tensors")
            for tensor in report.tensors[:2]:
                print(f"  {tensor.source} -> {tensor.target}, {tensor.shape}")
            print(f"  outputs differ by {report.largest_difference:.1e}; left out: {len(report.unexpected)}")

        models = [AlbertForPreTraining.from_pretrained(model) for model in ("bundled", folder / "hf")]
        tokenizers = [AutoTokenizer.from_pretrained(model) for model in ("bundled", folder / "hf")]
    first, second = (model.state_dict() for model in models)
    equal = [torch.equal(first[tensor], second[tensor]) for tensor in first]
    print(f"\nafter both conversions, {sum(equal)} of {len(first)} tensors are equal bit for bit")
    ids = [tokenizer("The captain opened the door.").input_ids for tokenizer in tokenizers]
    print(f"the token ids are the same: {ids[0] == ids[1]}")


if __name__ == "__main__":
    main()
