"""A torch Dataset of (image, labels): accepted samples, and wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numbered_arrays import LABELS, PIXELS, N, check_pixels
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

from intervae.data import load_data
from intervae.errors import DataError


class Pairs(torch.utils.data.Dataset):
    """A data set from a function of the row number."""

    def __init__(self, item, n: int = N) -> None:
        self.item, self.n = item, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return self.item(i)


class Stream(IterableDataset):
    def __len__(self) -> int:
        return N

    def __iter__(self):
        return ((torch.as_tensor(image), row) for image, row in zip(PIXELS, LABELS, strict=True))


@pytest.mark.parametrize(
    "items",
    [
        TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(LABELS)),
        TensorDataset(torch.as_tensor(PIXELS).float() / 255, torch.as_tensor(LABELS)),
        Pairs(lambda i: (PIXELS[i].transpose(1, 2, 0), LABELS[i].tolist())),
        Pairs(lambda i: (Image.fromarray(PIXELS[i].transpose(1, 2, 0)), tuple(LABELS[i]))),
        Pairs(lambda i: [PIXELS[i], {"number": i, "odd": torch.tensor(i % 2), "x": LABELS[i, 2]}]),
        Stream(),
        list(zip(PIXELS, LABELS, strict=True)),
    ],
)
def test_a_torch_dataset_gives_the_same_pixels(items):
    check_pixels(load_data(items))


def test_labels_of_a_torch_dataset_are_named():
    data = load_data(
        TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(LABELS)),
        names=["n", "odd", "x"],
        variables=["odd", "n"],
        seed=4,
    )
    assert data.names == ("odd", "n")
    assert data.variables[0].kind == "binary"
    single = load_data(Pairs(lambda i: (PIXELS[i], i % 3)), kinds={"label": "categorical"})
    assert single.names == ("label",)
    words = load_data(
        Pairs(lambda i: (PIXELS[i], {"sex": "fm"[i % 2], "number": i})), group="number"
    )
    assert words.names == ("sex",)
    assert words.variables[0].categories == ("f", "m")


def test_black_and_white_and_sizes_of_a_torch_dataset():
    mask = (PIXELS[:, 0] > 127).astype(np.uint8)
    check_pixels(load_data(Pairs(lambda i: (mask[i], i))), mask[:, None] * 255)
    different = Pairs(lambda i: (PIXELS[i, :, :, : 4 + i % 3], i))
    with pytest.raises(
        DataError,
        match=r"Pairs, sample 1 has shape \(3, 6, 5\) but sample 0 has \(3, 6, 4\) \(C, H, W\)",
    ):
        load_data(different)
    assert load_data(different, size=5).spec.image_shape == (3, 5, 5)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (lambda i: PIXELS[i], "sample 0 is a ndarray, not a pair"),
        (lambda i: (PIXELS[i], 1, 2), "sample 0 is a tuple, not a pair"),
        (lambda i: (PIXELS[i, 0, 0], i), r"sample 0: the image must be \(C, H, W\)"),
        (lambda i: (PIXELS[i].astype(np.int64), i), "sample 0: the pixels are int64"),
        (
            lambda i: (torch.full((3, 4, 4), 1.5), i),
            "sample 0: the pixels are float32 from 1.5 to 1.5.*without normalisation",
        ),
        (lambda i: (PIXELS[i], {"a": None}), "sample 0: label 'a' must be one number or text"),
        (lambda i: (PIXELS[i], [[1, 2]]), r"sample 0: labels must be numbers \(n,\)"),
        (
            lambda i: (PIXELS[i], {"a": i} if i != 5 else {"b": i}),
            r"sample 5 has the labels \['b'\] but sample 0 has \['a'\]",
        ),
        (lambda i: (PIXELS[i], [1, 2] if i == 3 else [1, 2, 3]), "sample 3 has the labels"),
    ],
)
def test_wrong_samples_are_an_error(item, message):
    with pytest.raises(DataError, match=message):
        load_data(Pairs(item))


def test_an_empty_torch_dataset_is_an_error():
    with pytest.raises(DataError, match="Pairs has no samples"):
        load_data(Pairs(lambda i: None, n=0))
