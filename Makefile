# make demo      open the workbench on a task of kernels/; the first time, create .venv (minutes) and give a tour
# make test      lint, types and the tests that need no GPU, in the same .venv
# make test-long the tests that take too long for every change
# make lint      only lint and types
# make gpu-test  the tests that need a GPU
# make faults    play the table of faults (GPU=1: those that need a GPU) and write it to build/faults.md
# make gates     play the cheats, then the honest oddities (GPU=1: on a GPU), and write them to build/gates.md
# make fuzz      more than 20,000 made-up lines, logs, tasks, settings and profiles
# make soak      MINUTES=30 of good and bad saves (GPU=1 on a GPU); grows nothing
# make kill9     kill -9 of the workbench N=200 times (TORCH=1 with torch, LOAD=15 under load)
# make measure   measure startup, first paint and save-to-first-row
# make clean     remove .venv and build outputs
#
# .venv is created from PYTHON. If PYTHON already has torch, its packages are used unchanged:
#   make demo PYTHON=/path/to/python

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_PACKAGE := torch==2.13.0
TRITON := triton==3.6.0
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Modules are compiled on first import, and most of torch is never imported: this saves half a minute.
# Progress bars on a terminal. stderr is asked, since stdout is a pipe inside the substitution.
INSTALL := $(PIP) install --no-compile $$(test -t 2 || echo --quiet)
unexport PYTHONDONTWRITEBYTECODE

HAS = -c 'import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))'
SITE_DIRS = -c 'import sys; print(*(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))), sep="\n")'
OWN_SITE = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
NEEDS_CUDA = -c 'import json, sys; parts = json.load(sys.stdin)["install"][0]["metadata"]["requires_dist"]; \
  sys.exit(not any(part.startswith(("nvidia-", "cuda-")) for part in parts))'

.PHONY: demo test test-long lint gpu-test faults gates fuzz soak kill9 measure clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@$(BIN)/kernbench demo
	@echo 'kernbench is in $(BIN): `. $(BIN)/activate` puts it on PATH'

# Three processes for two cores, because some tests wait more than they compute; mypy runs at the same time. The tests
# of a file share fixtures, so they stay in one process; tests/conftest.py puts the slowest files first.
PROCESSES ?= 3
TESTS := $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	@types=$$(mktemp); trap 'kill $$checking 2> /dev/null; rm -f $$types' EXIT; trap 'exit 130' INT TERM HUP; \
	$(BIN)/python -m mypy > $$types 2>&1 & checking=$$!; \
	$(TESTS) -m "not gpu and not long"; tests=$$?; \
	wait $$checking; code=$$?; cat $$types; \
	test $$code = 0 && exit $$tests; exit $$code

test-long: $(VENV)/installed-dev
	$(TESTS) -m "not gpu and long"

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/python -m mypy

gpu-test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m gpu

faults: $(VENV)/installed-dev
	@mkdir -p build
	$(BIN)/python -m tests.faults $(if $(GPU),--gpu) --output build/faults$(if $(GPU),-gpu).md

gates: $(VENV)/installed-dev
	@mkdir -p build
	@caught=0; $(BIN)/python -m tests.gates $(if $(GPU),--device cuda) --output build/gates$(if $(GPU),-gpu).md || caught=1; \
	$(BIN)/python -m tests.gates $(if $(GPU),--device cuda) --honest --output build/gates-honest$(if $(GPU),-gpu).md \
	  && exit $$caught

# So many examples of each property.
CASES ?= 2500
fuzz: $(VENV)/installed-dev
	KERNBENCH_FUZZ=$(CASES) $(BIN)/python -m pytest -q -s tests/fuzz

MINUTES ?= 30
soak: $(VENV)/installed-dev
	$(BIN)/python -m tests.measure.soak $(MINUTES) $(if $(GPU),--device cuda)

N ?= 200
kill9: $(VENV)/installed-dev
	$(BIN)/python -m tests.measure.kill9 $(N) $(if $(TORCH),--torch) $(if $(LOAD),--load $(LOAD))

measure: $(VENV)/installed
	@for script in tests/measure/measure_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kernbench needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A .pth file makes the packages of a PYTHON that has torch visible in .venv; unlike --system-site-packages, this also
# works if PYTHON is in a virtual environment itself. It is named 0-... to be read first: other .pth files need it.
$(VENV)/installed-torch: $(BIN)/python
	@set -e; if $(PYTHON) $(HAS) torch; then \
	  echo "using torch from $(PYTHON)"; \
	  $(PYTHON) $(SITE_DIRS) > "$$($(BIN)/python $(OWN_SITE))/0-packages-of-python.pth"; \
	else \
	  if $(PIP) install --quiet --dry-run --no-deps --report - $(TORCH_PACKAGE) | $(BIN)/python $(NEEDS_CUDA); then \
	    echo "pip finds no CPU build of $(TORCH_PACKAGE) for this Python; downloading a CUDA build (several GB)"; \
	  fi; \
	  echo "installing $(TORCH_PACKAGE) into $(VENV): one to two minutes for a CPU build (about 200 MB), only this time"; \
	  began=$$(date +%s); $(INSTALL) $(TORCH_PACKAGE); \
	  if [ "$$(uname -s)" = Linux ] && ! $(BIN)/python $(HAS) triton; then $(INSTALL) $(TRITON); fi; \
	  echo "torch took $$(($$(date +%s) - began)) s"; \
	fi
	@touch $@

$(VENV)/installed: pyproject.toml $(VENV)/installed-torch
	@echo "installing kernbench into $(VENV): about half a minute"
	@$(INSTALL) $$($(BIN)/python $(HAS) hatchling editables && echo --no-build-isolation) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "installing the development tools into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@test -x $(BIN)/ruff || $(INSTALL) --no-deps --ignore-installed ruff  # else only PYTHON has the script
	@touch $@
