"""Wheel and sdist: their contents, and a clean environment of each Python that runs the wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import intervae

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13")
SMOKE = """
import intervae
data = intervae.load_data("pendulum", size=16, samples=96)
model = intervae.create("causal-vae", data, channels=(4, 4), epochs=1, batch_size=16)
model.fit(data, seed=0, out="run")
pictures = intervae.load("run").counterfactual(data.test.images[:2], do={"light": 100.0})
assert pictures.shape == (2, 3, 16, 16)
"""


def find_python(version: str) -> str | None:
    """Return an interpreter of this version that runs: of the path, or installed by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"), reverse=True)
    for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
        # a shim of pyenv is on the path also where its Python is not active
        if candidate and not subprocess.run([candidate, "-V"], capture_output=True).returncode:
            return candidate
    return None


def run(*words: object, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_metadata() -> None:
    assert PROJECT["version"] == intervae.__version__
    classifiers = {each.rpartition(" ")[2] for each in PROJECT["classifiers"]}
    assert set(VERSIONS) <= classifiers
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {intervae.__version__}\n" in citation
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in pins.splitlines()}
    extras = PROJECT["optional-dependencies"]
    for requirement in (
        *extras["docs"],
        *extras["onnx"],
        *extras["serve"],
        *extras["dev"],
        *PROJECT["dependencies"],
    ):
        name = re.split(r"[>=<]", requirement)[0].lower()
        assert name in pinned or name == "intervae[serve]", requirement


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of the tracked files."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "source"
    names = run("git", "ls-files", "-z", folder=ROOT).split("\0")
    for name in filter(None, names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--outdir", folder, source, folder=folder)
    return folder


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_package(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "ls-files", "src", folder=ROOT).split()
    assert {name.removeprefix("src/") for name in tracked} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    assert any(name.endswith("LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/intervae/__init__.py"} <= inside


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_runs_in_a_clean_environment(version: str, built: Path, tmp_path: Path) -> None:
    """Without the extras; the pinned versions of constraints.txt."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    (wheel,) = built.glob("*.whl")
    run(python, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    installed = run(python, "-m", "pip", "list", "--format=freeze", folder=tmp_path).lower()
    assert not re.search(
        r"^(pytest|ruff|mypy|hypothesis|tensorboard|sphinx|onnx)==", installed, re.M
    )
    assert run(python, "-c", "import sys; print(sys.version)", folder=tmp_path).startswith(version)
    run(python, "-c", SMOKE, folder=tmp_path)
    shown = run(tmp_path / "venv" / "bin" / "intervae", "--version", folder=tmp_path)
    assert shown.strip() == f"intervae {intervae.__version__}"
