# Everything a newcomer needs: `make demo` and `make test`. Each installs what it needs into .venv and builds what it
# needs into the user's cache, keyed by its inputs, so that it is done once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-dev
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint fmt bench clean venv unit scenarios e2e fidelity fuzz help
.DEFAULT_GOAL := help

help: ## say what can be made
	@grep -hE '^[a-z0-9%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): pyproject.toml src/fleetwell/__init__.py
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not here; install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; say make PYTHON=python3.12 or the like" >&2; exit 1; }
	@echo "Installing fleetwell and its tools into $(VENV) (about 3 minutes; torch alone is 5 GB) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev]' $$(sh lab/controlplane/needs-go)
	@echo "Compiling what was installed, so that imports are not paid twice ..."
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
	@touch $@

venv: $(STAMP) ## install into .venv

demo: $(STAMP) ## the whole line, live on this screen: a kernel line becomes a node back in service
	@$(BIN)/fleetwell lab demo

lint: $(STAMP) ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## lint, types, import contracts, all tests (20 minutes on 2 cores, after the first builds)
	$(BIN)/fleetwell lab build
	$(BIN)/python -m pytest

bench: bench-latency bench-flood bench-agent ## every figure, with the command that gives it

bench-%: $(STAMP) ## one figure: make bench-latency
	@$(BIN)/python bench/$*.py

fidelity: $(STAMP) ## public inputs through the real readers: how many verdicts are right, in one table
	@PYTHONPATH=tests $(BIN)/python -m fidelity.table

SECONDS ?= 60
fuzz: $(STAMP) ## the kernel-log readers by coverage, for SECONDS=60 (needs atheris, which it installs)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	@$(BIN)/python tests/health/fuzz_kernel_log.py $(SECONDS)

clean: ## remove .venv and caches of this folder (the control plane stays in the user's cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
