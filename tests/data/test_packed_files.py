"""Packed folders with missing, truncated, foreign or hostile files: one sentence each."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intervae.data import load_data, pack
from intervae.data.packed import index as index_module
from intervae.data.packed.read import check_packed
from intervae.errors import DataError

ROWS, SIDE = 60, 32


def pictures(seed: int) -> list[tuple[np.ndarray, dict[str, float]]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 256, (1, SIDE, SIDE)).astype(np.uint8), {"a": float(i), "b": i % 3})
        for i in range(ROWS)
    ]


@pytest.fixture(scope="module")
def two_packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packs")
    for seed in (0, 1):
        pack(pictures(seed), root / f"pack{seed}", shard_mb=0.02)
    return root


@pytest.fixture
def packed(two_packs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_packs / "pack0", tmp_path / "packed"))


def refused(folder: Path, *words: str) -> None:
    """Loading raises one sentence with these words."""
    with pytest.raises(DataError) as caught:
        load_data(folder)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert text.endswith(".")
    assert "\n" not in text


def test_missing_files(packed: Path) -> None:
    shard = packed / "images-00001.npy"
    content = shard.read_bytes()
    shard.unlink()
    refused(packed, "images-00001.npy is missing", "pack the data anew")
    shard.write_bytes(content)
    (packed / "labels.npy").rename(packed / "labels.bak")
    refused(packed, "labels.npy is missing")
    (packed / "packed.json").unlink()
    refused(packed, "shards of packed data but no packed.json")


@pytest.mark.parametrize("cut", [1, 5000])
def test_truncated_shard(cut: int, packed: Path) -> None:
    shard = packed / "images-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-cut])
    refused(packed, "images-00000.npy has", "truncated")


def test_foreign_shard(packed: Path, two_packs: Path) -> None:
    shutil.copy(two_packs / "pack1" / "images-00001.npy", packed)
    refused(packed, "images-00001.npy differs from the file that was packed", "checksum")


def test_wrong_header_and_wrong_type(packed: Path) -> None:
    shard = packed / "images-00000.npy"
    content = shard.read_bytes()
    shard.write_bytes(b"\x00" * 10 + content[10:])
    refused(packed, "images-00000.npy is not an .npy file")
    shard.write_bytes(content.replace(b"'|u1'", b"'|i1'", 1))
    refused(packed, "images-00000.npy holds int8")
    shard.write_bytes(content.replace(b"'|u1'", b"'|O1'", 1))
    refused(packed, "images-00000.npy")
    shard.write_bytes(content.replace(b"32, 32", b"64, 16", 1))
    refused(packed, "of shape", "another packed folder")


def test_change_in_the_middle_needs_the_full_check(packed: Path, monkeypatch) -> None:
    assert check_packed(packed).rows == ROWS
    shard = packed / "images-00000.npy"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    monkeypatch.setattr(index_module, "END", 256)
    for path in packed.glob("*.npy"):
        with path.open("rb") as file:  # the index as END bytes at either end would have made it
            ends = index_module.end_checksum(file)
        change(packed, lambda index, n=path.name, e=ends: _set_ends(index, n, e))
    shard.write_bytes(bytes(content))
    load_data(packed)
    with pytest.raises(DataError, match=r"images-00000.npy is damaged \(its SHA-256 differs"):
        check_packed(packed)


def _set_ends(index: dict[str, Any], name: str, ends: int) -> None:
    for stored in [*index["shards"], *index["columns"].values()]:
        if stored["name"] == name:
            stored["ends"] = ends


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit the index."""
    path = folder / "packed.json"
    index = json.loads(path.read_text())
    edit(index)
    path.write_text(json.dumps(index))


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "path above": lambda i: i["shards"][0].update(name="../outside.npy"),
    "absolute path": lambda i: i["shards"][0].update(name="/etc/passwd"),
    "hidden file": lambda i: i["shards"][0].update(name=".hidden"),
    "no text as name": lambda i: i["shards"][0].update(name=3),
    "shard twice": lambda i: i["shards"].__setitem__(1, i["shards"][0]),
    "fewer rows": lambda i: i["shards"].pop(),
    "negative rows": lambda i: i["splits"].update(train=-1),
    "rows of splits": lambda i: i["splits"].update(train=i["splits"]["train"] + 1),
    "huge rows": lambda i: i["shards"][0].update(shape=[2**60, 1, SIDE, SIDE]),
    "objects": lambda i: i["columns"]["labels"].update(dtype="|O"),
    "labels of another shape": lambda i: i["columns"]["labels"].update(shape=[ROWS, 9]),
    "bad field name": lambda i: i["columns"].update({"a b": i["columns"]["splits"]}),
    "no columns": lambda i: i.update(columns={}),
    "shape of images": lambda i: i.update(image_shape=[SIDE, SIDE]),
    "text as shape": lambda i: i.update(image_shape="abc"),
    "kind": lambda i: i["variables"][0].update(kind="other"),
    "scale": lambda i: i["variables"][0].update(mean="x"),
    "unknown key of a variable": lambda i: i["variables"][0].update(other=1),
    "same name twice": lambda i: i["variables"][1].update(name=i["variables"][0]["name"]),
    "graph": lambda i: i.update(graph={"variables": 3}),
    "notes": lambda i: i.update(notes=[3]),
    "no shards": lambda i: i.pop("shards"),
}


@pytest.mark.parametrize("edit", list(EDITS))
def test_index_that_contradicts_itself(edit: str, packed: Path) -> None:
    change(packed, EDITS[edit])
    refused(packed, "packed.json is damaged", "pack the data anew")


def test_other_indices(packed: Path) -> None:
    change(packed, lambda i: i.update(version=2))
    refused(packed, "version 2", "update intervae")
    for text, words in [
        ("{}", "is not an index of packed data"),
        ("[", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("\xff", "cannot be read"),
    ]:
        (packed / "packed.json").write_bytes(text.encode("latin-1"))
        refused(packed, words)


def test_links_and_pipes(packed: Path, tmp_path: Path) -> None:
    shard = packed / "images-00000.npy"
    outside = tmp_path / "outside.npy"
    shard.rename(outside)
    os.symlink(outside, shard)
    refused(packed, "is a link")
    shard.unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(shard)
        refused(packed, "named pipe")


def test_wrong_values_of_columns(packed: Path) -> None:
    for name, values in [
        ("splits", np.full(ROWS, 2, np.uint8)),
        ("splits", np.full(ROWS, 7, np.uint8)),
        ("labels", np.full((ROWS, 2), np.inf, np.float32)),
    ]:
        original = (packed / f"{name}.npy").read_bytes()
        np.save(packed / f"{name}.npy", values)
        with (packed / f"{name}.npy").open("rb") as file:
            ends = index_module.end_checksum(file)
        old = json.loads((packed / "packed.json").read_text())["columns"][name]["ends"]
        change(packed, lambda i, n=name, e=ends: i["columns"][n].update(ends=e))
        refused(packed, "splits" if name == "splits" else "infinite")
        (packed / f"{name}.npy").write_bytes(original)
        change(packed, lambda i, n=name, e=old: i["columns"][n].update(ends=e))
    load_data(packed)
