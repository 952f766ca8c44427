# Two commands on a bare machine: `make demo` and `make test`. Both make the virtual environment .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo serve test page-test slow lint install inventory docs bench clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# Trains CausalVAE on Pendulum from nothing but images and labels, measures it against the simulator's truth, writes the pictures.
demo: $(READY)
	$(BIN)/intervae train causal-vae --data pendulum --size 64 --out runs/demo --overwrite --set decoder=layers --set prior_std=0.015 --set channels=16,16,32,32 --set batch_size=32 --epochs 15
	@echo "Set a variable and see the picture change: make serve (or $(BIN)/intervae serve runs/demo)"

# The page of the demo's run, or of others: make serve RUNS="runs/a runs/b".
RUNS ?= runs/demo
serve: $(READY)
	$(BIN)/intervae serve $(RUNS)

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The page in a real browser. Needs Chromium (Debian: apt-get install chromium) and the extra page-test; skipped without.
page-test: $(READY)
	@$(BIN)/python -c "import playwright" 2>/dev/null || echo "for the browser tests: $(BIN)/pip install -c constraints.txt -e '.[page-test]'"
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "for the browser tests: apt-get install chromium"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 1 -rs tests/serve tests/page

# Pages generated from the registries.
inventory: $(READY)
	$(BIN)/python docs/make_inventory.py

# The rows of benchmarks/README.md that a CPU measures in minutes, and the page. On an idle machine under 10 minutes.
bench: export OMP_NUM_THREADS = 1
bench: SCALE = $(BIN)/python benchmarks/discovery_scale.py --merge --out benchmarks/results/discovery_scale
bench: $(READY)
	$(BIN)/python benchmarks/startup.py --out benchmarks/results/startup
	$(BIN)/python benchmarks/stacks.py --seeds 4 --epochs 2 --out benchmarks/results/stacks
	$(BIN)/python benchmarks/ranks.py --out benchmarks/results/ranks
	$(SCALE) --variables 10,20 --seeds 3
	$(SCALE) --variables 50 --methods ges,dagma
	$(SCALE) --variables 100 --methods dagma
	$(BIN)/python benchmarks/make_page.py

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
