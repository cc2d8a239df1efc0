# make demo · make test · make check · make interop · make soak · make bench · make scale
#
# Everything lives in .venv, made from this project's own files with the newest suitable python3.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

.PHONY: demo test check interop soak bench scale format clean

demo: .venv/installed
	@$(BIN)/cbx demo

# Tests start many processes, and pytest rewrites each test file: neither should be compiled anew every time.
test soak: export PYTHONDONTWRITEBYTECODE :=

test: .venv/installed
	scripts/install-test-packages
	$(BIN)/pytest -n auto --dist worksteal

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Proves that cbx and the card-box library share a database. Fails, with 77, where the library cannot be had.
interop: .venv/installed
	$(BIN)/python interop/prepare.py
	$(BIN)/python -m pytest -vv -rP interop

# What takes too long for every day: the tests marked `soak`. A million messages in and out, and an upgrade of
# a million rows, killed in between; 5,000 turns of 200 agents by 8 workers that are killed and frozen.
soak: .venv/installed
	scripts/install-test-packages
	$(BIN)/pytest -s -m soak

# What users read of the settings, from their table.
docs/settings.md: cardbox_cli/settings.py scripts/settings-page .venv/installed
	$(BIN)/python scripts/settings-page > $@

# How fast cbx is beside floors and peers measured in the same minutes. Fails, with 8, where a target is missed.
bench: .venv/installed-bench
	$(BIN)/python -m benchmarks

# Every command on 1,000,000 cards beside the same on 10,000; some ten minutes, 3 GB of disk for that time.
scale: .venv/installed
	$(BIN)/python -m benchmarks.scale

format: .venv/installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "cbx needs Python 3.11 or later; name it with PYTHON=…" >&2; exit 1; }
	@echo "1/3  a virtual environment, .venv, of $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@echo "2/3  a newer pip in it"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "3/3  cbx and what it stands on, with a Postgres server and the tools of 'make check': a minute or two"
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/python -m pip install --quiet --group bench
	touch $@

clean:
	rm -rf .venv .venv-interop build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
