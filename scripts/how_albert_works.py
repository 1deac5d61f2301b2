"""Draw the pictures of docs/explanation/how-albert-works.md and write its table.

    python scripts/how_albert_works.py [--model bundled] [--deepest 8]

Parameters and operations follow from the published shapes. The rest is measured on the 200 cloze questions of
`cloze.jsonl`. After the last layer, the script applies the last set of weights again, as often as wanted. For
each number of layers, it measures how much the last layer changes the vectors and how many answers are right.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from cloze import Question, Score, read_questions, scores
from matplotlib.figure import Figure
from pages import command_line, write_table
from torch import Tensor
from torch.nn.functional import cosine_similarity

from albertkit import AlbertConfig, AlbertForMaskedLM, AutoTokenizer
from albertkit.files import atomic_path
from albertkit.footprint import Footprint, measure
from albertkit.tokenization.base import TokenizerBase

DOCS = Path(__file__).parents[1] / "docs" / "explanation"
BEGIN = "<!-- table: scripts/how_albert_works.py -->"
SHAPES = ("base", "large", "xlarge", "xxlarge")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--model", default="bundled", help="folder or name of the model")
    parser.add_argument("--deepest", type=int, default=8, help="maximum number of layers to apply")
    options = parser.parse_args()
    draw_sharing(DOCS / "how-albert-works-sharing.png")
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AlbertForMaskedLM.from_pretrained(options.model)
    trained = model.config.num_hidden_layers
    rows = by_depth(model.eval(), tokenizer, read_questions(), options.deepest)
    draw_depth(rows, trained, DOCS / "how-albert-works-depth.png")
    write_depths(rows, trained, DOCS / "how-albert-works.md")


def footprint(shape: str) -> Footprint:
    """Return the parameters and operations of a published shape."""
    return measure("AlbertModel", AlbertConfig.preset(shape))


def draw_sharing(target: Path) -> None:
    """Draw stored and executed parameters, and operations, of the published shapes."""
    totals = [footprint(shape).total for shape in SHAPES]
    operations = [footprint(shape).flops(128) / 1e9 for shape in SHAPES]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    parameters, work = figure.subplots(1, 2)
    places = range(len(SHAPES))
    for shift, name, values in (
        (-0.2, "stored", [total.distinct / 1e6 for total in totals]),
        (0.2, "if no layers shared weights", [total.executed / 1e6 for total in totals]),
    ):
        bars = parameters.barh([place + shift for place in places], values, 0.38, label=name)
        parameters.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize="small")
    parameters.set(xlabel="million parameters", xscale="log", xlim=(5, 9000))
    figure.legend(fontsize="small", frameon=False, ncols=2, loc="outside upper left")
    parameters.invert_yaxis()
    bars = work.barh(places, operations, 0.5, color="C2")
    work.bar_label(bars, fmt="{:,.2f}", padding=2, fontsize="small")
    work.set(xlabel="GFLOPs per token, in a text of 128 tokens", xscale="log", xlim=(0.1, 20))
    work.invert_yaxis()
    for panel in (parameters, work):
        panel.set_yticks(places, SHAPES)
    save(figure, target)


@torch.inference_mode()
def by_depth(
    model: AlbertForMaskedLM, tokenizer: TokenizerBase, questions: Sequence[Question], deepest: int
) -> list[tuple[float, float, Score]]:
    """Return two cosines and the correct answers for each number of layers.

    The first cosine compares a layer with the previous layer, the second with the last trained layer. Both
    are means over the tokens of all questions, without special tokens.
    """
    encoded = tokenizer([question.text for question in questions], padding=True, return_tensors="pt")
    ids = encoded.input_ids
    special = torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id])
    words = ~torch.isin(ids, special)
    states: list[Tensor] = list(model(**encoded, output_hidden_states=True).hidden_states)  # each B x T x H
    trained = len(states) - 1
    attention_mask = encoded.attention_mask[:, None, None].bool()  # B x 1 x 1 x T
    last = model.albert.encoder.albert_layer_groups[-1]
    while len(states) <= deepest:
        states.append(last(states[-1], attention_mask=attention_mask))
    rows = []
    for depth in range(1, len(states)):
        logits = model.predictions(states[depth][ids == tokenizer.mask_token_id])  # B x V
        score = scores(questions, logits.topk(5).indices.tolist(), tokenizer)["all"]
        turned = cosine_similarity(states[depth], states[depth - 1], dim=-1)[words].mean().item()
        settled = cosine_similarity(states[depth], states[trained], dim=-1)[words].mean().item()
        rows.append((turned, settled, score))
    return rows


def draw_depth(rows: Sequence[tuple[float, float, Score]], trained: int, target: Path) -> None:
    """Draw cosines and accuracy by number of layers."""
    depths = range(1, len(rows) + 1)
    figure = Figure(figsize=(9, 3), layout="constrained")
    cosines, answers = figure.subplots(1, 2)
    cosines.plot(depths, [row[0] for row in rows], "o-", label="with the previous layer")
    cosines.plot(depths, [row[1] for row in rows], "s-", label=f"with layer {trained}, the trained depth")
    cosines.set(xlabel="layers applied", ylabel="cosine similarity", ylim=(None, 1.02))
    answers.plot(depths, [row[2].top_5 / row[2].questions for row in rows], "o-", label="top 5")
    answers.plot(depths, [row[2].top_1 / row[2].questions for row in rows], "s-", label="top 1")
    answers.set(xlabel="layers applied", ylabel="accuracy", ylim=(0, None))
    for panel in (cosines, answers):
        panel.axvline(trained, color="0.5", linestyle=":", linewidth=1)
        panel.set_xticks(depths)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", frameon=False)
    save(figure, target)


def save(figure: Figure, target: Path) -> None:
    with atomic_path(target) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def write_depths(rows: Sequence[tuple[float, float, Score]], trained: int, page: Path) -> None:
    """Write the table into the page."""
    lines = [
        "| layers applied | cosine with the previous layer "
        f"| cosine with layer {trained} | accuracy, top 1 / top 5 |",
        "|---|---|---|---|",
    ]
    for depth, (turned, settled, score) in enumerate(rows, start=1):
        name = f"**{depth}**, the trained depth" if depth == trained else f"{depth}"
        lines.append(f"| {name} | {turned:.3f} | {settled:.3f} | {score} |")
    write_table(page, BEGIN, "\n".join(lines))


if __name__ == "__main__":
    main()
