# `make demo` and `make test` need nothing before them: both build .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORK := .work
PYTEST := $(BIN)/python -m pytest
JOBS ?= auto

.PHONY: setup demo test test-real test-slow lint format docs docs-check bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[engine,serve,dev]'
	touch $@

demo: $(READY)
	$(BIN)/degarble demo

test: $(READY)
	$(PYTEST) -n $(JOBS) -m "not real and not slow"

test-real: $(READY)
	$(PYTEST) -n $(JOBS) -m "real and not slow" -rs

test-slow: $(READY)
	$(PYTEST) -m slow -rs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python scripts/make_docs.py

docs-check: $(READY)
	$(BIN)/python scripts/make_docs.py --check

bench: $(READY)
	$(BIN)/python benchmarks/header_check.py
	$(BIN)/python benchmarks/start_up.py

clean:
	rm -rf $(VENV) $(WORK) .pytest_cache .mypy_cache .ruff_cache .hypothesis
