# make demo · make test · make check · make interop · make soak · make bench · make scale · make lint-truth
# make schemas · make lock
#
# Everything lives in .venv, made from this project's own files with the newest suitable python3.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# Ends what tests leave running, and fails a run that leaves something.
SUPERVISED := $(BIN)/python -m tests.supervisor

.PHONY: demo test check interop soak bench scale schemas lint-truth format lock clean

demo: .venv/installed
	@$(BIN)/cbx demo

# Tests start many processes, and pytest rewrites each test file: neither should be compiled anew every time.
test soak: export PYTHONDONTWRITEBYTECODE :=

test: .venv/installed
	scripts/install-test-packages
	$(SUPERVISED) $(BIN)/pytest -n auto --dist worksteal

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/style tests/test_layout.py

# Proves that cbx and the card-box library share a database. Fails, with 77, where the library cannot be had.
interop: .venv/installed
	$(BIN)/python tests/interop/prepare.py
	$(SUPERVISED) $(BIN)/python -m pytest -vv -rP tests/interop

# What takes too long for every day: the tests marked `soak`. A million messages in and out, and an upgrade of
# a million rows, killed in between; 5,000 turns of 200 agents by 8 workers that are killed and frozen; the whole
# command tree with odd values, for FUZZ_SECONDS.
soak: .venv/installed
	scripts/install-test-packages
	$(SUPERVISED) $(BIN)/pytest -s -m soak

# What users read of the settings, from their table.
docs/reference/settings.md: cardbox_cli/settings.py cardbox_cli/limits.py scripts/settings-page .venv/installed
	$(BIN)/python scripts/settings-page > $@

# The table of the lint's rules in it.
docs/reference/lint.md: $(wildcard cardbox_cli/context/lint/*.py cardbox_cli/providers/*/*rules.py) scripts/rules-table \
	.venv/installed
	$(BIN)/python scripts/rules-table

# How fast cbx is beside floors and peers measured in the same minutes. Fails, with 8, if a target is missed.
# `AGAINST=COMMIT` compares with a commit instead, and `ROWS="startup-* show-json"` measures these rows only.
bench: .venv/installed-bench
	$(BIN)/python -m benchmarks $(if $(AGAINST),--against $(AGAINST)) $(foreach row,$(ROWS),'$(row)')

# Every command on 1,000,000 cards beside the same on 10,000; some ten minutes, 3 GB of disk for that time.
scale: .venv/installed
	$(BIN)/python -m benchmarks.scale

# What providers' requests may hold, as their packages of today have it.
schemas: .venv/installed
	$(BIN)/python scripts/request-schemas

# Whether the lint agrees with what providers really said, and finds what is broken on purpose. Fails, with 8,
# where it does not, and with 77 where the recorded requests are not beside the project.
lint-truth: .venv/installed
	$(BIN)/python -m tests.lint_truth

format: .venv/installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# What .venv is made of: these very files, and no others. `LOCK=` takes what the bounds of pyproject.toml allow
# today, for a platform that a file of the lock does not serve.
LOCK ?= requirements.lock

# The newest of everything that pyproject.toml allows, for every platform and Python, each file with its hash.
lock: .venv/installed
	$(BIN)/python -m pip install --quiet 'uv>=0.8'
	$(BIN)/uv pip compile pyproject.toml --no-config --quiet --upgrade --all-extras --group dev \
		--universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --output-file requirements.lock

.venv/installed: pyproject.toml $(LOCK)
	@test -n "$(PYTHON)" || { echo "cbx needs Python 3.11 or later; name it with PYTHON=…" >&2; exit 1; }
	@echo "1/3  a virtual environment, .venv, of $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@echo "2/3  a newer pip in it"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "3/3  cbx and what it stands on, with a Postgres server and the tools of 'make check': a minute or two"
	@if [ -n "$(LOCK)" ]; then \
		$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK) && \
		$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	else \
		$(BIN)/python -m pip install --quiet --editable . --group dev; \
	fi
	@touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/python -m pip install --quiet --group bench
	touch $@

clean:
	rm -rf .venv .venv-interop build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
