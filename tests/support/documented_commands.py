"""Tables for the commands in the documentation: smaller settings, blocks that do not run, and outputs.

`test_docs.py` runs the pages.
"""

import sys

TINY_CORPUS = {
    "--vocab-size 8192": "--vocab-size 500",
    "--holdout-every 40": "--holdout-every 20 --workers 1",
}
IN_FP32 = "--precision fp32"  # much faster on a CPU without bf16
STEPS = f"--steps 1 --warmup-steps 0 {IN_FP32}"
ONE_STEP = f"{STEPS} --evaluation-sequences 16 --batch-tokens 512"
SMALLER: dict[str, dict[str, str]] = {
    "dev/bundled-model.md": {"bundled runs/tokenizer": "bundled bundled-sentences"},
    "README.md": TINY_CORPUS
    | {
        'model="albert/albert-base-v2"': 'model="bundled"',
        "--model albert/albert-base-v2": f"{STEPS} --model bundled",
        "--recipe mini": f"--recipe mini {ONE_STEP} --decay-steps 0",
    },
    "tutorials/pretrain-your-books.md": {
        "--vocab-size 4000": "--vocab-size 500",
        "--holdout-every 8": "--holdout-every 8 --workers 1",
        "--recipe books.toml": f"--recipe books.toml {ONE_STEP} --decay-steps 0",
    },
    "how-to/continue-pretraining.md": {
        "--holdout-every 20": "--holdout-every 20 --workers 1",
        "--batch-tokens 2048 --steps 1000 --warmup-steps 50": ONE_STEP,
        "finetune text": f"finetune {STEPS} text",
    },
    "how-to/corpora.md": TINY_CORPUS,
    "how-to/fine-tune.md": {
        "finetune text-classification": f"finetune text-classification {STEPS}",
        "finetune sentence-embedding": f"finetune sentence-embedding {STEPS}",
        "--model albert-base-v2": "--model bundled",
        "cola sst2 qqp qnli wnli": "qnli",
        "--recipe glue_$task": f"--recipe glue_$task {STEPS} --batch-size 8 --max-length 64",
    },
    "how-to/new-language.md": {
        "--vocab-size 2000": "--vocab-size 500",
        "--holdout-every 10": "--holdout-every 10 --workers 1",
        "max_minutes = 5": "max_minutes = 0.001",
    },
    "how-to/pretrain.md": TINY_CORPUS
    | {
        "--recipe smoke": f"--recipe smoke {ONE_STEP}",
        "--recipe albert-base-v2": f"--recipe smoke {ONE_STEP}",
    },
    "how-to/speed.md": {
        "albertkit bench": "albertkit bench --lengths 16 --batches 4 --rounds 1 --minutes 0.02",
        "--calibrate dev.tsv": "--calibrate dev.tsv --max-drop 100",
    },
    "how-to/embed.md": {"finetune sentence-embedding": f"finetune sentence-embedding {STEPS}"},
    "how-to/train-on-gpus.md": {"finetune text-classification": f"finetune text-classification {STEPS}"},
}
"""Page -> {text in its blocks: replacement}, for commands that need hours, data or published models."""

SHORTER: dict[str, dict[str, str]] = {
    "how-to/answer.md": {"--steps 60": f"--steps 20 {IN_FP32}"},
    "how-to/classify.md": {"--steps 30": f"--steps 30 {IN_FP32}"},
    "how-to/compare-runs.md": {"--epochs 4": f"--epochs 4 {IN_FP32}"},
    "how-to/mistakes.md": {"--epochs 4": f"--epochs 4 {IN_FP32}"},
    "how-to/multiple-choice.md": {"--steps 40": f"--steps 40 {IN_FP32}"},
    "how-to/own-task.md": {
        'output="tickets"': 'output="tickets", steps=1, precision="fp32"',
        "epochs=4, batch_size=16": 'steps=1, precision="fp32"',
    },
    "how-to/pandas-and-pytorch.md": {
        "epochs=4, batch_size=16": 'epochs=4, batch_size=16, precision="fp32"',
        "epochs=2": 'epochs=1, precision="fp32"',
    },
    "how-to/tag.md": {"--steps 60": f"--steps 20 {IN_FP32}"},
    "how-to/training-callbacks.md": {"epochs=4, batch_size=16": 'epochs=1, batch_size=16, precision="fp32"'},
    "how-to/zero-shot.md": {
        # documented_files.py trains the model of this page with all steps.
        "--steps 60": "--steps 1 --warmup-steps 0",
        "--output topics": "--output again",
    },
    "tutorials/csv-to-server.md": {"--epochs 8": f"--epochs 8 {IN_FP32}"},
}
"""Likewise, for commands that take less than a minute. With `--write-outputs`, they run as they are shown."""

LOCAL: dict[str, dict[str, str]] = {
    "how-to/accelerate.md": {
        # The warm shell has no `accelerate`. If the interface is not set, gloo asks the name server.
        "accelerate launch": f"GLOO_SOCKET_IFNAME=lo {sys.executable} -m accelerate.commands.launch"
    },
    "how-to/clients.md": {
        '"http://localhost:8080/pipeline/fill-mask"': (
            'os.path.expandvars("http://localhost:$PORT/pipeline/fill-mask")'
        ),
        "from huggingface_hub": "import os\nos.environ.pop('HF_HUB_OFFLINE', None)\nfrom huggingface_hub",
    },
    "how-to/peft.md": {"max_steps=40": "max_steps=40, report_to=[], use_cpu=True"},
    "how-to/serve.md": {"localhost:8080": "localhost:$PORT"},
    "how-to/transformers-trainer.md": {"max_steps=40": "max_steps=40, report_to=[], use_cpu=True"},
    "how-to/zero-shot.md": {"localhost:8080": "localhost:$PORT"},
    "reference/cli.md": {
        'bank in Berlin." --model my-model': 'bank in Berlin." --model tagger',
        'works in Berlin." --model my-model': 'works in Berlin." --model reader',
    },
    "tutorials/csv-to-server.md": {"localhost:8080": "localhost:$PORT"},
}
"""Likewise, for what differs between machines but does not change the outputs."""

PIP = "installs packages"
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "pip install": PIP,
        "git clone": "tests/project/test_readme.py runs `make demo`",
        "make test": "runs this suite",
    },
    "how-to/training-callbacks.md": {
        "import wandb": "tests/project/test_examples.py (stand-in) and tests/compat/test_trackers.py run it"
    },
    "how-to/tools-that-require-transformers.md": dict.fromkeys(
        ("import shap", "from keybert", "import datasets\nimport evaluate"),
        "the tests do not install the tool",
    ),
    "how-to/optuna.md": {
        "import optuna": "tests/compat/test_optuna.py runs it",
        "python search.py": "the same",
    },
    "how-to/install.md": {"pip install": PIP, "cd albertkit": PIP},
    "how-to/share.md": {
        "hf ": "uploads",
        "import albertkit\n\nrun": "uploads; tests/training/test_model_card.py runs it",
        "from albertkit": "uploads; tests/test_hub_upload.py runs it",
    },
    "how-to/train-on-gpus.md": {
        "torchrun": "how-to/pretrain.md and tests/training/test_distributed.py run it"
    },
    "tutorials/csv-to-server.md": {"pip install": PIP},
    "tutorials/examples.md": {"pip install": PIP},
    "tutorials/first-steps.md": {"pip install": PIP},
    "tutorials/pretrain-your-books.md": {"pip install": PIP},
    "dev/bundled-model.md": {
        "albertkit train-tokenizer": "how-to/corpora.md runs it",
        "python scripts/bundle_model.py": "tests/project/test_bundle_model.py runs it",
        "python scripts/sentence_vectors.py": "tests/project/test_sentence_vectors.py runs it on few books",
    },
    "dev/gpu.md": {
        "PYTHONPATH=dev/pretended_gpu": "tests/project/test_pretended_gpu.py runs a part of it",
    },
    "reference/cli.md": {
        "albertkit compare": "how-to/compare-runs.md runs it",
        "albertkit search": "how-to/embed.md runs it",
        "albertkit serve": "how-to/serve.md runs it",
        "albertkit playground": "tests/serving/test_playground.py runs it with a browser",
        "albertkit train-tokenizer": "how-to/corpora.md runs it",
        "albertkit prepare": "how-to/corpora.md runs it",
        "albertkit pretrain": "how-to/pretrain.md runs it",
        "albertkit finetune": "how-to/fine-tune.md runs it",
        "albertkit evaluate": "how-to/fine-tune.md runs it",
        "albertkit predict": "how-to/fine-tune.md runs it",
        "albertkit bench": "how-to/speed.md runs it",
    },
    "how-to/browser.md": {
        "albertkit export web bundled site --page": "needs npm; tests/compat/test_web_page.py opens the page",
        "albertkit export web bundled everyday --page": "needs npm; tests/web/test_page_files.py sets both",
    },
    "reference/keras.md": {"from albertkit": "tests/keras/test_keras.py runs it on TensorFlow"},
    "reference/compatibility.md": {
        "make compat": "installs environments; tests/project/test_compatibility.py reads its results",
        ".venv/bin/python tests/compat": "the same, for one tool",
    },
    "how-to/deploy.md": {
        "docker build": "tests/project/test_dockerfile.py runs its commands without Docker",
        "openssl": "tests/project/test_deployment.py runs the container's command",
        "kubectl": "the same",
    },
    "how-to/embed.md": {
        "from sentence_transformers": "tests/compat runs it in a separate environment",
        **dict.fromkeys(
            ("import faiss", "import sqlite3", "import psycopg"), "the tests do not install the library"
        ),
    },
    "how-to/clients.md": {"from openai": "tests/compat runs it in a separate environment"},
    "how-to/own-task.md": {"python examples/own_task.py": "tests/project/test_examples.py runs it"},
    "how-to/keras.md": {
        "from albertkit": "tests/keras/test_keras.py runs it on TensorFlow",
        "import keras": "the same",
    },
    "dev/figures.md": {"make test": "runs this suite, and benchmarks that take an hour"},
}
"""Page -> {start of a block: the reason why it does not run here, or the test or page that runs it}."""

PRINTED: dict[str, dict[str, float]] = {
    "how-to/browser.md": {r"agreement \(100\.00 to ([\d.]+), on 839": 98.5},
    "how-to/pandas-and-pytorch.md": {
        r"^accuracy +([\d.]+) \(baseline": 0.4,
        r"^examples +(\d+)": 80,
        r"payment +([\d.]+)": 0.3,
        r"^accuracy ([\d.]+)$": 0.4,
    },
    "how-to/zero-shot.md": {
        r"^cooking +([\d.]+)%": 60,
        r"^cooking ([\d.]+)$": 0.6,
        r'\[\[{"label": "cooking", "score": ([\d.]+)': 0.6,
    },
}
"""Page -> {pattern of the output of its blocks: the minimum of each number in the group}."""

NUMBERS_VARY = {
    "how-to/multiple-choice.md": "",
    "how-to/corpora.md": "the corpus is smaller",
    "how-to/new-language.md": "the vocabulary is smaller",
    "how-to/pandas-and-pytorch.md": "the model is trained in fewer epochs",
    "how-to/spreadsheets.md": "",
    "how-to/pretrain.md": "the corpus is smaller, and the model is trained in one step",
    "tutorials/csv-to-server.md": "",
    "tutorials/pretrain-your-books.md": "the corpus is smaller, and the model is trained in one step",
    "how-to/answer.md": "the model is trained in fewer steps",
    "how-to/own-task.md": "the model is trained in one step",
    "how-to/tag.md": "the model is trained in fewer steps",
    "how-to/classify.md": "",
    "how-to/mistakes.md": "",
    "how-to/serve.md": "",
    "how-to/streaming.md": "",
    "how-to/training-callbacks.md": "",
    "how-to/transformers-trainer.md": "",
    "how-to/peft.md": "",
    "how-to/accelerate.md": "",
    "how-to/zero-shot.md": "",
    "how-to/compare-runs.md": "and the time differs",
}
"""Page that trains a model -> another reason why numbers differ, or "" if only the processor changes them."""

VARYING = {"how-to/browser.md": r"by at most [\d.e-]+|loses [\d.]+ points|to [\d.]+, on 839"}
"""Page -> pattern of the only numbers in its output that differ between processors."""
