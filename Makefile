PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Without bytecode on disk, every process of the tests would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install compare test check bench figures docs trained names format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Every install goes through the constraints: unpinned, torch alone brings gigabytes.
$(READY): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench,lab,ray]'
	@touch $@

install: $(READY) ## create .venv and install the package with its tools

compare: $(READY) ## measure which encodings work beyond their training length; ARGS="--preset full" is passed on to situs compare
	$(BIN)/situs compare $(ARGS)

# One thread a worker, lest the workers fight over the cores. The second run executes the shapes in annotations,
# which torch.compile cannot see through.
test: $(READY) ## run the tests; ARGS="-k rotary" is passed on to pytest
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)
	OMP_NUM_THREADS=1 SITUS_CHECK_SHAPES=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not compiled and not once" $(ARGS)

check: $(READY) ## formatting, lint, types, and the direction of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py -k point_left

bench: $(READY) ## measure against peers; ARGS is passed on to the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.models $(ARGS)

figures: $(READY) ## remake every committed figure
	$(BIN)/python docs/make.py figures

docs: $(READY) ## write docs/encodings.md and docs/which-call.md from the registry, and the table of the course
	$(BIN)/python docs/make.py encodings
	$(BIN)/python docs/make.py models
	$(BIN)/python docs/make.py course

trained: $(READY) ## train again the parameters that figures show; ARGS="t5 shaw" trains some of them
	$(BIN)/python docs/make.py trained $(ARGS)

names: $(READY) ## write the lists of public names, after adding an encoding
	$(BIN)/python docs/names.py

format: $(READY) ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
