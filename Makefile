# Every target sets up what it needs: a virtual environment in .venv with the pinned packages, for the demo those of
# bertkit alone, for the rest those of development on top.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BARE := $(VENV)/.bare
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
OTHERS := $(VENV)/others

MINUTES ?= 60
EXAMPLES ?= 1000

.PHONY: help demo test lint bench test-faults test-ranks test-plans test-others test-spacy test-ray test-gs fuzz soak store-stall clean

help:           ## Say what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /make \1\t/' | expand -t 20

demo: $(BARE)   ## Run the main job end to end on embedded data
	$(BIN)/bertkit demo

test: lint      ## Lint, check types, run the tests on all cores
	$(BIN)/python -m pytest -n auto

lint: $(READY)  ## Lint and check types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## Measure this machine, beside transformers
	$(BIN)/bertkit bench all --against transformers

test-faults: $(READY) ## Run the fault tests with their full counts and print the table of faults
	$(BIN)/python -m pytest -m 'faults or (row and not everyday)' -n auto --dist worksteal -o timeout=1800

test-ranks: $(READY) ## Train on 64 ranks, as threads of one process, and compare with one
	$(BIN)/python -m pytest -m ranks tests/gpu

test-plans: $(READY) ## Plan and compile every large recipe for 1 to 64 GPUs, and a model for this machine
	$(BIN)/python -m pytest -m plans

# optimum and spaCy see the packages of $(VENV), torch among them, and install only those that they want in other versions.
SHARED = $(BIN)/python -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")'
PURELIB = 'import sysconfig; print(sysconfig.get_path("purelib"))'

test-others: $(READY) ## Open exported folders with transformers.js, optimum and an old onnxruntime, which it installs
	npm install --silent --ignore-scripts --prefix $(OTHERS) @huggingface/transformers
	$(PYTHON) -m venv $(OTHERS)/optimum
	$(SHARED) > `$(OTHERS)/optimum/bin/python -c $(PURELIB)`/shared.pth
	$(OTHERS)/optimum/bin/python -m pip install --quiet --disable-pip-version-check 'optimum-onnx[onnxruntime]'
	$(PYTHON) -m venv $(OTHERS)/oldest
	$(OTHERS)/oldest/bin/python -m pip install --quiet --disable-pip-version-check 'onnxruntime==1.17.*' 'numpy<2'
	OTHERS=$(abspath $(OTHERS)) $(BIN)/python -m pytest -o timeout=3600 tests/ship/test_opened_by_others.py

test-spacy: $(READY) ## Learn from documents of spaCy, tag them and open them with spaCy, which it installs
	$(PYTHON) -m venv $(OTHERS)/spacy
	$(SHARED) > `$(OTHERS)/spacy/bin/python -c $(PURELIB)`/shared.pth
	$(OTHERS)/spacy/bin/python -m pip install --quiet --disable-pip-version-check 'spacy>=3.7'
	$(OTHERS)/spacy/bin/python -m pytest tests/labels/test_spacy.py tests/finetune/test_spacy_files.py

test-ray: $(READY) ## Make rows and clean text on three Ray nodes while a node and some workers are killed; installs Ray
	$(INSTALL) '.[ray]'
	$(BIN)/python -m pytest tests/engines/test_ray.py

test-gs: $(READY) ## Prepare, train and export on a stand-in for Google Cloud Storage, which it installs
	$(INSTALL) '.[gs]' gcp-storage-emulator
	$(BIN)/python -m pytest tests/stores/test_gs.py

fuzz: $(READY)  ## Feed EXAMPLES (1000) new ones of everything that strangers feed us
	FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n auto -o timeout=3600 tests/fuzz

soak: $(READY)  ## Pretrain for MINUTES (60) with random kills, signals, damage and numbers of processes
	PYTHONPATH=.:tests/support $(BIN)/python tests/support/soak.py --minutes $(MINUTES)

store-stall: $(READY) ## Measure how long steps wait for rows on a store that gives 20 MB/s
	PYTHONPATH=.:tests/support $(BIN)/python tests/support/store_stall.py

clean:          ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info

$(BARE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "bertkit needs Python 3.10 or newer; set PYTHON=/path/to/python3")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $@

$(READY): $(BARE)
	$(INSTALL) '.[dev,track,zh]'
	touch $@
