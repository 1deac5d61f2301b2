"""Compare explicit attention with PyTorch's fused kernel: forward and backward, in bfloat16 on a CPU.

    python benchmarks/attention.py [--tokens 4096] [--runs 5] [--json]

The benchmark checks the rule in `modeling/layers.py::_trains_faster_eagerly`. It measures processor time with
one thread and 6 heads of size 64.
"""

import time
from collections.abc import Callable

import torch
from report import alternate, command_line, compare, show

from albertkit.config import AlbertConfig
from albertkit.modeling import layers

HIDDEN, HEADS = 384, 6
LENGTHS = (32, 64, 128, 256)


def timed(
    attention: layers.AlbertAttention, length: int, tokens: int, limit: int
) -> Callable[[], list[float]]:
    """Return a function that measures the seconds of one step.

    Sequences of at most `limit` tokens use explicit attention, longer ones the fused kernel.
    """
    hidden_states = torch.randn(tokens // length, length, HIDDEN, dtype=torch.bfloat16, requires_grad=True)

    def measure() -> list[float]:
        layers.EAGER_TRAINING_LENGTH = limit
        begin = time.process_time()
        attention(hidden_states)[0].sum().backward()
        return [time.process_time() - begin]

    return measure


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__, runs=5)
    parser.add_argument("--tokens", type=int, default=4096, help="number of tokens in a batch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = AlbertConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    attention = layers.AlbertAttention(config).to(torch.bfloat16)
    figures = []
    for length in LENGTHS:
        sides = [timed(attention, length, args.tokens, limit) for limit in (length, 0)]
        (ours,), (fused,) = alternate(args.runs, *sides)
        figures.append(
            compare(f"attention with its projections, {length} tokens (s)", ours, fused, at_most=1)
        )
    show("attention, bf16, one thread", figures, as_json=args.json, against="fused kernel")


if __name__ == "__main__":
    main()
