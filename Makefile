# All that a developer runs. `make help` lists it. Each target sets up what it needs, once, in .venv.
#
#   PYTHON=python3.13 make test     with another interpreter than python3 (3.11 or later)
#   make test ARGS="-k options -x"  with arguments for the command that the target runs

PYTHON ?= python3
ARGS ?=
# The scenarios whose first screens the README shows.
SHOWN := fleet partial-gang permit-starvation node-failure

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo preview pictures test lint format bench soak validate metadata wheel clean
# A stamp of a set-up that failed half-way must not stand for a finished one.
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.run ## a simulated training cluster, the real check on it, and what it sends (ARGS="--scenario deadlock")
	@$(BIN)/python -m lab.demo $(ARGS)

preview: $(VENV)/.preview ## the dashboards of simulated clusters as one page of HTML (ARGS="--scenario all": of each)
	@$(BIN)/python -m lab.preview $(ARGS)

pictures: $(VENV)/.pictures ## look at that page in Chromium, and write the pictures of the README (needs chromium)
	@$(BIN)/python -m lab.preview $(SHOWN:%=--scenario %) --check --pictures images $(ARGS)

test: $(VENV)/.test ## the tests, but for the soak, the wheel and a real Prometheus server (ARGS="-m prometheus")
	@$(BIN)/python -m pytest -n 2 $(ARGS)

lint: $(VENV)/.test $(VENV)/.lint ## style, types and the layers of the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python .ci/lint-imports

format: $(VENV)/.lint ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.test ## what a run costs beside plainer tools: five minutes at 100,000 pods (ARGS="--size S" for a quick look)
	@$(BIN)/python -m bench.run $(ARGS)

soak: $(VENV)/.test ## two thousand runs on a cluster that never rests: memory, threads, descriptors (ARGS="--runs 200")
	@$(BIN)/python -m tests.soak $(ARGS)

validate: ## Datadog's own validations (needs Python 3.13); ARGS=--sync writes the generated files first
	@.ci/ddev-validate $(ARGS)

metadata: $(VENV)/.test ## write metadata.csv, the tables of the docs and the pictures of the README
	@$(BIN)/python -m lab.metadata $(ARGS)

wheel: $(VENV)/.run ## build the wheel into dist
	@mkdir -p dist
	@$(PIP) wheel --no-deps --wheel-dir dist .
	@ls -1 dist/*.whl

clean: ## remove what the other targets have made
	@rm -rf $(VENV) .venv-ddev build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The set-up. Editable, so that the code that runs is the code of this checkout. One stamp a set of packages: the demo
# needs neither the test tools nor the linters.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "$(PYTHON) is missing or older than 3.11. Name another one: PYTHON=/path/to/python3.11 make ..." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "Installing the check and what it imports into $(VENV), once: a minute or so."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.preview: pyproject.toml | $(BIN)/python
	@echo "Installing the check and what draws the dashboards into $(VENV), once: a minute or so."
	@$(PIP) install --editable '.[preview]'
	@touch $(VENV)/.run $@

$(VENV)/.pictures: pyproject.toml | $(BIN)/python
	@echo "Installing what draws the dashboards and drives Chromium into $(VENV), once."
	@$(PIP) install --editable '.[pictures]'
	@touch $(VENV)/.run $(VENV)/.preview $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "Installing the check and the test tools into $(VENV), once: a minute or two."
	@$(PIP) install --editable '.[test]'
	@touch $(VENV)/.run $(VENV)/.preview $@

$(VENV)/.lint: pyproject.toml | $(BIN)/python
	@echo "Installing the linters into $(VENV), once."
	@$(PIP) install --editable '.[lint]'
	@touch $(VENV)/.run $@
