# Needs Python 3.11+ and make. Everything else is set up in .venv, by uv where it is installed, else by venv and pip.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
EXTRA ?= dev
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PLUGINS := $(patsubst %/pyproject.toml,-e ./%,$(wildcard contrib/*/pyproject.toml))
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test test-all unit failed lint format bench fuzz docs integration wheel clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

demo: $(READY)  ## run the whole diagnosis on the embedded testbed and write runs/demo/report.html
	@$(BIN)/besttake demo -o runs/demo

test: lint unit  ## check format, lint and types, and run the fast tests

test-all: lint  ## the same with the slow simulations, and print the coverage
	$(PYTEST) --cov --cov-report=
	@echo "coverage: $$($(BIN)/coverage report --format=total) % (by file: $(BIN)/coverage report)"

unit: $(READY)  ## run the fast tests alone
	$(PYTEST) -m "not slow"

failed: $(READY)  ## run the tests again that failed the last time, one at a time
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

lint: $(READY)  ## check format, lint and types
	$(BIN)/ruff format --check src tests bench contrib
	$(BIN)/ruff check src tests bench contrib
	$(BIN)/mypy

format: $(READY)  ## format the code and fix what ruff can fix
	$(BIN)/ruff format src tests bench contrib
	$(BIN)/ruff check --fix src tests bench contrib

integration: $(READY)  ## test real simulators and policy classes, each in its own environment (NAMES="sims lerobot")
	@$(BIN)/python tests/integration/run.py $(NAMES)

bench: $(READY)  ## measure speed as ratios to what one would use instead
	$(BIN)/python -m bench

fuzz: $(READY)  ## kill, stop, fill, corrupt and fuzz for some minutes (FULL=1: all tries afresh, into docs/reliability.md)
	$(BIN)/python -m bench.campaign $(if $(FULL),--full) $(if $(MINUTES),--minutes $(MINUTES),$(if $(FULL),--afresh))

docs:  ## build the documentation into site/: runs its notebook, and fails on a broken link
	@$(MAKE) --no-print-directory VENV=$(VENV)-docs EXTRA=docs $(VENV)-docs/.ready
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet

wheel: $(READY)  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist

clean:  ## remove .venv, caches and builds
	rm -rf .venv .venv-* dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

$(READY): pyproject.toml constraints.txt $(wildcard contrib/*/pyproject.toml)
	@if [ -z "$(PYTHON)" ]; then echo "BestTake needs Python 3.11 or newer on the PATH" >&2; exit 1; fi
	@echo "setting up $(VENV) with $(PYTHON)"
	@rm -rf $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --python $(PYTHON) $(VENV) && \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[$(EXTRA)]' && \
		uv pip install --quiet --python $(BIN)/python --no-deps $(PLUGINS); \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRA)]' && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(PLUGINS); \
	fi
	@$(BIN)/python -m compileall -q src  # where PYTHONDONTWRITEBYTECODE is set, every process would compile anew
	@touch $(READY)
