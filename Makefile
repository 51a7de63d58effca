# One place for every routine job. `make help` lists them.

PORT ?= 9092
DATA ?= data
JOBS ?= 2
TEST_JOBS ?= 3
BENCH ?=
DURATION ?=
KILLS ?= 100
RECORDS ?= 1000000
FAULTS ?= 60
MINUTES ?= 60
ROWS ?=
SEEDS ?= 1000
SEED ?=
COUNT ?= 100
GB ?= 10
MODULE ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for candidate in python3.14 python3.13 python3.12 python3.11 python3; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$candidate; break; fi; done)

# Where Python is told to keep no compiled modules, every broker and worker that a test starts compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run broker check test lint format generate docs crash crash-transactions crash-mirror chaos sim network mutants recorded bench bench-cleanup clean tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment and install Ottla in it, for development

$(STAMP): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Ottla needs Python 3.11 or newer, and none was found; install it or set PYTHON=/path/to/python." >&2; exit 1; fi
	@test -x $(BIN)/python || { echo "Making the virtual environment $(VENV) with $(PYTHON) …"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Ottla and its development tools in $(VENV); it takes a minute or two, most of it for Spark (about 400 MB) …"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[columns,avro,spark,connect,zookeeper,app,dev]'
	@touch $@

run: $(STAMP) ## Run the demo: a broker on 127.0.0.1 (PORT=9092), events, and a pipeline on Spark (DURATION=30 ends it; data in DATA=data)
	@$(BIN)/ottla demo --port $(PORT) --data $(DATA) $(if $(DURATION),--duration $(DURATION))

broker: $(STAMP) ## Run only a broker on 127.0.0.1 (PORT=9092) with its data in ./data/broker (DATA=…); Ctrl-C stops it
	@$(BIN)/ottla start --override listeners=PLAINTEXT://127.0.0.1:$(PORT) --override log.dirs=$(DATA)/broker \
		--override group.initial.rebalance.delay.ms=0

check: lint ## Format, lint, types, layers and the fast tests: before every commit
	$(BIN)/pytest -q -n $(TEST_JOBS) --hypothesis-profile=quick tests/unit

test: lint tools ## Everything CI runs
	$(BIN)/pytest -n $(TEST_JOBS) --dist loadgroup tests

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(STAMP) ## Write anew the clients for threads, from those for asyncio, and the types of their settings
	$(BIN)/python -m scripts.client_keywords
	$(BIN)/python -m scripts.sync_shells

docs: $(STAMP) ## Write the pages about settings and permissions anew: docs/configuration.md, client-configuration.md, authorization.md
	$(BIN)/python -m ottla.broker.config.docs docs/configuration.md
	$(BIN)/python -m ottla.client.docs docs/client-configuration.md
	$(BIN)/python -m ottla.broker.access_docs docs/authorization.md

crash: $(STAMP) ## Kill a broker under load (KILLS=100) at seeded moments (SEED=…) and check all it leaves behind
	$(BIN)/python -u -m tests.crash.kill_run --kills $(KILLS) $(if $(SEED),--seed $(SEED))

crash-transactions: $(STAMP) ## Kill brokers and clients (KILLS=100, SEED=…) in the middle of transactions: all or nothing, exactly once
	$(BIN)/python -u -m tests.crash.transaction_run --kills $(KILLS) $(if $(SEED),--seed $(SEED))

crash-mirror: $(STAMP) ## Kill a mirror's driver, Java process and brokers (KILLS=…, SEED=…) while records come: each is copied once
	$(BIN)/python -u -m tests.crash.mirror_run $(if $(filter command,$(origin KILLS)),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

chaos: $(STAMP) ## Three brokers under the faults of a table (ROWS=F01,D04; SEED=…; ROWS=F20 MINUTES=60 is a random mix; NETWORK=proxies): nothing lost or doubled
	$(BIN)/python -u -m tests.cluster.chaos --faults $(FAULTS) --minutes $(MINUTES) $(if $(ROWS),--rows $(ROWS)) $(if $(SEED),--seed $(SEED)) $(if $(NETWORK),--network $(NETWORK))

sim: $(STAMP) ## Simulate clusters in which everything goes wrong (SEEDS=1000), or one of them with all that happens (SEED=…)
	PYTHONHASHSEED=0 $(BIN)/python -u -m ottla.testing.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --jobs $(JOBS) --twice)

network: $(STAMP) ## A million records over a bad network (RECORDS=…, SEED=…): none lost, doubled or reordered
	$(BIN)/python -u -m tests.client.network_run --records $(RECORDS) $(if $(SEED),--seed $(SEED))

mutants: $(STAMP) ## Plant seeded mistakes (COUNT=100, SEED=…, MODULE=src/ottla/log, SUITE=1 for all tests) and see which no test notices
	$(BIN)/python -m tests.mutants --count $(COUNT) --jobs $(JOBS) --survivors build/survivors.toml $(if $(SEED),--seed $(SEED)) $(if $(MODULE),--module $(MODULE)) $(if $(SUITE),--suite)

recorded: $(STAMP) ## Play what Kafka's tools were recorded to print, if the recording is beside this project, through our scripts
	$(BIN)/pytest -q tests/interop/terminal/recorded.py

bench: $(STAMP) ## Measure against limits and peers (BENCH=--quick for a short run)
	$(BIN)/python -m bench $(BENCH)

bench-cleanup: $(STAMP) ## Large topics (GB=10) under a producer at half its top speed: retention, compaction, a start after kill -9
	$(BIN)/python -m bench.compaction.under_load --gb $(GB)

tools: $(STAMP)
	@scripts/install_tools.sh
	@$(BIN)/python -m tests.spark.kafka_source
	@command -v java >/dev/null 2>&1 || echo "Java was not found (install openjdk-17-jre-headless), so the tests that use Spark and Apache Kafka will be skipped."

clean: ## Remove caches and build products (not the data, not the virtual environment)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
