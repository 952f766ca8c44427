"""load_data by name and by path, the registry, and reload of the same data."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from intervae.data import Variable, build_dataset, datasets, load_data, register, reload
from intervae.data import registry as registry_module
from intervae.errors import DataError, UsageError

N = 24


@pytest.fixture
def npz(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "d.npz",
        images=rng.integers(0, 256, (N, 8, 8)).astype(np.uint8),
        labels=rng.normal(size=(N, 3)),
        names=["a", "b", "c"],
    )
    return tmp_path / "d.npz"


@pytest.fixture
def grey(monkeypatch):
    """Register a data set; return the list of the arguments of its calls."""
    monkeypatch.setattr(registry_module, "DATASETS", registry_module.DATASETS.copy())
    calls = []

    def load(*, size: int = 8, shade: int = 3, seed: int = 0):
        calls.append({"size": size, "shade": shade, "seed": seed})
        images = np.full((N, 1, size, size), shade, np.uint8)
        labels = np.random.default_rng(seed).normal(size=(N, 2))
        return build_dataset("grey", images, labels, [Variable("up"), Variable("down")], seed=seed)

    register("grey", "plain grey squares", "nothing", lambda: load)
    return calls


def same(first, second) -> bool:
    """Return whether two data sets are equal in images, labels, variables and graph."""
    pairs = list(zip(first.splits.values(), second.splits.values(), strict=True))
    return (
        all(torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) for a, b in pairs)
        and first.variables == second.variables
        and first.graph == second.graph
    )


# ---- names -----------------------------------------------------------------------------------
def test_every_data_set_has_a_one_line_description():
    entries = {entry.name: entry for entry in datasets()}
    assert {"pendulum", "flow"} <= set(entries)
    assert list(entries) == sorted(entries)
    assert all(
        entry.description and entry.needs and "\n" not in entry.description
        for entry in entries.values()
    )


def test_listing_imports_no_simulator():
    code = (
        "import sys; from intervae.data import datasets; datasets(); "
        "print([m for m in sys.modules if m.startswith('intervae.data.simulators')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_registered_loader_gets_the_arguments_it_takes(grey):
    data = load_data("grey", size=10, seed=2, shade=9)
    assert grey == [{"size": 10, "shade": 9, "seed": 2}]
    assert data.source == {"name": "grey", "options": {"size": 10, "seed": 2, "shade": 9}}
    load_data("grey")
    assert grey[-1] == {"size": 8, "shade": 3, "seed": 0}
    assert load_data("grey", variables=["down"]).names == ("down",)


def test_arguments_a_loader_does_not_take_are_an_error(grey):
    with pytest.raises(UsageError, match="unknown option of grey 'shadow'; did you mean 'shade'"):
        load_data("grey", shadow=3)
    for name, value in (
        ("kinds", {"up": "binary"}),
        ("group", "up"),
        ("test", 0.5),
        ("validation", 0.3),
    ):
        with pytest.raises(
            UsageError,
            match=rf"{name}= \(--[a-z -]+=?\) does not apply to 'grey'; it takes size, shade, seed",
        ):
            load_data("grey", **{name: value})
    with pytest.raises(UsageError, match="unknown variable 'upp'; did you mean 'up'"):
        load_data("grey", variables=["upp"])
    with pytest.raises(UsageError, match="a data set called 'grey' is already registered"):
        register("grey", "again", "nothing", lambda: None)


def test_a_registered_name_precedes_a_folder_of_that_name(grey, npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grey").mkdir()
    assert load_data("grey").name == "grey"
    with pytest.raises(DataError, match=r"there is no labels.csv in .*grey"):
        load_data("./grey")
    assert load_data("d.npz").names == ("a", "b", "c")


def test_simulators_are_registered(tmp_path):
    for name in ("pendulum", "flow"):
        data = load_data(name, size=16, samples=40, seed=1)
        assert data.simulator is not None
        assert data.spec.image_shape == (3, 16, 16)
        assert json.loads(json.dumps(dict(data.source))) == data.source
        assert same(data, reload(json.loads(json.dumps(dict(data.source)))))
        assert load_data(name, size=(16, 16), samples=40).spec.image_shape == (3, 16, 16)
        with pytest.raises(UsageError, match="is drawn square; give one number"):
            load_data(name, size=(16, 20))
        with pytest.raises(
            UsageError, match=f"unknown option of {name} 'sample'; did you mean 'samples'"
        ):
            load_data(name, sample=10)


# ---- paths and arguments ---------------------------------------------------------------------
def test_the_error_on_a_wrong_name_has_suggestions():
    with pytest.raises(
        UsageError,
        match=r"unknown data set 'pendulm'; did you mean 'pendulum'.*"
        r"no file or folder of that name.*labels.csv, an .npz or .h5 file",
    ):
        load_data("pendulm")
    with pytest.raises(UsageError, match=r"unknown data set 'my/xrays'; known: .*pendulum"):
        load_data("my/xrays")


def test_a_source_of_another_type_is_an_error(tmp_path):
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(UsageError, match=r"table.csv is neither a folder nor an .npz, .h5"):
        load_data(tmp_path / "table.csv")
    for wrong in (42, None, {"images": []}):
        with pytest.raises(
            UsageError,
            match=f"load_data cannot read a {type(wrong).__name__}; give a registered name",
        ):
            load_data(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0}, r"validation=0 must be a fraction between 0 and 1"),
        ({"test": 1.5}, r"test=1.5 must be a fraction"),
        ({"test": "0.2"}, r"test='0.2' must be a fraction"),
        ({"validation": float("nan")}, "validation=nan must be a fraction"),
        ({"seed": -1}, "seed=-1 must be a whole number"),
        ({"seed": 1.5}, r"seed=1.5 must be a whole number"),
        ({"nams": ["x"]}, r"unknown option of .*d.npz 'nams'; did you mean 'names'"),
        ({"channels": 1}, "unknown option of .* 'channels'"),
        (
            {"transition": True},
            r"'transition'; did you mean 'transitions'.*"
            r"seed, size, test, transitions, validation, variables\.$",
        ),
        (
            {"ignore": "weight"},
            r"ignore= is an option of transitions: pass transitions={'ignore': 'weight'} "
            ".*transitions=ignore=weight",
        ),
        (
            {"cyclic": ["a", "b"]},
            r"cyclic= is an option of transitions: .*\"transitions=cyclic=a,b\"",
        ),
    ],
)
def test_wrong_arguments_are_an_error(npz, options, message):
    with pytest.raises(UsageError, match=message):
        load_data(npz, **options)


def test_splits_have_the_requested_fractions(npz):
    data = load_data(npz, validation=0.5, test=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (9, 9, 6)


# ---- reload ----------------------------------------------------------------------------------
def test_reload_gives_the_same_data_from_json(npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {
        "size": (4, 6),
        "variables": ["c", "a"],
        "kinds": {"c": "continuous"},
        "validation": np.float32(0.25),
        "test": 0.3,
        "seed": np.int64(7),
    }
    data = load_data("d.npz", **options)
    source = json.loads(json.dumps(dict(data.source)))
    monkeypatch.chdir("/")
    again = reload(source)
    assert same(data, again)
    assert again.source == data.source
    assert again.names == ("c", "a")
    assert not same(data, reload({**source, "options": {**source["options"], "seed": 8}}))
    assert reload(load_data(npz).select(["b"]).source).names == ("b",)


def test_reload_of_a_folder_keeps_its_own_options(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    rows = ["file,x,patient"]
    for i in range(N):
        Image.fromarray(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)).save(
            tmp_path / f"{i}.png"
        )
        rows.append(f"{i}.png,{i % 3},p{i // 3}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path.parent)
    data = load_data(tmp_path.name, channels=1, group="patient", kinds={"x": "categorical"}, seed=5)
    monkeypatch.chdir("/")
    again = reload(json.loads(json.dumps(dict(data.source))))
    assert again.spec.image_shape == (1, 6, 6)
    assert again.variables[0].kind == "categorical"
    assert same(data, again)


def test_reload_of_a_file_called_like_a_registered_name(npz, grey, tmp_path):
    npz.rename(tmp_path / "grey.npz")
    assert reload(load_data(tmp_path / "grey.npz").source).names == ("a", "b", "c")


def test_reload_errors_say_why(npz):
    data = load_data(TensorDataset(torch.zeros(N, 1, 4, 4), torch.arange(N)))
    source = json.loads(json.dumps(dict(data.source)))
    with pytest.raises(
        DataError,
        match="came from a TensorDataset in memory, which cannot be loaded again; "
        "pass that object to load_data once more",
    ):
        reload(source)
    source = load_data(npz).source
    with np.load(npz) as old:
        arrays = {key: old[key] for key in old.files}
    np.savez(npz, images=arrays["images"][:-1], labels=arrays["labels"][:-1], names=arrays["names"])
    with pytest.raises(
        DataError,
        match=r"d.npz had 24 samples and has 23 now, so its splits differ; "
        r"put the old data back, or .*intervae train ... --overwrite",
    ):
        reload(source)
    npz.unlink()
    with pytest.raises(
        DataError,
        match=r"the data is no longer at .*d.npz; put it back, "
        "or say where it is now with --data",
    ):
        reload(source)
    with pytest.raises(DataError, match="has neither a name nor a path"):
        reload({"options": {}})
    with pytest.raises(UsageError, match="unknown data set 'gone'"):
        reload({"name": "gone"})
