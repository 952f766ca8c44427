"""Files of published data sets: where they are looked for, and errors without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from intervae.data import datasets, load_data
from intervae.errors import DataError

FIRST_FILE = {
    "celeba": "img_align_celeba.zip",
    "dsprites": "dsprites_ndarray",
    "mnist": "train-images-idx3-ubyte.gz",
    "norb": "smallnorb-5x46789",
    "omniglot": "chardata.mat",
}
PAGE = {
    "celeba": "mmlab.ie.cuhk.edu.hk",
    "dsprites": "deepmind/dsprites-dataset on GitHub",
    "mnist": "yann.lecun.com",
    "norb": "cs.nyu.edu",
    "omniglot": "brendenlake/omniglot on GitHub",
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path


def test_listing_imports_no_reader_and_opens_no_file():
    assert set(PAGE) <= {entry.name for entry in datasets()}
    code = (
        "import sys; from intervae.data import datasets; datasets(); "
        "print([m for m in sys.modules if m.startswith('intervae.data.readers')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("name", PAGE)
def test_without_the_variable_the_error_says_what_to_set(name, monkeypatch):
    monkeypatch.delenv("INTERVAE_DATA", raising=False)
    with pytest.raises(DataError) as caught:
        load_data(name)
    message = str(caught.value)
    assert FIRST_FILE[name] in message
    assert PAGE[name] in message
    assert f"put it into {name}/ in a folder of your choice, and set the environment" in message
    assert "variable INTERVAE_DATA to that folder." in message


@pytest.mark.parametrize("name", PAGE)
def test_without_the_file_the_error_says_where_to_get_it(name, home):
    with pytest.raises(
        DataError,
        match=rf"there is no .* in {home}/{name}; get it from .*{PAGE[name]}.* and put it there\.$",
    ):
        load_data(name)


def test_a_variable_that_names_no_folder_is_an_error(home, monkeypatch):
    monkeypatch.setenv("INTERVAE_DATA", str(home / "gone"))
    with pytest.raises(
        DataError,
        match=r"INTERVAE_DATA is '.*gone', which is not a folder; "
        "set it to the one that holds mnist/train-images",
    ):
        load_data("mnist")
