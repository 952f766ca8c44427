"""Input of extreme size, and names that are not UTF-8: refused at once, or handled."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import intervae as package
from command import SMALL, contents, intervae, make_folder, refused, succeeded
from intervae.data.array_files import read_arrays
from intervae.data.unpacked_size import check_unpacked_size
from intervae.discovery import bootstrap
from intervae.errors import DataError, UsageError

TRAIN = ["train", "causal-vae", *SMALL, "--no-evaluate"]
MILLION = 1_000_000


def write_columns(path: Path, count: int, rows: int = 60) -> Path:
    rng = np.random.default_rng(0)
    header = ",".join(f"c{i}" for i in range(count))
    lines = [",".join(map(str, row)) for row in rng.integers(0, 99, (rows, count))]
    path.write_text("\n".join([header, *lines]))
    return path


@pytest.mark.parametrize("number", [2**64, 10**9, 10_001])
def test_numbers_of_resamples_and_frames_have_a_limit(
    number: int, tmp_path: Path, finished: Path
) -> None:
    table = write_columns(tmp_path / "t.csv", 3)
    refused(intervae("discover", table, "--bootstrap", number), 2, "--bootstrap")
    refused(intervae("report", finished, "--bootstrap", number), 2, "--bootstrap")
    refused(intervae("intervene", finished, "--steps", number), 2, "--steps")
    refused(intervae("reproduce", "causalvae-table1", "--seeds", number), 2, "--seeds")
    with pytest.raises(UsageError, match=f"resamples={number} is more than 10000"):
        bootstrap(np.random.default_rng(0).normal(size=(200, 3)), resamples=number)


def test_number_of_predicted_frames_has_a_limit(make_data, make_model) -> None:
    data = make_data((1, 16, 16), frames=6)
    model = make_model("temporal-causal-prior-vae", data)
    with pytest.raises(package.IntervaeError, match="steps=1000000 is more than 1000 frames"):
        model.extrapolate(data.test.images[:1], MILLION)


def test_a_hundred_thousand_columns_are_refused_at_once(tmp_path: Path) -> None:
    table = write_columns(tmp_path / "t.csv", 100_000, rows=3)
    start = time.monotonic()
    refused(intervae("discover", table), 1, "100000 columns are too many", "--columns")
    folder = make_folder(tmp_path / "mine", images=8)
    lines = (folder / "labels.csv").read_text().splitlines()
    more = ",".join(f"m{i}" for i in range(100_000))
    values = ",".join("1" for _ in range(100_000))
    (folder / "labels.csv").write_text(
        "\n".join([f"{lines[0]},{more}", *(f"{line},{values}" for line in lines[1:])])
    )
    refused(intervae(*TRAIN, "--data", folder), 1, "100002 columns are too many", "--variables")
    assert time.monotonic() - start < 30
    data = package.load_data(folder, variables=["level", "width"])
    assert data.names == ("level", "width")


# ---- compressed arrays --------------------------------------------------------------------------
def write_bomb(path: Path, shape: tuple[int, ...], content: int) -> None:
    """Write an .npz whose `images` has a header of `shape` and `content` zeros, compressed."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("images.npy", "w", force_zip64=True) as stream,
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(content // 2**20):
            stream.write(bytes(2**20))


def test_bomb_in_an_npz_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    write_bomb(path, (300, 1024, 1024), 300 * 2**20)
    assert path.stat().st_size < 2**20
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("unpacked"))
    refused(intervae(*TRAIN, "--data", path), 1, "bomb.npz: 'images' would unpack", "unsafe")


def test_header_that_promises_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    write_bomb(tmp_path / "x.npz", (10**6, 1024, 1024), 2**20)
    with pytest.raises(DataError, match=r"'images' has 1048576 bytes, but its header says"):
        read_arrays(tmp_path / "x.npz")


def test_h5_array_without_stored_values_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("images", (300, 1024, 1024), "u1", chunks=(1, 1024, 1024))
    with pytest.raises(DataError, match="would unpack from 0"):
        read_arrays(tmp_path / "x.h5")


def test_usual_compression_is_accepted(tmp_path: Path) -> None:
    check_unpacked_size(26 * 2**20, 3 * 2**30, "images", "dsprites")  # ratio of dSprites
    pictures = np.zeros((64, 64, 64), np.uint8)
    np.savez_compressed(tmp_path / "x.npz", images=pictures)
    assert read_arrays(tmp_path / "x.npz")["images"].shape == pictures.shape


# ---- names --------------------------------------------------------------------------------------
@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX only")
def test_folders_whose_names_are_not_utf8_are_handled(tmp_path: Path) -> None:
    name = os.fsdecode(b"gr\xfcn")
    folder = make_folder(tmp_path / name / "mine")
    moved = folder.rename(folder.with_name(name))
    refused(intervae(*TRAIN, "--data", moved, "--out", tmp_path / name / "run"), 2, "must be UTF-8")
    run = tmp_path / "run"
    succeeded(intervae("train", "causal-vae", *SMALL, "--data", moved, "--out", run))
    (run / "README.md").read_text(encoding="utf-8")
    before = contents(run)["model.safetensors"]
    assert "nothing to do" in succeeded(intervae("resume", run, "--no-evaluate")).out
    assert contents(run)["model.safetensors"] == before
    succeeded(intervae("evaluate", run))
    succeeded(intervae("intervene", run, "--do", "level=100", "--out", run / "strip.png"))
