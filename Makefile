# Every target sets up what it needs first; see scripts/setup.sh.
.PHONY: run test test-core test-fast test-simulation fuzz operations pipeline-demo check format setup setup-dev clean
# `make test PYTHON=python3.13` (a name or a path) does it with that Python, in an environment of its own.
PYTHON :=
ENVIRONMENT := .venv$(if $(PYTHON),-$(subst /,-,$(PYTHON:/%=%)))
BIN := $(ENVIRONMENT)/bin

run: setup  ## Start a broker on the embedded store, data in ./data
	@$(BIN)/quire broker start --data data

test: check  ## All checks and all tests
	@scripts/setup-tests.sh
	$(BIN)/pytest -n 2 -m "not alone"
	$(BIN)/pytest -m alone

test-core: setup-dev  ## The tests of single parts: enough to see whether another Python will do
	@scripts/setup-tests.sh
	$(BIN)/pytest -n 2 tests/unit tests/property tests/conformance

test-fast: setup-dev  ## The tests that take no time
	$(BIN)/pytest -n 2 -q -m "not slow and not alone"

test-simulation: setup-dev  ## 10,000 random histories with crashes: a few minutes
	$(BIN)/python -m tests.simulation --seeds 10000 --everywhere 20

fuzz: setup-dev  ## Ten minutes of random input for the STOMP decoder, the HTTP API, selectors and settings
	for what in stomp_decoder http selectors settings; do $(BIN)/python -m tests.fuzz.$$what --seconds 150 || exit 1; done

operations: setup-dev  ## Large operations: for how long the event loop is busy at a stretch, and what memory they take
	$(BIN)/python -m benchmarks.operations

pipeline-demo: setup-dev  ## 200,000 orders to a consumer that comes and goes, and the audit of the ledger
	@scripts/setup-java.sh
	$(BIN)/python -m benchmarks.pipeline_demo

check: setup-dev  ## Style, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev  ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

setup:
	@scripts/setup.sh run $(ENVIRONMENT) $(PYTHON)

setup-dev:
	@scripts/setup.sh dev $(ENVIRONMENT) $(PYTHON)

clean:  ## Remove everything the other targets made, except ./data
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf tests/acceptance/stompjs/node_modules *.egg-info
	find quire tests -name __pycache__ -type d -prune -exec rm -rf {} +
