"""Hugging Face data: saved to disk, .parquet files and objects; needs the extra `[datasets]`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from intervae.data import Dataset, find_loader, load_data, pack
from intervae.errors import DataError, UsageError

os.environ.setdefault("HF_HUB_OFFLINE", "1")
N = 24
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 6, 5, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def arrow() -> Any:
    pytest.importorskip("pyarrow.parquet", reason="the extra [datasets] is not installed")
    return pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def hugging(arrow: Any) -> Any:
    return pytest.importorskip("datasets", reason="the extra [datasets] is not installed")


def png(i: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(PIXELS[i]).save(content, "PNG")
    return content.getvalue()


def made(hugging: Any) -> Any:
    """Return a Dataset of 24 pictures with a class, a number (one missing), a text and a list."""
    features = hugging.Features(
        {
            "picture": hugging.Image(),
            "animal": hugging.ClassLabel(names=["cat", "dog", "owl"]),
            "size": hugging.Value("float32"),
            "box": hugging.Sequence(hugging.Value("int32")),
        }
    )
    columns = {
        "picture": [Image.fromarray(pixels) for pixels in PIXELS],
        "animal": [i % 3 for i in range(N)],
        "size": [None if i == 4 else i / 2 for i in range(N)],
        "box": [[i, i] for i in range(N)],
    }
    return hugging.Dataset.from_dict(columns, features=features)


def check(data: Dataset) -> None:
    assert data.names == ("animal", "size")
    assert data.variables[0].categories == ("cat", "dog", "owl")
    for split in data.splits.values():
        rows = split.fields["file"].numpy() % N
        assert (split.images[:].numpy() == PIXELS[rows].transpose(0, 3, 1, 2)).all()
        assert split.labels[:, 0].tolist() == [i % 3 for i in rows]
        sizes = split.labels[:, 1].nan_to_num(-1).tolist()
        assert sizes == [-1 if i == 4 else i / 2 for i in rows]
    assert "'box': left out" in " ".join(note.text for note in data.notes)


@pytest.mark.parametrize("packed", [False, True])
def test_saved_parquet_and_object(packed: bool, hugging: Any, tmp_path: Path) -> None:
    dataset = made(hugging)
    dataset.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    dataset.to_parquet(str(tmp_path / "one.parquet"), batch_size=7)
    for i, source in enumerate([tmp_path / "saved", tmp_path / "one.parquet", dataset]):
        check(pack(source, tmp_path / f"packed{i}") if packed else load_data(source))
    shuffled = dataset.select(range(N - 1, -1, -1))
    data = load_data(shuffled, size=3)
    assert data.spec.image_shape == (3, 3, 3)
    rows = data.train.fields["file"].numpy()
    assert data.train.labels[:, 0].tolist() == [(N - 1 - i) % 3 for i in rows]


def test_splits_are_those_of_the_source(hugging: Any, tmp_path: Path) -> None:
    dataset = made(hugging)
    both = hugging.DatasetDict(train=dataset, test=dataset)
    both.save_to_disk(str(tmp_path / "saved"))
    for source in (both, tmp_path / "saved"):
        data = load_data(source)
        check(data)
        assert len(data.test) == N
        assert sorted((data.test.fields["file"] % N).tolist()) == list(range(N))
        assert [len(s) for s in load_data(source, test=1.0).splits.values()] == [0, 0, 2 * N]
    other = hugging.DatasetDict(train=dataset, extra=dataset)
    with pytest.raises(DataError, match="known are train, validation and test"):
        load_data(other)
    with pytest.raises(UsageError, match="without streaming=True"):
        load_data(dataset.to_iterable_dataset())


def write_parquet(arrow: Any, path: Path, pictures: list[Any], **columns: list[Any]) -> Path:
    arrow.parquet.write_table(arrow.table({"image": pictures, **columns}), path)
    return path


def refused(path: Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        load_data(path)
    assert all(word in str(caught.value) for word in words), caught.value


def test_paths_of_files_are_not_followed(arrow: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(0))
    cells = [{"bytes": None, "path": str(secret)} for _ in range(N)]
    path = write_parquet(arrow, tmp_path / "x.parquet", cells, y=list(range(N)))
    refused(path, "only its path is stored")


def test_columns_of_images(arrow: Any, tmp_path: Path) -> None:
    plain = [png(i) for i in range(N)]
    path = write_parquet(arrow, tmp_path / "x.parquet", plain, y=[i / 2 for i in range(N)])
    assert load_data(path).names == ("y",)
    two = write_parquet(arrow, tmp_path / "two.parquet", plain, other=plain, y=list(range(N)))
    refused(two, "several columns of images (image, other)", "--data-option image=NAME")
    data = load_data(two, image="other")
    assert data.names == ("y",)
    none = write_parquet(arrow, tmp_path / "none.parquet", list(range(N)))
    refused(none, "no column of images, only image")
    broken = write_parquet(arrow, tmp_path / "b.parquet", [*plain[1:], b"?"], y=list(range(N)))
    refused(broken, "row 23", "not an image of a known format")


def test_damaged_files(hugging: Any, tmp_path: Path) -> None:
    made(hugging).save_to_disk(str(tmp_path / "saved"))
    (shard,) = (tmp_path / "saved").glob("*.arrow")
    content = shard.read_bytes()
    state = tmp_path / "saved" / "state.json"
    parsed = json.loads(state.read_text())
    shard.write_bytes(content[: len(content) // 2])
    refused(tmp_path / "saved", "cannot be read")
    shard.unlink()
    refused(tmp_path / "saved", shard.name)
    for name in ("../x.arrow", "/etc/passwd", "", 3):
        state.write_text(json.dumps({**parsed, "_data_files": [{"filename": name}]}))
        refused(tmp_path / "saved", "not a name inside the folder")
    for text in ("{}", "[", '{"_data_files": []}'):
        state.write_text(text)
        refused(tmp_path / "saved", "state.json")
    parquet = tmp_path / "x.parquet"
    parquet.write_bytes(b"PAR1 nothing")
    refused(parquet, "x.parquet cannot be read")


def test_error_names_the_extra(tmp_path: Path) -> None:
    """Without pyarrow: one sentence."""
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from intervae.data import load_data\n"
        "from intervae.errors import UsageError\n"
        "try:\n    load_data('x.parquet')\n"
        "except UsageError as error:\n    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "pip install 'intervae[datasets]'" in result.stdout


def test_sources_are_listed_in_the_error(tmp_path: Path) -> None:
    for word in ("packed data", ".parquet", ".tar"):
        assert word in find_loader.SOURCES
