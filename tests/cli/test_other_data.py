"""Other folders and moved data: `--data` of commands about a run, load_data(test=1.0), files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import intervae as package
from command import SMALL, cell, contents, intervae, make_folder, refused, succeeded
from intervae.errors import DataError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder beside it that has been moved since, to `elsewhere`."""
    home = tmp_path_factory.mktemp("moved")
    folder = make_folder(
        home / "mine", columns={"side": [("left", "right")[i % 2] for i in range(80)]}
    )
    words = ["train", "causal-vae", "--data", folder, *SMALL, "--graph", "level -> width"]
    succeeded(intervae(*words, "--no-evaluate", "--out", home / "run"))
    folder.rename(home / "elsewhere")
    return home


def test_all_rows_are_for_testing_and_files_stay_with_them(folder: Path) -> None:
    data = package.load_data(folder, test=1.0)
    assert [len(split) for split in data.splits.values()] == [0, 0, 80]
    assert data.test.files == [f"{i:02}.png" for i in range(80)]
    table = dict(
        line.split(",", 1) for line in (folder / "labels.csv").read_text().splitlines()[1:]
    )
    split = package.load_data(folder).test
    for part in (split, split[3:9], split.to("cpu")):
        rows = [[float(x) for x in table[name].split(",")] for name in part.files]
        np.testing.assert_allclose(part.labels.numpy(), rows, rtol=1e-6)
    with pytest.raises(DataError, match="no file names"):
        _ = package.load_data("pendulum", size=16, samples=20).test.files


def test_moved_data_is_named_by_data(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    refused(intervae("evaluate", run), 1, "no longer at", "--data")
    moved = trained / "elsewhere"
    output = intervae("evaluate", run, "--data", moved, "--metric", "r2", "--json")
    assert output.code == 0
    assert "the run's own data: its test split is used" in output.err
    assert json.loads(output.out)[0]["n"] == 16
    assert (run / "evaluation.json").is_file()
    ask = ["intervene", run, "--do", "level=100", "--json", "--data", moved]
    assert intervae(*ask).code == 0
    assert intervae("resume", run, "--data", moved, "--no-evaluate").code == 0


def test_other_folder_is_tested_as_a_whole_with_the_codes_of_the_run(
    trained: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    other = make_folder(tmp_path / "other", images=30, columns={"side": ["right"] * 30})
    output = intervae("evaluate", run, "--data", other, "--json")
    assert output.code == 0, output
    measured = {m["metric"]: m for m in json.loads(output.out)}
    assert measured["r2_min"]["n"] == 30
    assert measured["composition_1"]["n"] == 15  # the regressor has the other half
    assert set(contents(run)) - set(contents(trained / "run")) == {"evaluation-other.json"}
    cell(4, 3, "up")(other)
    refused(
        intervae("evaluate", run, "--data", other, "--metric", "r2"), 1, "'side'", "'up'", "right"
    )


def test_several_runs_are_compared(trained: Path, tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(trained / "run", tmp_path / name)) for name in ("one", "two")]
    words = ["evaluate", *runs, "--data", trained / "elsewhere", "--metric", "reconstruction"]
    shown = intervae(*words).out.splitlines()[-4:]
    assert "one" in "".join(shown) or "one" in intervae(*words).out
    value = json.loads((runs[0] / "evaluation.json").read_text())[0]["value"]
    row = next(line for line in shown if "reconstruction_pixel_mae" in line)
    assert row.count(f"{value:.4g}") == 2
    both = json.loads(intervae(*words, "--json").out)
    assert list(both) == [str(run) for run in runs]


def test_evaluate_takes_a_zip_and_writes_nothing(trained: Path, tmp_path: Path) -> None:
    packed = tmp_path / "run.zip"
    succeeded(intervae("export", trained / "run", "--to", "zip", "--out", packed))
    other = make_folder(tmp_path / "other", images=30, columns={"side": ["left"] * 30})
    before = contents(tmp_path)
    for data, n in ((trained / "elsewhere", 16), (other, 30)):
        words = ["--data", data, "--metric", "r2", "--json"]
        output = intervae("evaluate", packed, *words)
        assert output.code == 0, output
        assert "evaluation.json is not written" in output.err
        expected = intervae("evaluate", shutil.copytree(trained / "run", tmp_path / "x"), *words)
        shutil.rmtree(tmp_path / "x")
        assert json.loads(output.out) == json.loads(expected.out)
        assert json.loads(output.out)[0]["n"] == n
    assert contents(tmp_path) == before
    refused(intervae("report", packed), 2, "is one file")
