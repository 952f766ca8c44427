"""What a fresh process does not import: the large packages that a command or a training lacks.

By `sys.modules`, not by time, which other programs on the machine change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LARGE = {
    "torch": 1.0,
    "torch._dynamo": 1.5,
    "scipy.stats": 0.5,
    "sklearn": 0.9,
    "matplotlib": 0.3,
    "scipy.optimize": 0.3,
    "scipy.interpolate": 0.3,
    "scipy.spatial": 0.2,
    "pandas": 0.2,
    "numba": 0.2,
    "networkx": 0.15,
}
"""Package -> CPU seconds of its import."""
CORE = {"torch"}
ADDED = {"scipy.optimize", "scipy.interpolate", "scipy.spatial"}  # of the search for a graph
FIT = """
import numpy as np
import intervae
rng = np.random.default_rng(0)
labels = rng.uniform(-1, 1, (120, 2))
labels[:, 1] += labels[:, 0] ** 2
images = np.clip(rng.integers(0, 255, (120, 3, 8, 8)), 0, 255).astype(np.uint8)
variables = [intervae.Variable("a"), intervae.Variable("b")]
data = intervae.build_dataset("squares", images, labels, variables)
model = intervae.create("causal-vae", data, epochs=1{settings})
model.fit(data, out={out!r}, tensorboard=False)
"""


def imported(program: str) -> set[str]:
    """Return the packages of `LARGE` in sys.modules at the end of a fresh process."""
    program += "\nimport json, sys\n"
    program += f"print(json.dumps([m for m in {list(LARGE)} if m in sys.modules]))"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.strip().rpartition("\n")[2]))


def command(*words: str) -> str:
    return (
        "import sys\nfrom intervae.cli import main\n"
        f"sys.argv = ['intervae', *{words}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code"
    )


@pytest.mark.parametrize(
    "program",
    ["import intervae", command("--help"), command("train", "--help"), command("--version")],
    ids=["import", "help", "train-help", "version"],
)
def test_import_and_help_import_nothing_large(program: str) -> None:
    assert imported(program) == set()


@pytest.mark.parametrize("words", ["models", "datasets", "metrics", "experiments"])
def test_lists_import_nothing_large(words: str) -> None:
    assert imported(command(words)) == set()
    assert imported(command(words, "--json")) == set()


def test_training_with_a_known_graph_imports_torch_alone(tmp_path) -> None:
    program = FIT.format(settings=", graph='a -> b'", out=str(tmp_path / "run"))
    assert imported(program) == CORE


def test_training_with_a_learned_graph_adds_the_search_only(tmp_path) -> None:
    program = FIT.format(settings="", out=str(tmp_path / "run"))
    assert imported(program) <= CORE | ADDED
