PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# empty files that mark what is installed: what a user needs, and what a developer needs beyond that
INSTALLED := .venv/.installed
DEVELOPER := .venv/.installed-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The tests run many small tensor operations in two workers, so more threads would only wait for each other. They start
# many processes, so bytecode is written; otherwise each process would compile the sources again. Each worker begins with
# one half of the tests, in order, so that the tests of a file share what is made once; who is done first takes over some.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal
EXAMPLES := $(addprefix tests/end_to_end/test_,readme.py notebooks.py examples.py)

.PHONY: help demo test check docs coverage soak release-check clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "make %-15s%s\n", $$1, $$2}'

# repeated only when the requirements change
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e ".[fast,plots]"
	touch $@

$(DEVELOPER): $(INSTALLED)
	$(INSTALL) -e ".[dev]"
	touch $@

demo: $(INSTALLED)  ## Learn a policy for the Branin function and draw it
	$(BIN)/python -m conbo.demo

test: $(DEVELOPER)  ## All tests but the soak tests and the examples and notebooks (make docs)
	$(PYTEST) -m "not soak" $(addprefix --ignore=,$(EXAMPLES))

check: $(DEVELOPER) docs  ## Format, lint, types, import layers, examples
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(DEVELOPER)  ## Build the pages in docs/_build and run every example in them
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	$(PYTEST) $(EXAMPLES)

coverage: $(DEVELOPER)  ## Tests with line coverage
	$(PYTEST) -m "not soak" --cov=conbo --cov-report=term-missing:skip-covered

soak: $(DEVELOPER)  ## Long runs
	$(PYTEST) -m soak

release-check:  ## Build the wheel in dist, check it, and try it in an empty environment
	$(PYTHON) scripts/check_release.py

clean:  ## Remove the environment and everything that was built
	rm -rf .venv out dist build docs/_build .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
