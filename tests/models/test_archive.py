"""A run in one zip: loads as the run does; strange archives are refused."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import intervae as package
from command import PENDULUM, SMALL, intervae, succeeded
from intervae.errors import RunError
from intervae.export import export_run
from intervae.models import MODELS
from intervae.models.archive import LARGEST
from intervae.testing import ramps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "run"
    MODELS["vae"](ramps().spec, latents=3, channels=(8,), hidden=16).save(folder)
    return folder


def write(path: Path, files: Iterable[tuple[str, bytes]], compression: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir()}


def test_zip_loads_as_the_run(run: Path, tmp_path: Path) -> None:
    exported = export_run(run, "zip", tmp_path / "x.zip")
    assert set(exported.files) <= set(LARGEST)
    first, second = package.load(run), package.load(tmp_path / "x.zip")
    assert second.trained
    images = ramps().test.images
    assert torch.equal(first.encode(images), second.encode(images))
    export_run(tmp_path / "x.zip", "zip", tmp_path / "y.zip")  # equal runs, equal archives
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "y.zip").read_bytes()


def test_compressed_zip_made_by_hand_loads(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "x.zip", contents(run).items(), zipfile.ZIP_DEFLATED)
    assert package.load(path).name == "vae"


def test_commands_take_a_zip(tmp_path: Path) -> None:
    train = ["train", "causal-vae", *SMALL, *PENDULUM, "--graph", "true", "--no-evaluate"]
    succeeded(intervae(*train, "--out", tmp_path / "run"))
    succeeded(intervae("export", tmp_path / "run", "--to", "zip", "--out", tmp_path / "a.zip"))
    strips = []
    for source in ("run", "a.zip"):
        out = tmp_path / f"{source}.png"
        query = ["intervene", tmp_path / source, "--do", "light=100", "--out", out]
        assert intervae(*query).code == 0
        strips.append(out.read_bytes())
    assert strips[0] == strips[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../config.json", "no exported run has"),
        ("/etc/passwd", "no exported run has"),
        ("run/config.json", "no exported run has"),
        ("model.pkl", "no exported run has"),
        ("CONFIG.JSON", "no exported run has"),
    ],
)
def test_unknown_names_are_refused(run: Path, tmp_path: Path, name: str, words: str) -> None:
    path = write(tmp_path / "x.zip", [*contents(run).items(), (name, b"{}")])
    with pytest.raises(RunError, match=words):
        package.load(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_bombs_are_refused_before_they_are_unpacked(run: Path, tmp_path: Path) -> None:
    files = {**contents(run), "config.json": b" " * (8 * 2**20)}
    path = write(tmp_path / "x.zip", files.items(), zipfile.ZIP_DEFLATED)
    with pytest.raises(RunError, match=r"config\.json unpacks to 8388608 bytes.*unsafe"):
        package.load(path)
    files["config.json"] = b" " * (LARGEST["config.json"] + 1)
    with pytest.raises(RunError, match="unsafe"):
        package.load(write(tmp_path / "y.zip", files.items()))


def test_false_sizes_are_refused(run: Path, tmp_path: Path) -> None:
    """The directory says 10 bytes, the file unpacks to more: only 10 are read."""
    path = write(tmp_path / "x.zip", contents(run).items(), zipfile.ZIP_DEFLATED)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 10)
    path.write_bytes(raw)
    with pytest.raises(RunError):
        package.load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_damaged_archives_are_refused(run: Path, tmp_path: Path) -> None:
    files = contents(run)
    whole = write(tmp_path / "whole.zip", files.items()).read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 255
    twice = io.BytesIO(whole)
    with zipfile.ZipFile(twice, "a") as archive:
        archive.writestr("config.json", b"{}")
    encrypted = bytearray(whole)
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    for content, words in (
        (b"", "not a readable zip"),
        (b"not a zip", "not a readable zip"),
        (whole[: len(whole) // 2], "not a readable zip"),
        (bytes(broken), "not a readable|cannot be read"),
        (twice.getvalue(), "twice"),
        (bytes(encrypted), "encrypted"),
    ):
        (tmp_path / "x.zip").write_bytes(content)
        with pytest.raises(RunError, match=words):
            package.load(tmp_path / "x.zip")
    del files["model.safetensors"]
    with pytest.raises(RunError, match=r"has no model\.safetensors.*intervae export"):
        package.load(write(tmp_path / "y.zip", files.items()))


def test_unfinished_run_is_not_exported(run: Path, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "config.json").write_bytes((run / "config.json").read_bytes())
    with pytest.raises(RunError, match=r"no model\.safetensors"):
        export_run(tmp_path / "part", "zip", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()
