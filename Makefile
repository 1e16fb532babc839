# Every target sets up what it needs first; see scripts/setup.sh. What follows `##` is what `make help` says of a target.
.PHONY: help run test test-parallel test-alone test-core test-fast test-of test-simulation coverage fuzz operations \
	scenario pipeline-demo cluster-demo screenshots check format setup setup-dev setup-tests clean
.NOTPARALLEL:
# `make test PYTHON=python3.13` (a name or a path) does it with that Python, in an environment of its own.
PYTHON :=
ENVIRONMENT := .venv$(if $(PYTHON),-$(subst /,-,$(PYTHON:/%=%)))
BIN := $(ENVIRONMENT)/bin
# File by file in the order of the alphabet: unit tests come last, whose many small files end on both processes at the same time.
SHARED := -n 2 --dist loadfile --no-loadscope-reorder
# pytest rewrites the assertions of each test module. Without compiled files every worker does that again in every run.
unexport PYTHONDONTWRITEBYTECODE

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' Makefile | awk -F '|' '{ printf "make %-16s %s\n", $$1, $$2 }'

run: setup  ## Start a broker on the embedded store, data in ./data
	@$(BIN)/quire broker start --data data

test: check test-parallel test-alone  ## All checks and all tests

test-parallel: setup-tests  ## The tests that share the machine, two at a time
	$(BIN)/pytest $(SHARED) -m "not alone"

test-alone: setup-tests  ## The tests that need the machine for themselves, one at a time
	$(BIN)/pytest -m alone $$(grep -rl 'mark\.alone' tests --include='test_*.py')

test-core: setup-tests  ## The short tests of single parts: enough to see whether another Python will do
	$(BIN)/pytest -n 2 -m "not slow and not alone" tests/unit tests/property tests/conformance

test-fast: setup-dev  ## The tests that take no time: less than a minute
	$(BIN)/pytest -n 2 -q -m "not slow and not alone"

# The package's name without `quire.`: make test-of PACKAGE=broker.queues
PACKAGE =
test-of: setup-dev  ## The tests of one package: make test-of PACKAGE=broker.queues
	@files=$$(scripts/tests-of.sh "$(PACKAGE)") && $(BIN)/pytest -q -m "not alone" $$files

test-simulation: setup-dev  ## 10,000 random histories with crashes: a few minutes
	$(BIN)/python -m tests.simulation --seeds 10000 --everywhere 20

coverage: setup-tests  ## The lines of quire that no test runs, of the tests that share the machine
	$(BIN)/pytest $(SHARED) -q -m "not alone" --cov --cov-report=term-missing:skip-covered

fuzz: setup-dev  ## Fourteen minutes of random input for the STOMP and OpenWire decoders, links, verbs, the HTTP API, selectors and settings
	for what in stomp_decoder openwire_decoder links verbs http selectors settings; do $(BIN)/python -m tests.fuzz.$$what --seconds 120 || exit 1; done

operations: setup-dev  ## Large operations: for how long the event loop is busy at a stretch, and what memory they take
	$(BIN)/python -m benchmarks.operations

# `make scenario NAME="groups --seed 2"`; without a name it says which there are.
scenario: setup-dev  ## What a broker must pass, with a broker of its own: `make scenario NAME=groups`
	$(BIN)/python -m benchmarks.scenarios $(or $(NAME),--help)

screenshots: setup-tests  ## The pictures of the console and of the reports in docs/images, made anew
	$(BIN)/python -m tests.acceptance.console.screenshots
	@scripts/setup-java.sh
	$(BIN)/python -m tests.spark.report_pictures

pipeline-demo: setup-dev  ## 200,000 orders to a consumer that comes and goes, and the audit of the ledger
	@scripts/setup-java.sh
	$(BIN)/python -m benchmarks.pipeline_demo

cluster-demo: setup-tests  ## Three brokers as one under load; one is killed, and the others take over
	$(BIN)/python -m benchmarks.cluster demo

check: setup-dev  ## Style, types, layers, dead code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

format: setup-dev  ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

setup:
	@scripts/setup.sh run $(ENVIRONMENT) $(PYTHON)

setup-dev:
	@scripts/setup.sh dev $(ENVIRONMENT) $(PYTHON)

setup-tests: setup-dev
	@scripts/setup-tests.sh

clean:  ## Remove everything the other targets made, except ./data
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
	rm -rf tests/acceptance/stompjs/node_modules *.egg-info
	find quire tests -name __pycache__ -type d -prune -exec rm -rf {} +
