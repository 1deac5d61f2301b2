"""The verb classify."""

from typing import Annotated, Any

import typer

from albertkit.cli.flags import text_flags
from albertkit.cli.options import TextOptions, Texts, TruncateTuned, TunedModel, answered
from albertkit.cli.printing import as_fields, new_console, print_bars, print_cut, print_json, print_title
from albertkit.errors import ConfigError, DataError
from albertkit.hub import BUNDLED
from albertkit.inputs import PAIR_FIELDS


@text_flags
def classify(
    texts: Texts = None,
    pair: Annotated[
        str | None, typer.Option(help="Second text, to classify a pair of texts.", show_default=False)
    ] = None,
    model: TunedModel = BUNDLED,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels to choose from, separated by commas (zero-shot classification). Needs a model for "
            "natural language inference.",
            show_default=False,
        ),
    ] = None,
    multi_label: Annotated[
        bool,
        typer.Option(
            "--multi-label", help="Score each label of --labels independently, so that several can apply."
        ),
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            help="Hypothesis to test for each label of --labels. The label replaces {}.",
            show_default="This example is {}.",
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Number of labels to return.", min=1, show_default="all")
    ] = None,
    truncate: TruncateTuned = None,
    *,
    options: TextOptions,
) -> None:
    """Classify texts or pairs of texts. In a .tsv file, the second column has the second texts.

    Example: albertkit classify "A wonderful film." --model my-model
    """
    arguments, kind = texts, "text"
    if pair is not None:
        if texts is None or len(texts) != 1:
            count = len(texts or [])
            raise DataError(f"--pair is the second text of one text, but there are {count}. Pass one text.")
        arguments, kind = [(texts[0], pair)], "pair"
    if labels is None and (multi_label or template is not None):
        raise ConfigError("--multi-label and --template are for --labels. Pass the labels too.")
    if labels is not None and pair is not None:
        raise ConfigError("--labels are for single texts. Omit --pair.")
    fields = PAIR_FIELDS if labels is None else ("text",)
    given = options.read(arguments, fields=fields, kind=kind)
    if labels is None:
        answer = options.pipeline("text-classification", model, truncation=truncate, top_k=top_k)
    else:
        answer = options.pipeline(
            "zero-shot-classification",
            model,
            truncation=truncate,
            candidate_labels=labels,
            multi_label=multi_label,
            **({} if template is None else {"hypothesis_template": template}),
        )
    is_regression = labels is None and answer.model.config.problem_type == "regression"
    console = new_console()
    for asked, predictions in answered(answer, given):
        if labels is not None:
            from albertkit.pipelines.zero_shot_classification import as_labels

            predictions = as_labels(predictions)[:top_k]
        if options.json:
            print_json({**as_fields(asked), "predictions": predictions})
            continue
        print_title(console, asked)
        print_cut(console, predictions[0])
        if is_regression:
            _print_numbers(console, predictions)
        else:
            print_bars(console, [(one["label"], one["score"]) for one in predictions])
        console.print()


def _print_numbers(console: Any, predictions: list[dict[str, Any]]) -> None:
    """Print the numbers of a regression; a single number without a name is the score."""
    for one in predictions:
        is_unnamed = len(predictions) == 1 and one["label"] == "LABEL_0"
        name = "score" if is_unnamed else one["label"]
        console.print(f"{name}  {one['score']:.4g}")
