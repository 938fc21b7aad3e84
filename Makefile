# Everything a developer types. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
BUSIEST := $(addprefix bus/,clock.py frames.py outbox.py pending.py delay.py pump.py client.py \
	server.py) $(addprefix roles/,admission.py brick.py brick_inbox.py brick_view.py limiter.py \
	session_request.py session_tables.py session_tally.py sightings.py)
EXTRAS := cluster,load,bench,dev

.DEFAULT_GOAL := help
.PHONY: help setup up test check bench overload sim sim-sabotage soak soak-sim jepsen clean

help: ## list these
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(COMPILED) ## install into .venv, exactly the versions of constraints.txt, and compile

# Remade when either file is newer, and taken up again where an interrupted setup stopped.
$(READY): pyproject.toml constraints.txt .ci/make-venv
	@.ci/make-venv "$(PYTHON)" "$(VENV)"
	@echo "setup: installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@

# The busiest modules, compiled by mypyc: half as fast again. Without a C compiler, as they are.
$(COMPILED): $(READY) .ci/compile $(BUSIEST)
	@$(BIN)/python .ci/compile $(BUSIEST)
	@touch $@

up: setup ## start the cluster of cluster.toml in the foreground; Ctrl-C ends it
	@$(BIN)/honcho start

test: setup ## everything CI does: format, lint, types, all tests
	@.ci/system-packages nft=nftables ip=iproute2 etcd=etcd-server \
		pg_ctlcluster=postgresql redis-server=redis-server memcached=memcached \
		chromium=chromium
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/tests

check: setup ## the same without the slow tests, for between two edits
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest --quiet -m "not slow and not plain"

bench: setup ## measure the bus, the hub, the leases and the sessions against their peers
	@.ci/system-packages redis-server=redis-server memcached=memcached
	$(BIN)/softstate bench bus
	$(BIN)/softstate bench hub
	$(BIN)/softstate bench lease
	$(BIN)/softstate bench session
	$(BIN)/softstate bench overload

overload: setup ## draw goodput against offered load, and a brick's death, into build/overload
	$(BIN)/python -m loadtest.draw_overload

SEEDS ?= 2000
SEED ?=

sim: setup ## simulate SEEDS=2000 clusters with leases under faults; SEED=7: one, and tell all of it
	@$(BIN)/python -m tests.simulation.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

sim-sabotage: setup ## plant each fault in the simulated leases: which seed catches it
	@$(BIN)/python -m tests.simulation.sim --sabotage

SECONDS ?= 600
CLEAN ?=

soak: setup ## hurt a cluster under load by chance for SECONDS=600; SEED=7: again; CLEAN=1: nobody
	$(BIN)/python -m loadtest.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) \
		$(if $(CLEAN),--clean)

soak-sim: setup ## most of an hour: 600 times the simulated clusters, ten minutes of bad frames
	SOFTSTATE_SOAK=1 $(BIN)/pytest tests/simulation tests/sockets --timeout=3600

jepsen: setup ## kill, stop and cut off what holds leases, at random; SECONDS=600 of each kind
	SOFTSTATE_SOAK=1 SOFTSTATE_JEPSEN_S=$(SECONDS) $(BIN)/pytest tests/jepsen -s

clean: ## remove what setup, tests and clusters left here
	rm -rf $(VENV) bus/*.so roles/*.so .softstate build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
