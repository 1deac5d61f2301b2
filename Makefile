# `make demo` and `make test` are all a newcomer needs: each makes .venv and installs what it needs there.

PYTHON ?= python3
BIN := .venv/bin
# Modules are compiled when they are first imported: most never are. What is compiled must stay, or each of the
# suite's processes compiles what it imports: 17 s instead of 7 s for TensorFlow alone.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: help demo test test-fast light check format bench compat gpu docs clean

help: ## Show these targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "albertkit needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed-base: .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python $(PIP_INSTALL) --editable .
	@touch $@

.venv/installed-test: .venv/installed-base
	$(BIN)/python $(PIP_INSTALL) --editable '.[test]'
	@touch $@

.venv/installed-docs: .venv/installed-base
	$(BIN)/python $(PIP_INSTALL) --editable '.[docs]'
	@touch $@

# An environment of its own with the base install: what it runs cannot import torch.
.venv-light/installed: .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m venv .venv-light
	.venv-light/bin/python $(PIP_INSTALL) --editable . pytest hypothesis
	@touch $@

demo: .venv/installed-base ## Fill in three masked words with the bundled model, offline.
	@HF_HUB_OFFLINE=1 $(BIN)/albertkit fill-mask \
		"She opened the [MASK] and went into the room." \
		"The captain of the [MASK] looked at the sea." \
		"He was the [MASK] man I have ever known."

# Two processes of one thread each: most tests are too small for two threads. In the order of their names, as
# files with few tests are not the quick ones: by number of tests the longest would come last, alone.
# tests/compat installs packages of npm, and the suite needs no network: `make compat` runs it.
test: .venv/installed-test ## Run the suite (4.5 minutes on two idle cores).
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore=tests/compat --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed-test ## Run the tests that start no processes and train nothing (a minute on two cores).
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		-m "not slow and not integration"

light: .venv-light/installed ## Run the tests marked `light` with the base install, without torch.
	OMP_NUM_THREADS=1 .venv-light/bin/python -m pytest -m light $$(grep -rl --include='test_*.py' 'mark\.light' tests)

check: .venv/installed-test ## Lint, format, prose and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs dev recipes src scripts benchmarks
	$(BIN)/python dev/prose.py
	$(BIN)/pyright

format: .venv/installed-test ## Put the code into the project's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Minutes on two idle cores: startup, tokenizer and examples 1.5 in all, pretraining 5.5, inference 0.9, memory 1.1, serving 1.9.
bench: .venv/installed-test ## Measure against transformers, side by side (about 11 minutes).
	$(BIN)/python benchmarks/startup.py --runs 3
	$(BIN)/python benchmarks/tokenizer.py
	$(BIN)/python benchmarks/examples.py
	$(BIN)/python benchmarks/pretraining.py --runs 2
	$(BIN)/python benchmarks/inference.py --count 48 --runs 1
	$(BIN)/python benchmarks/memory.py --batches 2000 --texts 12000
	$(BIN)/python benchmarks/serving.py --minutes 0.5

# Each tool is installed into an environment of its own below .compat: 7.1 GB. The first time this took 46 minutes
# while other work ran on the same two cores. The script then runs the test files of tests/compat, the two of the
# browser and of Node in .venv, the others beside the libraries that they need.
compat: .venv/installed-test ## Check the other tools that open our files or write files for us; write docs/reference/compatibility.md.
	OMP_NUM_THREADS=1 $(BIN)/python tests/compat/matrix.py

# MINUTES and TEXTS can be given: make gpu MINUTES=25 TEXTS=books.parquet
gpu: .venv/installed-test ## On a machine with a GPU: its tests, benchmarks and a training run (25 minutes).
	$(BIN)/python scripts/gpu.py --minutes $(or $(MINUTES),25) $(if $(TEXTS),--texts $(TEXTS)) --page dev/gpu-report.md

docs: .venv/installed-docs ## Build the documentation into site/; a warning is an error.
	$(BIN)/python scripts/browser_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean: ## Remove the environments and what tools left behind.
	rm -rf .venv .venv-light .compat .pytest_cache .ruff_cache .hypothesis dist build site
