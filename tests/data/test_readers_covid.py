"""COVID-19 X-rays from small files: splits by patient, codes, missing values, broken files."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from note_texts import note_texts

from intervae.data import load_data, reload
from intervae.data.readers.covid_cxr import COLUMNS
from intervae.errors import DataError, UsageError

PICTURES, PATIENTS = 60, 20
VIEWS = ("PA", "AP", "AP Supine", "L", "AP Erect")


def make(folder: Path, change=lambda rows: rows, covid=None) -> list[dict[str, str]]:
    """Write 3 images per patient, the first pixel the row number; every fifth is lateral."""
    folder.mkdir(exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (PICTURES, 20, 20)).astype(np.uint8)
    images[:, 0, 0] = np.arange(PICTURES)
    rows = []
    for i in range(PICTURES):
        row = dict.fromkeys(COLUMNS, "")
        row |= {
            "patientid": f"p{i % PATIENTS}",
            "covid": str(i % PATIENTS % 2),
            "view": VIEWS[i % 5],
            "hannover": str(i % 3 == 0),
        }
        row |= {
            "sex": "" if i % 7 == 0 else "FM"[i % 2],
            "age": "" if i % 4 == 0 else str(20 + i),
            "survival": "YN"[i % 2],
        }
        rows.append(row)
    np.savez(
        folder / "covid_cxr_224.npz",
        images=images,
        covid=np.array([int(r["covid"]) for r in rows], np.uint8) if covid is None else covid,
    )
    rows = change(rows)
    with (folder / "covid_cxr_metadata.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path / "covid_cxr"


def test_no_patient_is_in_two_splits_and_images_keep_their_rows(home):
    rows = make(home)
    for seed in range(5):
        data = load_data("covid-cxr", size=20, columns="covid,survival", views="all", seed=seed)
        assert sum(map(len, data.splits.values())) == PICTURES
        patients = [set(split.fields["patient"].tolist()) for split in data.splits.values()]
        assert not patients[0] & patients[1]
        assert not patients[0] & patients[2]
        assert not patients[1] & patients[2]
        assert len(set.union(*patients)) == PATIENTS
        for split in data.splits.values():
            number = split.images[:, 0, 0, 0].long().tolist()
            assert split.fields["row"].tolist() == number
            assert split.labels.tolist() == [
                [float(rows[i]["covid"]), float(rows[i]["survival"] == "Y")] for i in number
            ]
            names = [rows[i]["patientid"] for i in number]
            assert len(set(zip(names, split.fields["patient"].tolist(), strict=True))) == len(
                set(names)
            )


def test_the_default_is_covid_alone_on_frontal_images(home):
    rows = make(home)
    data = load_data("covid-cxr")
    assert data.spec.image_shape == (1, 128, 128)
    assert data.names == ("covid",)
    assert (data.spec.variable("covid").kind, data.spec.variable("covid").categories) == (
        "binary",
        ("no", "yes"),
    )
    used = torch.cat([split.fields["row"] for split in data.splits.values()]).tolist()
    assert sorted(used) == [i for i in range(PICTURES) if rows[i]["view"] != "L"]
    assert "12 pictures from the side were left out" in note_texts(data)
    assert torch.equal(reload(data.source).test.images, data.test.images)


def test_kinds_units_and_words(home):
    make(home)
    data = load_data("covid-cxr", columns=("age", "sex", "view", "hannover"), views="all", size=20)
    assert [v.kind for v in data.variables] == ["continuous", "binary", "categorical", "binary"]
    assert data.spec.variable("age").unit == "years"
    assert data.spec.variable("sex").categories == ("female", "male")
    assert data.spec.variable("view").categories == ("PA", "AP", "AP supine", "lateral")
    assert load_data("covid-cxr", columns="view", size=20).spec.variable("view").categories == (
        "PA",
        "AP",
        "AP supine",
    )
    for split in data.splits.values():
        number = split.fields["row"]
        # upright AP counts as AP
        assert split.labels[:, 2].tolist() == [[0, 1, 2, 3, 1][i % 5] for i in number.tolist()]
        assert split.labels[:, 0].tolist() == [20 + i for i in number.tolist()]


def test_missing_values_are_dropped_or_filled_from_training(home):
    make(home)
    dropped = load_data("covid-cxr", columns="sex,age", views="all", size=20)
    used = sorted(torch.cat([split.fields["row"] for split in dropped.splits.values()]).tolist())
    assert used == [i for i in range(PICTURES) if i % 7 and i % 4]
    assert "column 'sex': 9 of the pictures have no value and were left out" in note_texts(dropped)
    filled = load_data("covid-cxr", columns="sex,age", views="all", size=20, missing="fill")
    assert sum(map(len, filled.splits.values())) == PICTURES
    training = filled.train.fields["row"].tolist()
    median = float(np.median([20 + i for i in training if i % 4]))
    frequent = float(np.mean([i % 2 for i in training if i % 7]) > 0.5)
    for split in filled.splits.values():
        for i, (sex, age) in zip(split.fields["row"].tolist(), split.labels.tolist(), strict=True):
            assert age == (20 + i if i % 4 else median)
            assert sex == (i % 2 if i % 7 else frequent)
    text = "column 'age': 15 of the pictures have no value and were given the median of the "
    assert f"{text}training split" in note_texts(filled)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"columns": "finding"}, UsageError, "column"),
        ({"columns": "covid,covid"}, UsageError, "must name different columns"),
        ({"views": "side"}, UsageError, "views"),
        ({"missing": "zero"}, UsageError, "missing"),
        (
            {"columns": "temperature"},
            DataError,
            "no X-ray has a value in all of temperature; choose fewer columns, or missing=fill",
        ),
        (
            {"columns": "temperature", "missing": "fill"},
            DataError,
            "'temperature' has no value in the training split; leave it out",
        ),
        ({"samples": 61}, UsageError, "samples=61 must be a whole number from 1 to 48"),
    ],
)
def test_wrong_options_are_an_error(home, options, kind, message):
    make(home)
    with pytest.raises(kind, match=message):
        load_data("covid-cxr", **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], r"has 59 rows for the 60 pictures of covid_cxr_224.npz"),
        (lambda rows: rows[::-1], r"does not have its rows in the order of covid_cxr_224.npz"),
        (
            lambda rows: [{**row, "sex": "X"} for row in rows],
            r"has on line 2 'X' as 'sex', which is none of its values",
        ),
        (lambda rows: [{**row, "age": "old"} for row in rows], r"has on line 2 'old' as 'age'"),
        (
            lambda rows: [{k: v for k, v in row.items() if k != "patientid"} for row in rows],
            r"has no column 'patientid'",
        ),
    ],
)
def test_the_error_on_a_wrong_table_names_it(home, change, message):
    make(home, change)
    with pytest.raises(
        DataError, match=rf"^covid_cxr_metadata.csv {message}.*; get it again from ieee8023"
    ):
        load_data("covid-cxr", columns="covid,sex,age")


def test_missing_files_are_named(home):
    with pytest.raises(
        DataError,
        match=r"there is no covid_cxr_224.npz in .*covid_cxr; "
        "get it from ieee8023/covid-chestxray-dataset on GitHub",
    ):
        load_data("covid-cxr")


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(os.environ.get("INTERVAE_DATA", "."), "covid_cxr")),
    reason="INTERVAE_DATA with covid_cxr is not set",
)
def test_the_real_pictures_and_patients():
    data = load_data("covid-cxr", views="all", size=32)
    assert sum(map(len, data.splits.values())) == 577
    assert sum(int(split.labels.sum()) for split in data.splits.values()) == 339
    patients = [set(split.fields["patient"].tolist()) for split in data.splits.values()]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 282
