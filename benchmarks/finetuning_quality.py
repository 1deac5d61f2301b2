"""Compare fine-tuning with its defaults, `transformers.Trainer`, and a linear model: metrics on test data.

    python benchmarks/finetuning_quality.py [--data FOLDER] [--only sst2,rte] [--quick] [--seeds 3]
        [--examples N] [--model bundled] [--runs FILE] [--json] [--write-page]

* albertkit: `finetune` with all defaults. It selects the checkpoint on a tenth of the training data, which
  the other sides do not see.
* Trainer: `transformers.Trainer` with its defaults, from the same weights (including those of the new head),
  with the same token ids, labels, number of epochs and batch size. It runs with each of the learning rates
  1e-4, 3e-4 and 1e-3. The table has the one with the best mean on the test data, so its choice is in favor of
  Trainer.
* linear: TF-IDF of words and pairs of words with logistic regression or ridge regression; for tags, logistic
  regression on the words, their endings and their neighbors. There is none for questions.

All predictions are measured with `albertkit.evaluate` or its metrics. The sets need the files sst2/train.tsv
and test.tsv, rte/rte[1-3]_dev.xml and _test.xml, conll2000/train.txt and test.txt, and xquad/xquad.en.json in
--data:

* sst2, rte, conll2000, xquad: the original sets; for xquad, the last 12 of 48 articles are the test data.
* advp: 1,500 sentences of CoNLL-2000, in which only the adverb phrases are labeled.
* kinds: several labels. Which of the phrases ADJP, ADVP, PRT and SBAR does a sentence of CoNLL-2000 have?
* share: regression. Which share of the words of such a sentence is in noun phrases?

--quick runs one seed on fewer examples; --examples 1000 uses at most 1,000 examples for training and as many
for the test. No run may be at or below the baseline of a set. With --runs, the metrics of every finished run
are appended to a file and are not computed again: the whole benchmark takes several hours.
The script needs the `test` extra.
"""

import json
import os
import random
import statistics
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from report import Figure, command_line, show, state, write_page

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("ALBERTKIT_SHARED", ROOT.parent / "shared")) / "data"
LEARNING_RATES = (1e-4, 3e-4, 1e-3)
PHRASES = ("ADJP", "ADVP", "PRT", "SBAR")

Row = dict[str, Any]


@dataclass(frozen=True)
class DataSet:
    """Training and test examples of a task."""

    task: str
    train: list[Row]
    test: list[Row]
    quick: tuple[int, int]
    """Numbers of training and test examples with --quick."""
    options: dict[str, Any] = field(default_factory=dict)
    """Names of the columns."""

    def cut(self, train: int, test: int) -> "DataSet":
        """Return the first examples of both parts."""
        return DataSet(self.task, self.train[:train], self.test[:test], self.quick, self.options)


def sst2(data: Path) -> DataSet:
    """Return sentences of film reviews with their sentiment."""

    def read(name: str) -> list[Row]:
        lines = (data / "sst2" / name).read_text(encoding="utf-8").splitlines()
        return [dict(zip(("text", "label"), line.split("\t"), strict=True)) for line in lines]

    return DataSet("text-classification", shuffled(read("train.tsv")), read("test.tsv"), (240, 600))


def rte(data: Path) -> DataSet:
    """Return pairs of texts, of which the first implies the second or not."""

    def read(part: str) -> list[Row]:
        pairs = [
            pair
            for number in (1, 2, 3)
            for pair in ET.parse(data / "rte" / f"rte{number}_{part}.xml").getroot().iter("pair")
        ]
        return [
            {
                "text": pair.findtext("t", "").strip(),
                "pair": pair.findtext("h", "").strip(),
                "label": str(pair.get("value") or pair.get("entailment")) in ("TRUE", "YES"),
            }
            for pair in pairs
        ]

    options = {"text_column": "text", "pair_column": "pair"}
    return DataSet("text-classification", shuffled(read("dev")), shuffled(read("test")), (120, 300), options)


def sentences(data: Path, part: str) -> list[list[list[str]]]:
    """Return the lines of CoNLL-2000, split into columns, by sentence."""
    blocks = (data / "conll2000" / f"{part}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [[line.split() for line in block.splitlines()] for block in blocks]


def tags(data: Path, *, only: str = "", train: int | None = None, quick: int) -> DataSet:
    """Return sentences with the tags of all phrases, or of one type."""

    def read(part: str) -> list[Row]:
        return [
            {
                "tokens": [word for word, _, _ in lines],
                "tags": [tag if tag.endswith(only) else "O" for _, _, tag in lines],
            }
            for lines in sentences(data, part)
        ]

    options = {"label_column": "tags"}
    return DataSet(
        "token-classification", shuffled(read("train"))[:train], read("test"), (quick, 400), options
    )


def phrases(data: Path, label: Callable[[list[str]], Any]) -> DataSet:
    """Return sentences with a label that is computed from the tags of their words."""

    def read(part: str) -> list[Row]:
        return [
            {"text": " ".join(line[0] for line in lines), "label": label([line[2] for line in lines])}
            for lines in sentences(data, part)
        ]

    return DataSet("text-classification", shuffled(read("train"))[:3000], read("test"), (240, 500))


def kinds(tags: list[str]) -> list[str]:
    """Return the rarer phrases among the tags of a sentence."""
    return [name for name in PHRASES if f"B-{name}" in tags]


def share(tags: list[str]) -> float:
    """Return the share of words in noun phrases."""
    return round(sum(tag.endswith("-NP") for tag in tags) / len(tags), 4)


def xquad(data: Path) -> DataSet:
    """Return questions on paragraphs of Wikipedia."""
    articles = json.loads((data / "xquad" / "xquad.en.json").read_text(encoding="utf-8"))["data"]

    def read(part: list[Any]) -> list[Row]:
        return [
            {
                "id": question["id"],
                "question": question["question"],
                "context": paragraph["context"],
                "answers": {
                    "text": [answer["text"] for answer in question["answers"]],
                    "answer_start": [answer["answer_start"] for answer in question["answers"]],
                },
            }
            for article in part
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]

    return DataSet("question-answering", shuffled(read(articles[:36])), read(articles[36:]), (60, 80))


def shuffled(rows: list[Row]) -> list[Row]:
    """Return the rows in a random order that is always the same."""
    return random.Random(0).sample(rows, len(rows))


SETS: dict[str, Callable[[Path], DataSet]] = {
    "sst2": sst2,
    "rte": rte,
    "conll2000": partial(tags, quick=240),
    "advp": partial(tags, only="ADVP", train=1500, quick=240),
    "xquad": xquad,
    "kinds": partial(phrases, label=kinds),
    "share": partial(phrases, label=share),
}


def ours(data: DataSet, validation: list[Row], model: str, seed: int, folder: Path) -> Any:
    """Fine-tune with all defaults; return the run."""
    from albertkit import finetune

    return finetune(
        data.task,
        train=data.train,
        validation=validation,
        model=model,
        output=folder,
        seed=seed,
        **data.options,
    )


def theirs(
    data: DataSet, validation: list[Row], model: str, seed: int, settings: Row, rate: float, folder: Path
) -> None:
    """Train with `transformers.Trainer` and the epochs and batch size of `settings`; save the model."""
    import torch
    import transformers

    from albertkit.datasets.options import DataOptions
    from albertkit.finetuning.losses import training_inputs
    from albertkit.finetuning.prepared import prepare, starting_model
    from albertkit.finetuning.settings import FinetuningSettings
    from albertkit.tasks.registry import task_of

    chosen = FinetuningSettings(seed=seed)
    prepared = prepare(
        task_of(data.task),
        chosen,
        model=model,
        train=data.train,
        validation=validation,
        options=DataOptions(**data.options),
    )
    starting_model(prepared, chosen).save_pretrained(folder)
    prepared.task.tokenizer.save_pretrained(folder)
    transformers.logging.set_verbosity_error()
    network = getattr(transformers, prepared.task.architecture).from_pretrained(folder, dtype=torch.float32)
    task, cpu = prepared.task, torch.device("cpu")
    rows: Any = prepared.rows
    with tempfile.TemporaryDirectory() as temporary:
        arguments = transformers.TrainingArguments(
            temporary,
            num_train_epochs=settings["epochs"],
            per_device_train_batch_size=settings["batch_size"],
            learning_rate=rate,
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
        )
        transformers.Trainer(
            network,
            arguments,
            train_dataset=rows,
            data_collator=lambda rows: training_inputs(task, rows, cpu),
        ).train()
    network.save_pretrained(folder)


def linear(data: DataSet) -> float | None:
    """Return the main metric of a linear model on the test data, None for questions."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import accuracy_score, f1_score
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MultiLabelBinarizer

    from albertkit.metrics import span_scores

    if data.task == "question-answering":
        return None
    if data.task == "token-classification":
        tagger = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=200))
        tagger.fit(
            [features for row in data.train for features in word_features(row["tokens"])],
            [tag for row in data.train for tag in row["tags"]],
        )
        predicted = [list(tagger.predict(word_features(row["tokens"]))) for row in data.test]
        return span_scores([row["tags"] for row in data.test], predicted)["f1"]
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    texts, test_texts = ([text_of(row) for row in rows] for rows in (data.train, data.test))
    labels, true = ([row["label"] for row in rows] for rows in (data.train, data.test))
    if isinstance(labels[0], float):
        ridge = make_pipeline(vectors, Ridge()).fit(texts, labels)
        return statistics.correlation(list(map(float, ridge.predict(test_texts))), true)
    regression = LogisticRegression(C=10, max_iter=1000)
    if isinstance(labels[0], list):
        binary = MultiLabelBinarizer().fit(labels)
        several = make_pipeline(vectors, OneVsRestClassifier(regression)).fit(texts, binary.transform(labels))
        return float(f1_score(binary.transform(true), several.predict(test_texts), average="micro"))
    single = make_pipeline(vectors, regression).fit(texts, labels)
    return float(accuracy_score(true, single.predict(test_texts)))


def text_of(row: Row) -> str:
    """Return the text of a row; the words of a second text are features of their own."""
    words = row["text"].lower().split()
    return " ".join(words + [f"2:{word}" for word in row.get("pair", "").lower().split()])


def word_features(words: list[str]) -> list[Row]:
    """Return the features of each word of a sentence for the linear tagger."""
    padded = ["<s>", "<s>", *words, "</s>", "</s>"]
    return [
        {f"word{place}": padded[number + place + 2].lower() for place in range(-2, 3)}
        | {f"end{length}": word[-length:].lower() for length in (1, 2, 3)}
        | {"upper": word[0].isupper(), "digit": any(character.isdigit() for character in word)}
        for number, word in enumerate(words)
    ]


def runs(name: str, data: DataSet, model: str, seed: int) -> Iterator[Row]:
    """Train and evaluate all sides on one set with one seed; yield a record of each."""
    from albertkit import evaluate

    held_out = len(data.train) // 10
    validation, data = (
        data.train[:held_out],
        DataSet(data.task, data.train[held_out:], data.test, data.quick, data.options),
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = ours(data, validation, model, seed, folder / "ours").report["settings"]
        for rate in (0.0, *LEARNING_RATES):
            run = folder / (f"{rate}" if rate else "ours")
            if rate:
                theirs(data, validation, model, seed, settings, rate, run)
            result = evaluate(run, data=data.test, task=data.task, **data.options)
            metric = result.main_metric
            yield {
                "model": model,
                "set": name,
                "seed": seed,
                "rate": rate,
                "examples": len(data.train),
                "metric": metric,
                "value": result.metrics[metric],
                "baseline": result.baseline.get(metric),
            }


def measure(name: str, data: DataSet, model: str, seeds: int, file: Path | None) -> list[Figure]:
    """Run all sides on one set, apart from the runs in the file; return their figures."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    records = []
    for seed in range(seeds):
        size = len(data.train) - len(data.train) // 10
        key = (model, name, seed, size)
        done = [run for run in known if (run["model"], run["set"], run["seed"], run["examples"]) == key]
        if len(done) <= len(LEARNING_RATES):
            done = list(runs(name, data, model, seed))
            if file:
                with file.open("a") as lines:
                    lines.writelines(json.dumps(run) + "\n" for run in done)
        records += done
    scores = {
        rate: [run["value"] for run in records if run["rate"] == rate] for rate in (0.0, *LEARNING_RATES)
    }
    metric, baseline = records[0]["metric"], records[0]["baseline"]
    means = {rate: statistics.fmean(values) for rate, values in scores.items()}
    best = max(LEARNING_RATES, key=lambda rate: means[rate])
    figures = [
        beside(f"{name}: {metric} (Trainer {best:g})", means[0.0], means[best]),
        *(state(f"{name}: {metric}, Trainer {rate:g}", means[rate]) for rate in LEARNING_RATES),
    ]
    if seeds > 1:
        for side, rate in (("albertkit", 0.0), ("Trainer", best)):
            figures.append(state(f"{name}: deviation, {side}", statistics.stdev(scores[rate])))
    if (other := linear(data)) is not None:
        figures.append(beside(f"{name}: {metric} (linear)", means[0.0], other))
    if baseline is not None:
        worst = min(scores[0.0])
        figures.append(beside(f"{name}: {metric}, worst run (baseline)", worst, baseline, strictly=True))
    return figures


def beside(name: str, value: float, against: float, *, strictly: bool = False) -> Figure:
    """Return a figure whose target is the other figure."""
    met = value > against if strictly else value >= against
    ratio = value / against if against else None
    return Figure(name, value, against, ratio, f"{'>' if strictly else '>='} 1x", met)


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--only", default=",".join(SETS), help="names of sets, separated by commas")
    parser.add_argument("--quick", action="store_true", help="one seed on fewer examples")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each side")
    parser.add_argument("--examples", type=int, help="largest number of training and of test examples")
    parser.add_argument("--model", default="bundled", help="name or folder of the initial model")
    parser.add_argument("--runs", type=Path, help="a JSONL file for the metrics of finished runs")
    parser.add_argument("--write-page", action="store_true", help="write the table into dev/measurements.md")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(SETS):
        parser.error(f"unknown sets: {', '.join(sorted(unknown))}. Expected some of {', '.join(SETS)}.")
    figures: list[Figure] = []
    for name in names:
        data = SETS[name](arguments.data)
        if arguments.quick:
            data = data.cut(*data.quick)
        elif arguments.examples:
            data = data.cut(arguments.examples, arguments.examples)
        measured = measure(
            name,
            data,
            arguments.model,
            1 if arguments.quick else arguments.seeds,
            arguments.runs,
        )
        show(f"fine-tuning on {name}", measured, as_json=arguments.json, against="other")
        figures += measured
    if arguments.write_page:
        size = f", at most {arguments.examples} examples" if arguments.examples else ""
        title = f"fine-tuning of {arguments.model}{', --quick' if arguments.quick else size}"
        tables = [(title, "other", figures)]
        write_page("measurements.md", "benchmarks/finetuning_quality.py", tables)


if __name__ == "__main__":
    main()
