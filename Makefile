# Everything a developer types. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := cluster,bench,dev

.DEFAULT_GOAL := help
.PHONY: help setup up test check bench soak clean

help: ## list these
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## install into .venv, exactly the versions of constraints.txt

# Remade when either file is newer, and taken up again where an interrupted setup stopped.
$(READY): pyproject.toml constraints.txt .ci/make-venv
	@.ci/make-venv "$(PYTHON)" "$(VENV)"
	@echo "setup: installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@

up: setup ## start the cluster of cluster.toml in the foreground; Ctrl-C ends it
	@$(BIN)/honcho start

test: setup ## everything CI does: format, lint, types, all tests
	@.ci/system-packages nft=nftables ip=iproute2
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --durations=10

check: setup ## the same without the slow tests, for between two edits
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest --quiet -m "not slow"

bench: setup ## measure the bus and the hub against their peers
	$(BIN)/softstate bench bus
	$(BIN)/softstate bench hub

soak: setup ## most of an hour: 600 times the simulated clusters, ten minutes of bad frames
	SOFTSTATE_SOAK=1 $(BIN)/pytest tests/simulation tests/sockets --timeout=3600

clean: ## remove what setup, tests and clusters left here
	rm -rf $(VENV) .softstate build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
