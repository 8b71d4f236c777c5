# Needs Python 3.11+ and make. Everything else is set up in .venv, by uv where it is installed, else by venv and pip.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format bench integration wheel clean

demo: $(READY)  ## the whole diagnosis on the embedded testbed; writes runs/demo/report.html
	@$(BIN)/besttake demo -o runs/demo

test: $(READY)  ## lint, types and the unit tests
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(READY)  ## ratios against what one would use instead
	$(BIN)/python -m bench

integration: $(READY)  ## real simulators and policy classes, each in an environment of its own (NAMES="libero lerobot")
	@$(BIN)/python tests/integration/run.py $(NAMES)

wheel: $(READY)
	$(BIN)/python -m build --wheel --outdir dist

$(READY): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "BestTake needs Python 3.11 or newer on the PATH" >&2; exit 1; fi
	@echo "setting up .venv with $(PYTHON)"
	@rm -rf .venv
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --python $(PYTHON) .venv && \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
		$(PYTHON) -m venv .venv && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	@$(BIN)/python -m compileall -q src  # also where PYTHONDONTWRITEBYTECODE would have every process compile anew
	@touch $(READY)

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
