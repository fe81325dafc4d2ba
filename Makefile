# Everything a developer needs. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One more than there are processors: many tests wait for a server, a lock or a killed process.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.DEFAULT_GOAL := help
.PHONY: help demo test check bench lock clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "stepwell needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $(READY)

demo: $(READY) ## import real documents, ask questions, look at what was stored
	@$(BIN)/python scripts/demo.py

test: $(READY) ## every test, also those that kill processes
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

check: $(READY) ## style, types, architecture, repository, documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_repository.py
	@$(BIN)/python -m pytest -q tests/docs

bench: $(READY) ## measure against the raw driver and peers, write benchmarks/results.json
	@$(BIN)/python benchmarks/run.py

lock: $(READY) ## resolve the development dependencies anew
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --extra llm --extra server --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --upgrade -o requirements/dev.txt

clean: ## remove the environments and the demo's data
	@rm -rf $(VENV) .bench .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
