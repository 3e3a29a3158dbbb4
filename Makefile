# `make demo` and `make test` need nothing before them: both build .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORK := .work
PYTEST := $(BIN)/python -m pytest
JOBS ?= auto

.PHONY: setup demo test test-text test-core test-cli test-trace test-kvcache test-engine test-guards test-server test-quantize test-sensitivity test-operate test-numerics test-checks test-formats test-faults-container test-faults-config test-faults-quantization test-faults-text test-values-scales test-values-codes test-values-layers test-fixes test-hostile-files test-hostile-folders test-real test-real-bf16 test-real-gguf test-real-gptq test-real-awq test-real-float test-real-text test-real-repairs test-slow lint format docs docs-check bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[engine,serve,dev]'
	touch $@

demo: $(READY)
	$(BIN)/degarble demo

# The parts of the tests, each small enough to wait for. `make test` runs them one after the other.
FAST := -n $(JOBS) -m "not real and not slow"
CLIENTS := tests/degarble_engine/endpoint tests/degarble_engine/bench tests/degarble_engine/talk
GUARDS := tests/degarble_engine/guards tests/degarble_engine/planted
OPERATE := tests/probe tests/deploy tests/diagnosis tests/diagnosing
CONTENT_RULES := WGT or NUM or content

test: test-core test-cli test-trace test-kvcache test-engine test-guards test-server test-quantize test-sensitivity test-operate test-numerics test-checks test-formats test-text test-faults-container test-faults-config test-faults-quantization test-faults-text \
	test-values-scales test-values-codes test-values-layers test-fixes test-hostile-files test-hostile-folders

test-core: $(READY)
	$(PYTEST) $(FAST) tests --ignore=tests/formats --ignore=tests/checks --ignore=tests/hostile \
		--ignore=tests/test_every_check.py --ignore=tests/real --ignore=tests/tokenizer \
		--ignore=tests/test_text_checks.py --ignore=tests/fixes --ignore=tests/repairing \
		--ignore=tests/kvcache --ignore=tests/degarble_engine --ignore=tests/trace --ignore=tests/trace_readers --ignore=tests/cli --ignore=tests/report $(OPERATE:%=--ignore=%)

test-cli: $(READY)
	$(PYTEST) $(FAST) tests/cli tests/report --ignore=tests/cli/test_trace.py

test-trace: $(READY)
	$(PYTEST) $(FAST) tests/trace tests/trace_readers tests/cli/test_trace.py

test-kvcache: $(READY)
	$(PYTEST) $(FAST) tests/kvcache

# One thread a worker: two of torch's on each of two cores wait for each other.
test-engine: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) tests/degarble_engine/engine tests/degarble_engine/models tests/degarble_engine/compiled \
		tests/degarble_engine/live_cache

test-guards: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) $(GUARDS)

test-quantize: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) tests/degarble_engine/quantize

test-sensitivity: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) tests/degarble_engine/sensitivity tests/degarble_engine/ab

NOT_NUMERICS := $(addprefix tests/degarble_engine/,engine models compiled live_cache quantize ab sensitivity server telemetry) $(CLIENTS) $(GUARDS)

test-numerics: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) tests/degarble_engine $(NOT_NUMERICS:%=--ignore=%)

test-operate: $(READY)
	$(PYTEST) $(FAST) $(OPERATE)

test-server: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST) tests/degarble_engine/server tests/degarble_engine/telemetry $(CLIENTS)

test-text: $(READY)
	$(PYTEST) $(FAST) tests/tokenizer tests/checks/text tests/checks/template

test-checks: $(READY)
	$(PYTEST) $(FAST) tests/checks --ignore=tests/checks/text --ignore=tests/checks/template

test-formats: $(READY)
	$(PYTEST) $(FAST) tests/formats

test-faults-container: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "not (CFG or QNT or ENG or TOK or TPL or $(CONTENT_RULES))"

test-faults-config: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "CFG and not ($(CONTENT_RULES))"

test-faults-quantization: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "(QNT or ENG) and not ($(CONTENT_RULES))"

test-faults-text: $(READY)
	$(PYTEST) $(FAST) tests/test_text_checks.py tests/test_every_check.py -k "TOK or TPL or (silent and text_checks)"

# Faults in values, by hundreds of rules.
test-values-scales: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "WGT20"

test-values-codes: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "WGT21"

test-values-layers: $(READY)
	$(PYTEST) $(FAST) tests/test_every_check.py -k "WGT22 or NUM or (content and not WGT)"

# Faults, repaired; `make test-slow` has those that are left out here.
test-fixes: $(READY)
	$(PYTEST) $(FAST) tests/fixes tests/repairing

test-hostile-files: $(READY)
	$(PYTEST) $(FAST) tests/hostile/test_mutated_files.py

test-hostile-folders: $(READY)
	$(PYTEST) $(FAST) tests/hostile --ignore=tests/hostile/test_mutated_files.py

# The real model, in parts as well: a form of it at a time.
REAL := -n $(JOBS) -m "real and not slow" -rs

test-real: test-real-bf16 test-real-gguf test-real-gptq test-real-awq test-real-float test-real-text test-real-repairs

FORMS := $(PYTEST) $(REAL) tests/real --ignore=tests/real/test_repaired_model.py

test-real-bf16: $(READY)
	$(FORMS) -k "bf16"

test-real-gguf: $(READY)
	$(FORMS) -k "gguf"

test-real-gptq: $(READY)
	$(FORMS) -k "gptq"

test-real-awq: $(READY)
	$(FORMS) -k "awq"

test-real-float: $(READY)
	$(FORMS) -k "not (bf16 or gguf or gptq or awq)"

test-real-text: $(READY)
	$(PYTEST) $(REAL) tests --ignore=tests/real

test-real-repairs: $(READY)
	$(PYTEST) $(REAL) tests/real/test_repaired_model.py

test-slow: $(READY)
	$(PYTEST) -m slow -rs
	DEGARBLE_ALL_LEVELS=1 DEGARBLE_ALL_PAIRS=1 $(PYTEST) -n $(JOBS) -m slow tests/test_every_check.py
	DEGARBLE_HOSTILE_SHARE=5 $(PYTEST) -n $(JOBS) tests/hostile/test_mutated_files.py

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
