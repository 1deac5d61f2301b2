# Start with `make demo` or `make test`. Each creates .venv and installs its requirements there.

PYTHON ?= python3
BIN := .venv/bin
# pip does not compile modules (--no-compile), because most are never imported. Python compiles a module at its first
# import and must keep the bytecode. Otherwise each process of the suite compiles its imports again: importing
# TensorFlow alone takes 17 s instead of 7 s.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: help demo test test-fast light oldest check format bench compat gpu docs clean

help: ## Show these targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' \
		|| { echo "albertkit needs Python 3.11.4 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
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

# A separate environment with the base install, in which PyTorch cannot be imported.
.venv-light/installed: .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m venv .venv-light
	.venv-light/bin/python $(PIP_INSTALL) --editable . pytest hypothesis
	@touch $@

# The base install with the oldest versions that pyproject.toml allows. uv resolves them.
.venv-oldest/installed: .venv/pyvenv.cfg pyproject.toml
	$(BIN)/python -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check uv pytest hypothesis
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest --resolution lowest-direct --editable .
	@touch $@

demo: .venv/installed-base ## Fill in three masked words with the bundled model, offline.
	@HF_HUB_OFFLINE=1 $(BIN)/albertkit fill-mask \
		"She opened the [MASK] and went into the room." \
		"Talk to your [MASK] before you take this medicine." \
		"The team will send you an [MASK] when the order is ready."

# Two processes with one thread each, because most tests are too small for two threads. The files run in the order of
# their names: pytest-xdist would start with the files that have the most tests, and run the slowest file last, alone.
# tests/compat installs npm packages, but the suite must not need a network. `make compat` runs these tests.
# The suite compares numbers that were computed on a CPU, so it hides GPUs; `make gpu` tests them.
test test-fast: export CUDA_VISIBLE_DEVICES :=

test: .venv/installed-test ## Run the suite (12 minutes on two cores).
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore=tests/compat --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed-test ## Run the tests that neither start processes nor train models (a minute on two cores).
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		-m "not slow and not integration"

light: .venv-light/installed ## Run the tests marked `light` with the base install, without PyTorch.
	OMP_NUM_THREADS=1 .venv-light/bin/python -m pytest -m light $$(grep -rl --include='test_*.py' 'mark\.light' tests)

oldest: .venv-oldest/installed ## Run the same tests with the oldest versions that pyproject.toml allows.
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -m light $$(grep -rl --include='test_*.py' 'mark\.light' tests)

check: .venv/installed-test ## Check lint, format, spelling, prose and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs dev src scripts benchmarks
	$(BIN)/python dev/prose.py
	$(BIN)/pyright

format: .venv/installed-test ## Fix lint errors and format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Minutes on two idle cores: 1.5 for startup, tokenizer and examples together, 5.5 for pretraining, 0.9 for inference,
# 1.1 for memory and 1.9 for serving.
bench: .venv/installed-test ## Compare the speed with transformers (about 11 minutes).
	$(BIN)/python benchmarks/startup.py --runs 3
	$(BIN)/python benchmarks/tokenizer.py
	$(BIN)/python benchmarks/examples.py
	$(BIN)/python benchmarks/pretraining.py --runs 2
	$(BIN)/python benchmarks/inference.py --count 48 --runs 1
	$(BIN)/python benchmarks/memory.py --batches 2000 --texts 12000
	$(BIN)/python benchmarks/serving.py --minutes 0.5

# The script installs each tool into a separate environment in .compat (7.1 GB). The first time, this took 46 minutes
# on two cores that also did other work. The script then runs the test files of tests/compat: the browser and Node
# tests in .venv, and the others in the environment with the libraries that they need.
compat: .venv/installed-test ## Check other tools that open albertkit's files or write files for it; write docs/reference/compatibility.md.
	OMP_NUM_THREADS=1 $(BIN)/python tests/compat/matrix.py

gpu: .venv/installed-test ## Check, measure and train on a machine with a GPU (8 minutes; needs carried/, see dev/gpu.md).
	$(BIN)/python scripts/gpu.py --minutes $(or $(MINUTES),8) --shards carried --output gpu/report

docs: .venv/installed-docs ## Build the documentation into site/; warnings are errors.
	$(BIN)/python scripts/browser_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean: ## Remove the environments, caches and build outputs.
	rm -rf .venv .venv-light .venv-oldest .compat .pytest_cache .ruff_cache .hypothesis dist build site
