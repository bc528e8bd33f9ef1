# make quickstart | test | lint | types | format | clean.  PYTHON=python3.12 chooses the interpreter.
PYTHON ?= python3
VENV ?= .venv
# The first run is runs/quickstart, which `distrl table quickstart` measures; later ones have the time in their names.
NAME := quickstart$(if $(wildcard runs/quickstart),-$(shell date +%Y%m%d-%H%M%S))
ARGS ?=

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: quickstart test lint types format clean
.DEFAULT_GOAL := quickstart
.DELETE_ON_ERROR:

# Trains an agent on simulated phones and writes runs/$(NAME)/report.html.
quickstart: $(VENV)/.installed
	$(BIN)/distrl train configs/quickstart.yaml --set name=$(NAME) $(ARGS)

# Two files of tests at a time: most wait for other processes.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/distrl.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "distrl needs Python 3.10 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# Each stamp is as new as what it installed from.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing distrl and what it needs; the first time takes some minutes."
	$(INSTALL) -e ".[train,report]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing distrl, what it needs and its tools; the first time takes some minutes."
	$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.installed
