# Two commands on a bare machine: `make demo` and `make test`. Both make the virtual environment .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test slow lint install inventory docs clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# Trains CausalVAE on Pendulum from nothing but images and labels, measures it against the simulator's truth, writes the pictures.
demo: $(READY)
	$(BIN)/intervae train causal-vae --data pendulum --size 64 --out runs/demo --overwrite --set decoder=layers --set channels=16,16,32,32 --epochs 24

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# Pages generated from the registries.
inventory: $(READY)
	$(BIN)/python docs/make_inventory.py

# The documentation site, in build/site; any warning is an error.
docs: $(READY)
	$(BIN)/python -c "import furo, myst_nb" 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[docs]"
	rm -rf build/site
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -j 2 -c docs -d build/doctrees -b html . build/site

# Minutes long: kill -9 and resume twenty times, and the like.
slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .mypy_cache
