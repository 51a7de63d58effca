# One place for every routine job. `make help` lists them.

PORT ?= 9092
DATA ?= data
JOBS ?= 2
BENCH ?=
DURATION ?=
KILLS ?= 100
RECORDS ?= 1000000
SEED ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for candidate in python3.14 python3.13 python3.12 python3.11 python3; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$candidate; break; fi; done)

.DEFAULT_GOAL := help
.PHONY: help setup run broker check test lint format docs crash crash-transactions network bench clean tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment and install Ottla in it, for development

$(STAMP): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Ottla needs Python 3.11 or newer, and none was found; install it or set PYTHON=/path/to/python." >&2; exit 1; fi
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[zookeeper,columns,avro,spark,connect,dev]'
	@touch $@

run: $(STAMP) ## Run the demo: a broker on 127.0.0.1 (PORT=9092), events, and a pipeline on Spark (DURATION=30 ends it; data in DATA=data)
	@$(BIN)/ottla demo --port $(PORT) --data $(DATA) $(if $(DURATION),--duration $(DURATION))

broker: $(STAMP) ## Run only a broker on 127.0.0.1 (PORT=9092) with its data in ./data/broker (DATA=…); Ctrl-C stops it
	@$(BIN)/ottla start --override listeners=PLAINTEXT://127.0.0.1:$(PORT) --override log.dirs=$(DATA)/broker

check: lint ## Format, lint, types, layers and the fast tests: before every commit
	$(BIN)/pytest -q -n $(JOBS) tests/unit

test: lint tools ## Everything CI runs
	$(BIN)/pytest -n $(JOBS) --dist loadgroup tests

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## Write docs/configuration.md anew
	$(BIN)/python -m ottla.broker.config_docs docs/configuration.md

crash: $(STAMP) ## Kill a broker under load (KILLS=100) at seeded moments (SEED=…) and check all it leaves behind
	$(BIN)/python -u -m tests.crash.kill_run --kills $(KILLS) $(if $(SEED),--seed $(SEED))

crash-transactions: $(STAMP) ## Kill brokers and clients (KILLS=100, SEED=…) in the middle of transactions: all or nothing, exactly once
	$(BIN)/python -u -m tests.crash.transaction_run --kills $(KILLS) $(if $(SEED),--seed $(SEED))

network: $(STAMP) ## A million records over a bad network (RECORDS=…, SEED=…): none lost, doubled or reordered
	$(BIN)/python -u -m tests.client.network_run --records $(RECORDS) $(if $(SEED),--seed $(SEED))

bench: $(STAMP) ## Measure against limits and peers (BENCH=--quick for a short run)
	$(BIN)/python -m bench $(BENCH)

tools: $(STAMP)
	@scripts/install_tools.sh
	@$(BIN)/python -m tests.spark.kafka_source
	@command -v java >/dev/null 2>&1 || echo "Java was not found (install openjdk-17-jre-headless), so the tests that use Spark and Apache Kafka will be skipped."

clean: ## Remove caches and build products (not the data, not the virtual environment)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
