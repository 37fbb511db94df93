# Every target does its own set-up. Needed beforehand: Python 3.11 or later, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Tests start the programs some hundred times: compiled by each of them anew, the modules would be most of a start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test e2e lint format bench bench-e2e lock clean

help:
	@echo "make demo    place a stream of GPU pods on a sample cluster, beside plain counting"
	@echo "make test    all tests that need no cluster"
	@echo "make e2e     tests on a real Kubernetes control plane and node, built with Go (12 minutes the first time)"
	@echo "make lint    style, types, layers"
	@echo "make format  rewrite the code in the project's style"
	@echo "make bench   timings, written to bench/results"
	@echo "make bench-e2e  timings beside a real kube-scheduler, 500 and 5,000 nodes (an hour)"

# What running needs. The editable install makes the command from the checkout itself.
$(VENV)/run.stamp: requirements/run.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than Python 3.11; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { echo "make: $(PYTHON) -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# What developing needs on top.
$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

demo: $(VENV)/run.stamp
	@$(BIN)/linkwise demo --svg docs/placement.svg

test: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest

# Most tests wait most of the time, so three control planes run side by side, on two cores too, the longest files first (tests/e2e/conftest.py);
# tests that hold a promise about time have the machine for themselves.
e2e: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.e2e.build
	@$(BIN)/python -m pytest tests/e2e -n 3 --dist loadfile --no-loadscope-reorder -m "not alone"
	@$(BIN)/python -m pytest tests/e2e -n 0 -m alone

lint: $(VENV)/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/interrogate --quiet extender topology
	@$(BIN)/python scripts/largest.py

format: $(VENV)/dev.stamp
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/dev.stamp
	@$(BIN)/python -m bench.decision_latency
	@$(BIN)/python -m bench.nodes_form
	@$(BIN)/python -m bench.topology_classes

# Wants the machine for itself: all programs of a control plane run on it.
bench-e2e: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.e2e.build
	@$(BIN)/python -m bench.end_to_end

# The lock files follow pyproject.toml; run this after changing a dependency.
lock:
	@$(BIN)/python -m pip --quiet install 'uv>=0.8,<1'
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra build -o requirements/run.lock pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra dev -o requirements/dev.lock pyproject.toml

clean:
	@rm -rf $(VENV)
