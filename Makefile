# Everything a developer types. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := cluster,bench,dev

.DEFAULT_GOAL := help
.PHONY: help setup up test check bench sim sim-sabotage soak jepsen clean

help: ## list these
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	@.ci/system-packages nft=nftables ip=iproute2 etcd=etcd-server \
		pg_ctlcluster=postgresql redis-server=redis-server
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --durations=10

check: setup ## the same without the slow tests, for between two edits
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest --quiet -m "not slow"

bench: setup ## measure the bus, the hub and the leases against their peers
	$(BIN)/softstate bench bus
	$(BIN)/softstate bench hub
	$(BIN)/softstate bench lease

SEEDS ?= 2000
SEED ?=

sim: setup ## simulate SEEDS=2000 clusters with leases under faults; SEED=7: one, and tell all of it
	@$(BIN)/python -m tests.simulation.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

sim-sabotage: setup ## plant each fault in the simulated leases: which seed catches it
	@$(BIN)/python -m tests.simulation.sim --sabotage

soak: setup ## most of an hour: 600 times the simulated clusters, ten minutes of bad frames
	SOFTSTATE_SOAK=1 $(BIN)/pytest tests/simulation tests/sockets --timeout=3600

SECONDS ?= 600
jepsen: setup ## kill, stop and cut off what holds leases, at random; SECONDS=600 of each kind
	SOFTSTATE_SOAK=1 SOFTSTATE_JEPSEN_S=$(SECONDS) $(BIN)/pytest tests/jepsen -s

clean: ## remove what setup, tests and clusters left here
	rm -rf $(VENV) .softstate build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
