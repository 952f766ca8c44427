"""Missing labels: read as NaN, left out of statistics, shown, kept or hidden on purpose."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest
import torch
from image_folders import N, change_cell, pixels_of, read_rows, write_rows
from note_texts import note_texts
from numbered_arrays import LABELS, PIXELS
from PIL import Image
from torch.utils.data import TensorDataset

from intervae.data import Dataset, Variable, build_dataset, load_data, reload
from intervae.errors import DataError, UsageError

NAN = float("nan")
TRAIN = 12  # training rows of `table`
IMAGES = np.zeros((20, 1, 4, 4), np.uint8)


def table(**changes: np.ndarray) -> Dataset:
    """Return 12 + 4 + 4 rows of `a`, 0 to 19, and `b`, 0 or 1; columns replaced by `changes`."""
    columns = {"a": np.arange(20.0), "b": np.arange(20.0) % 2, **changes}
    rows = np.arange(20)
    return build_dataset(
        "made",
        IMAGES,
        np.stack(list(columns.values()), axis=1),
        [Variable("a"), Variable("b", "binary")],
        validation=(rows >= 12) & (rows < 16),
        test=rows >= 16,
    )


# ---- statistics ---------------------------------------------------------------------------------
def test_scale_is_measured_on_the_training_labels_that_are_present() -> None:
    a = np.arange(20.0)
    a[[0, 3, 11, 17]] = NAN  # the last one is in the test split
    data = table(a=a)
    present = np.array([1, 2, 4, 5, 6, 7, 8, 9, 10])
    variable = data.spec.variable("a")
    assert variable.mean == pytest.approx(present.mean())
    assert variable.std == pytest.approx(present.std())
    assert (variable.low, variable.high) == (1, 10)
    assert data.spec.variable("b").mean == 0.5
    normalised = data.spec.normalise(data.train.labels)
    assert torch.equal(normalised.isnan(), data.train.missing)
    assert normalised[:, 0].nanmean() == pytest.approx(0, abs=1e-6)


def test_missing_labels_are_counted() -> None:
    a = np.where(np.arange(20) % 5 == 0, NAN, np.arange(20.0))  # rows 0, 5, 10, 15
    data = table(a=a)
    assert data.missing == {"a": 4}
    assert data.train.missing.nonzero().tolist() == [[0, 0], [5, 0], [10, 0]]
    assert data.select(["b"]).missing == {}
    assert table().missing == {}
    assert not table().train.missing.any()


def test_complete_has_the_rows_with_all_labels() -> None:
    a = np.where(np.arange(20) % 5 == 0, NAN, np.arange(20.0))
    complete = table(a=a).complete()
    assert [len(split) for split in complete.splits.values()] == [9, 3, 4]
    assert complete.missing == {}
    assert complete.variables == table(a=a).variables
    data = table()
    assert data.complete() is data
    with pytest.raises(DataError, match="made: no row of the test split has all labels; fill in"):
        table(a=np.where(np.arange(20) >= 16, NAN, np.arange(20.0))).complete()


def test_a_column_without_a_training_label_is_an_error() -> None:
    with pytest.raises(DataError, match="'a' has no value in the training split of 12, so nothing"):
        table(a=np.where(np.arange(20) < 12, NAN, np.arange(20.0)))
    with pytest.raises(DataError, match="label 'a' of sample 3 is inf"):
        table(a=np.where(np.arange(20) == 3, np.inf, np.arange(20.0)))


# ---- display ------------------------------------------------------------------------------------
def test_reprs_say_how_many_labels_are_missing() -> None:
    a = np.where(np.isin(np.arange(20), (0, 1, 13)), NAN, np.arange(20.0))
    data = table(a=a, b=np.where(np.arange(20) == 1, NAN, np.arange(20.0) % 2))
    text = repr(data)
    assert "  missing    4 of 40 labels: train 3, validation 1, test 0\n" in text
    assert re.search(r"a  continuous  2 to 11 \(3 missing\)\n", text)
    assert re.search(r"b  binary +0, 1 \(1 missing\)$", text)
    assert str(data).endswith("variables a, b, 4 labels missing)")
    assert repr(data.train).endswith("labels (2,) float32; 3 of 24 labels missing)")
    assert "on cpu; 3 of 24 labels missing<table>" in data.train._repr_html_()
    assert "<td>2 to 11 (3 missing)</td>" in data._repr_html_()
    for shown in (repr(table()), str(table()), repr(table().train), repr(data.test)):
        assert "missing" not in shown


# ---- sources ------------------------------------------------------------------------------------
@pytest.mark.parametrize("empty", ["", "NA", "nan"])
def test_empty_cells_of_a_folder_are_missing(empty: str, folder) -> None:
    change_cell(folder, 9, 1, empty)
    change_cell(folder, 9, 2, empty)
    change_cell(folder, 12, 2, empty)
    data = load_data(folder)
    assert data.missing == {"number": 1, "sex": 2}
    assert data.spec.variable("sex").categories == ("f", "m")
    assert "labels.csv, line 9: 'number' has no value" in note_texts(data)
    assert "labels.csv, line 9: 'sex' has no value (2 of 20 rows)" in note_texts(data)
    assert reload(data.source).missing == data.missing


def test_missing_labels_of_array_files_and_torch_datasets(tmp_path) -> None:
    labels = np.where(LABELS == 5, NAN, LABELS)
    np.savez(tmp_path / "mine.npz", images=PIXELS, labels=labels, names=["number", "odd", "x"])
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["images"], file["labels"] = PIXELS, labels
    pairs = TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(labels))
    sources = (
        (tmp_path / "mine.npz", "mine.npz", "number"),
        (tmp_path / "mine.h5", "mine.h5", "label0"),
        (pairs, "TensorDataset", "label0"),
    )
    for source, where, name in sources:
        data = load_data(source)
        assert data.missing[name] == 1
        assert f"{where}, sample 5: {name!r} has no value" in note_texts(data)


def test_a_whole_number_column_can_be_declared_categorical(folder) -> None:
    rows = read_rows(folder)
    digits = [[row[0], "" if i == 4 else i % 3] for i, row in enumerate(rows[1:])]
    write_rows(folder, [["file", "digit"], *digits])
    variable = load_data(folder, kinds={"digit": "categorical"}).spec.variable("digit")
    assert (variable.kind, variable.categories) == ("categorical", ("0", "1", "2"))


def test_transitions_refuse_missing_labels() -> None:
    labels = np.array([[x, y] for x in range(6) for y in range(4)], float)
    labels[7, 1] = NAN
    pairs = TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(labels))
    message = "sample 7: 'label1' has no value, but transitions take no missing labels; fill it in"
    with pytest.raises(DataError, match=message):
        load_data(pairs, kinds={"label1": "categorical"}, transitions=True)


# ---- images without a row -----------------------------------------------------------------------
def add_images(folder) -> None:
    for i in (40, 41, 42):
        Image.fromarray(pixels_of(i)).save(folder / f"{i}.png")


@pytest.mark.parametrize("with_split", [False, True])
def test_images_without_a_row_can_be_kept_in_training(folder, with_split: bool) -> None:
    if with_split:
        header, *rows = read_rows(folder)
        words = ["test" if i % 4 == 0 else "train" for i in range(N)]
        cells = [[*row, word] for row, word in zip(rows, words, strict=True)]
        write_rows(folder, [[*header, "split"], *cells])
    add_images(folder)
    ignoring, keeping = load_data(folder), load_data(folder, unlabelled="keep")
    for name in ("validation", "test"):
        assert torch.equal(ignoring.splits[name].labels, keeping.splits[name].labels)
        assert torch.equal(ignoring.splits[name].images, keeping.splits[name].images)
    rows = len(ignoring.train)
    assert torch.equal(keeping.train.images[:rows], ignoring.train.images)
    assert torch.equal(keeping.train.labels[:rows], ignoring.train.labels)
    assert keeping.train.missing[rows:].all()
    for row, i in enumerate((40, 41, 42)):
        expected = pixels_of(i).transpose(2, 0, 1)
        np.testing.assert_array_equal(keeping.train.images[rows + row].numpy(), expected)
    assert keeping.variables == ignoring.variables
    text = "images: 3 not in labels.csv and taken into the training split without labels, such as"
    assert f"{text} '40.png'" in note_texts(keeping)
    assert keeping.source["options"]["unlabelled"] == "keep"
    assert torch.equal(reload(keeping.source).train.images, keeping.train.images)


def test_wrong_use_of_unlabelled_is_an_error(folder) -> None:
    add_images(folder)
    with pytest.raises(UsageError, match=r"unknown unlabelled= .* 'kep'; did you mean 'keep'"):
        load_data(folder, unlabelled="kep")
    with pytest.raises(DataError, match="the 'patient' of 3 images without a row is unknown"):
        load_data(folder, unlabelled="keep", group="patient")


# ---- labels hidden on purpose -------------------------------------------------------------------
def test_labelled_keeps_a_random_part_of_the_training_labels() -> None:
    options = {"samples": 400, "size": 8}
    full = load_data("pendulum", **options)
    data = load_data("pendulum", labelled=0.05, seed=0, **options)
    rows = len(full.train)
    is_kept = ~data.train.missing.any(1)
    assert int(is_kept.sum()) == round(0.05 * rows)
    assert torch.equal(data.train.missing.all(1), ~is_kept)
    assert torch.equal(data.train.labels[is_kept], full.train.labels[is_kept])
    for name in ("validation", "test"):
        assert torch.equal(data.splits[name].labels, full.splits[name].labels)
    assert torch.equal(data.train.images, full.train.images)
    for i, variable in enumerate(data.variables):  # what is hidden does not leak by the scale
        present = full.train.labels[is_kept, i].double().numpy()
        assert variable.mean == pytest.approx(present.mean(), rel=1e-6)
        assert variable.high == pytest.approx(present.max())
    count = round(0.05 * rows)
    text = f"labels: kept in {count} of {rows} training rows and hidden in the others"
    assert f"{text} (labelled=0.05)" in note_texts(data)


def test_labelled_is_deterministic_nested_and_recorded() -> None:
    options = {"samples": 400, "size": 8}
    first, again = (load_data("pendulum", labelled=0.05, **options) for _ in range(2))
    assert torch.equal(first.train.missing, again.train.missing)
    assert first.source["options"]["labelled"] == 0.05
    reloaded = reload(first.source)
    assert torch.equal(reloaded.train.missing, first.train.missing)
    assert reloaded.spec == first.spec
    more = load_data("pendulum", labelled=0.2, **options)
    assert not (more.train.missing & ~first.train.missing).any()
    other = load_data("pendulum", labelled=0.05, seed=1, **options)
    assert not torch.equal(other.train.missing, first.train.missing)
    everything = load_data("pendulum", labelled=1, **options)
    assert everything.missing == {}
    assert everything.spec == load_data("pendulum", **options).spec


def test_labelled_with_variables_of_a_folder(folder) -> None:
    data = load_data(folder, labelled=0.5, variables=["number"], seed=3)
    assert data.names == ("number",)
    assert data.missing == {"number": len(data.train) - round(0.5 * len(data.train))}
    assert torch.equal(reload(data.source).train.missing, data.train.missing)


@pytest.mark.parametrize("labelled", [0, 1.5, "half", NAN, True])
def test_a_wrong_fraction_of_labels_is_an_error(labelled: object) -> None:
    with pytest.raises(UsageError, match=r"labelled=.* must be a fraction above 0 and at most 1"):
        load_data("pendulum", labelled=labelled)


def test_too_few_labels_are_an_error(folder) -> None:
    with pytest.raises(
        DataError, match=r"labelled=0.01 keeps 'number' in 1 of 14 training rows.*more"
    ):
        load_data(folder, labelled=0.01)
    (folder / "labels.csv").unlink()
    with pytest.raises(DataError, match="no training row has a label to keep"):
        load_data(folder, labelled=0.5)
    with pytest.raises(UsageError, match="labelled= hides labels, which transitions= needs"):
        load_data("shapes3d-like", labelled=0.5, transitions=True)
