"""webdataset tars: samples by key, labels of .json and .cls, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.data import load_data, pack, webdataset
from intervae.errors import DataError

N = 24
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 6, 5, 3)).astype(np.uint8)


def png(i: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(PIXELS[i]).save(content, "PNG")
    return content.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes, **changes: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in changes.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(content))


def write_tar(path: Path, rows: range = range(N), extra: dict[str, bytes] | None = None) -> Path:
    """Write samples with a number, a word, a list (which is ignored) and a class."""
    with tarfile.open(path, "w") as tar:
        for i in rows:
            labels = {"size": i / 2, "word": "ab"[i % 2], "box": [1, 2], "big": i > 11}
            if i == 3:
                labels["size"] = None
            add(tar, f"./part/{i:04}.json", json.dumps(labels).encode())
            add(tar, f"./part/{i:04}.png", png(i))
            add(tar, f"./part/{i:04}.cls", str(i % 5).encode())
            add(tar, f"./part/{i:04}.txt", b"words")
        for name, content in (extra or {}).items():
            add(tar, name, content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_samples_of_a_tar_and_of_a_folder(packed: bool, tmp_path: Path) -> None:
    write_tar(tmp_path / "one.tar")
    (tmp_path / "many").mkdir()
    write_tar(tmp_path / "many" / "b-1.tar", range(12, N))
    write_tar(tmp_path / "many" / "a-0.tar", range(12))
    for source in (tmp_path / "one.tar", tmp_path / "many"):
        load = (lambda s: pack(s, tmp_path / f"pack-{s.stem}")) if packed else load_data
        data = load(source)
        assert data.names == ("size", "word", "big", "cls")
        assert [v.kind for v in data.variables] == ["continuous", "binary", "binary", "continuous"]
        for split in data.splits.values():
            rows = split.fields["file"].numpy()
            assert (split.images[:].numpy() == PIXELS[rows].transpose(0, 3, 1, 2)).all()
            size = torch.tensor([np.nan if i == 3 else i / 2 for i in rows])
            assert torch.equal(split.labels[:, 0].nan_to_num(-1), size.float().nan_to_num(-1))
            assert split.labels[:, 3].tolist() == [i % 5 for i in rows]
        assert data.missing == {"size": 1}
        assert "24 members KEY.txt are ignored" in " ".join(note.text for note in data.notes)
    assert data.train.files[0].endswith(f"part/{int(data.train.fields['file'][0]):04}")


def test_options(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "one.tar")
    data = load_data(tar, size=4, channels=1, group="cls", kinds={"word": "categorical"}, seed=2)
    assert data.spec.image_shape == (1, 4, 4)
    assert data.names == ("size", "word", "big")
    groups = [set((s.fields["file"] % 5).tolist()) for s in data.splits.values()]
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    like = data.select(["word"]).spec
    assert load_data(tar, size=4, channels=1, like=like).variables == like.variables


def refused(path: Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        load_data(path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert str(caught.value).count("\n") == 0


def test_broken_tars(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "one.tar")
    content = tar.read_bytes()
    for cut in (content[: len(content) // 2], content[: 512 * 9], content[:100]):
        tar.write_bytes(cut)
        refused(tar, "one.tar")
    tar.write_bytes(b"no tar at all" * 100)
    refused(tar, "one.tar cannot be read")
    tar.write_bytes(b"")
    refused(tar, "one.tar")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", b"{", "is not JSON"),
        ("x.json", b"[" * 100_000, "is not JSON"),
        ("x.json", b"[1]", "must be an object"),
        ("x.json", b"\xff", "is not JSON"),
        ("x.cls", b"cat", "is not a whole number"),
        ("x.png", b"no picture", "cannot be read"),
    ],
)
def test_broken_members(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    refused(write_tar(tmp_path / "one.tar", extra={name: content}), "x", words)


def test_members_that_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar = tmp_path / "one.tar"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        with tarfile.open(tar, "w") as file:
            add(file, "x.png", b"", type=kind, linkname="/etc/passwd")
        refused(tar, "'x.png' is not a plain file", "unsafe")
    monkeypatch.setattr(webdataset, "LARGEST_IMAGE", 50)
    refused(write_tar(tar), "more than 50")


def test_nothing_is_written_by_names_that_leave(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    tar = write_tar(tmp_path / "data" / "one.tar", extra={"../../evil.png": png(0)})
    assert sum(map(len, load_data(tar, variables=[]).splits.values())) == N + 1
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "one.tar"]


def test_samples_without_images_and_two_images(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "one.tar", extra={"lonely.json": b'{"size": 3}'})
    notes = [note.text for note in load_data(tar).notes]
    assert "tar: 1 samples without an image ignored" in notes
    refused(write_tar(tar, extra={"x.png": png(0), "x.jpg": png(1)}), "second image")
    with tarfile.open(tar, "w") as file:
        add(file, "x.json", b"{}")
    refused(tar, "has no images")
