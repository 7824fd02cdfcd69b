# Every target makes the virtual environment that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ADAPTERS := .venv-adapters
TEST_EXTRAS := medical,cluster,test
EXTRAS := diffusion,federated,docs,dev,$(TEST_EXTRAS)
export PYTHONDONTWRITEBYTECODE :=  # modules that are compiled once, not in each of many processes
TEST_STAMP := $(VENV)/.installed-test
STAMP := $(VENV)/.installed

.PHONY: adapters demo reproduce test check format docs wheel guarantees power fuzz mutants bench lock clean

demo: $(STAMP)  ## calibrate on the embedded default and print the table of methods
	$(BIN)/pixelbounds demo

test: $(TEST_STAMP)  ## in three minutes: contracts, exactness, equality, errors, small simulations; no torch or browser
	$(BIN)/pytest -n auto --dist worksteal -m "not slow" --doctest-ignore-import-errors

check: $(STAMP)  ## exactly what CI runs: format, lint, types, all tests (of a file on one worker, with what they train)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

format: $(STAMP)  ## rewrite in house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## the documentation site, build/site/index.html; runs the gallery, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(STAMP)  ## dist/*.whl and dist/*.tar.gz
	rm -rf dist
	$(BIN)/python -m build --no-isolation

guarantees: $(STAMP)  ## the statistical tests at full size, 1,000 worlds of most (tests/support/guarantees.md)
	PIXELBOUNDS_WORLDS=1000 PIXELBOUNDS_POWER=tests/support/guarantees.md $(BIN)/pytest tests -m guarantees -q -n 2

WORLDS ?= 15
power: $(STAMP)  ## which wrong procedures the statistical tests would refuse, and how surely (tests/support/power.md)
	PIXELBOUNDS_WORLDS=$(WORLDS) PIXELBOUNDS_POWER=tests/support/power.md $(BIN)/pytest tests -m guarantees -q -n 2

fuzz: $(STAMP)  ## 100,000 edited and resealed files of every kind, in child processes: no signal, hang or fault of ours
	$(BIN)/python tests/support/fuzz.py --cases 100000 --seed 0 --seconds 3000

mutants: $(TEST_STAMP)  ## deliberate faults, one at a time: which of the quick tests catch them (tests/support/mutants.py)
	$(BIN)/python tests/support/mutants.py
	$(BIN)/python tests/support/mutants.py --whole
	$(BIN)/python tests/support/mutants.py --write

adapters:  ## samplers of azula, MONAI, diffusers and deepinv, with the real libraries, in an environment of its own
	$(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/pip install --quiet "$$(grep '^torch==' constraints.txt)"  # first: what follows keeps its build
	$(ADAPTERS)/bin/pip install --quiet --constraint constraints.txt --editable ".[diffusion,test,dev]" monai diffusers einops
	$(ADAPTERS)/bin/pip install --quiet --no-deps azula  # asks for torchvision, which its samplers do not need
	-$(ADAPTERS)/bin/pip install --quiet --no-deps torchvision  # which deepinv needs; one of another build breaks others
	$(ADAPTERS)/bin/python -c "import torchvision" 2>/dev/null \
		&& $(ADAPTERS)/bin/pip install --quiet --constraint constraints.txt deepinv \
		|| $(ADAPTERS)/bin/pip uninstall --quiet --yes torchvision
	$(ADAPTERS)/bin/pip list 2>/dev/null | grep -iE "^(torch|torchvision|azula|monai|diffusers|deepinv) "
	$(ADAPTERS)/bin/pytest tests/samplers/test_adapters.py -n 0 -rps

bench: $(STAMP)  ## measure, print tables, write benchmarks/results/*.json
	$(BIN)/python -m benchmarks

reproduce: $(STAMP)  ## the paper's table and figures: make reproduce NAME=phantom; more options: python -m reproduce NAME --help
	$(BIN)/python -m reproduce $(NAME)

lock: $(STAMP)  ## pin every package at the version that is installed here; comments at the top of the file stay
	{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.new
	mv constraints.new constraints.txt
	touch $(STAMP) $(TEST_STAMP)

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(TEST_STAMP): pyproject.toml constraints.txt | $(VENV)/.made
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$(TEST_EXTRAS)]"
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(VENV)/.made
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@ $(TEST_STAMP)

clean:
	rm -rf $(VENV) $(ADAPTERS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
