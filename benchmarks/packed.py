"""Memory and speed of packed data against the same data in memory.

    python benchmarks/packed.py --pictures 50000,200000
    python benchmarks/packed.py --pictures 50000,200000 --out benchmarks/results/packed

For each number of pictures (64 x 64, three channels, random pixels) a packed folder is written to
a temporary folder, and removed at the end. Every case has its own process:

    packing    resident memory while a stream of pictures is packed
    batches    one epoch of shuffled batches of 64, as floats, without a model
    training   steps of a VAE (the default networks, batch 64) on random rows of all pictures

`rows per CPU-second` counts all threads of the process, so that of the thread that reads ahead too;
wall-clock seconds depend on what else the machine does. The fastest of three counts. The packed
data are read once before, so that they are in the system's cache, as the goal says.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions, footer, write_results

from intervae.data import Dataset, MappedSplit, Split, load_data, pack
from intervae.models import create
from intervae.training.read_ahead import read_ahead

SIDE, BATCH = 64, 64
REPEATS = 3  # of which the fastest counts
PICTURE_BYTES = 3 * SIDE * SIDE


class RandomPictures:
    """A torch-like data set of pictures that are drawn when they are asked for."""

    def __init__(self, pictures: int) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return self.pictures

    def __getitem__(self, row: int) -> tuple[np.ndarray, dict[str, float]]:
        if row >= self.pictures:
            raise IndexError(row)
        pixels = np.random.default_rng(row).bytes(PICTURE_BYTES)
        image = np.frombuffer(pixels, np.uint8).reshape(3, SIDE, SIDE)
        return image, {"brightness": float(image[0, 0].mean()), "row": float(row)}


class ResidentMemory:
    """The largest resident memory of this process while the block runs, sampled 50 times a second.

    `anonymous` leaves out pages of files, which the system can drop at any time.
    """

    def __enter__(self) -> ResidentMemory:
        self.total = self.anonymous = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()

    def _sample(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            values = {line.partition(":")[0]: line.split()[1] for line in lines if "kB" in line}
            self.total = max(self.total, 1024 * int(values["VmRSS"]))
            self.anonymous = max(self.anonymous, 1024 * int(values["RssAnon"]))
            if self.stopped.wait(0.02):
                return


def measured(rows: int, work: Callable[[], object], repeats: int = 1) -> dict[str, float]:
    """Return rows per CPU-second and per second of the best repeat, and the peak memory in GB."""
    walls, cpus = [], []
    with ResidentMemory() as memory:
        for _ in range(repeats):
            start, cpu_start = time.perf_counter(), time.process_time()
            work()
            walls.append(time.perf_counter() - start)
            cpus.append(time.process_time() - cpu_start)
    wall, cpu = min(walls), min(cpus)
    return {
        "rows": rows,
        "rows_per_cpu_second": rows / cpu,
        "rows_per_second": rows / wall,
        "resident_gb": memory.total / 1e9,
        "anonymous_gb": memory.anonymous / 1e9,
    }


def measure_packing(pictures: int, folder: str) -> dict[str, float]:
    torch.set_num_threads(1)
    return measured(pictures, lambda: _pack(pictures, folder))


def _pack(pictures: int, folder: str) -> None:
    pack(RandomPictures(pictures), folder, validation=0.01, test=0.01)


def load(folder: str, where: str) -> Dataset:
    """Return the packed data set, or the same with its images in memory."""
    data = load_data(folder)
    if where == "packed":
        return data
    splits = {name: in_memory(split) for name, split in data.splits.items()}
    return replace(data, **splits)  # type: ignore[arg-type]


def in_memory(split: Split) -> Split:
    images = torch.empty(split.shape, dtype=torch.uint8)
    for start, chunk in zip(range(0, len(split), 1024), split.chunks(1024), strict=True):
        images[start : start + 1024] = chunk.images[:]
    return Split(images=images, labels=split.labels)


def batches(split: Split) -> Iterator[torch.Tensor]:
    """Yield the images of shuffled batches of an epoch, as a training step takes them."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0)).split(BATCH)
    if isinstance(split, MappedSplit):
        with contextlib.closing(read_ahead(split, order)) as ahead:
            for rows, pixels in zip(order, ahead, strict=True):
                yield split.with_pixels(rows, pixels)["images"]
    else:
        for rows in order:
            yield split.batch(rows)["images"]


def measure_case(where: str, folder: str, steps: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    data = load(folder, where)

    def epoch() -> None:
        for images in batches(data.train):
            assert images.dtype == torch.float32

    epoch()  # the pages of files and of memory are there afterwards
    results = {"batches": measured(len(data.train), epoch, REPEATS)}
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(1))
    part = replace(
        data, train=data.train[rows[: steps * BATCH]], validation=data.validation[:BATCH]
    )

    def train() -> None:
        create("vae", part, epochs=1, batch_size=BATCH).fit(part, threads=1, progress=False)

    results["training"] = measured(steps * BATCH, train, REPEATS)
    return results


def separately(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


HEADINGS = ["pictures", "GB", "case", "data", "rows per CPU-second", "of memory", "rows per second"]
HEADINGS += ["resident GB", "without file pages"]


def rows_of_table(case: dict[str, Any]) -> list[list[str]]:
    """Return the rows of a number of pictures under HEADINGS."""
    first = [f"{case['pictures']:,}", f"{case['gigabytes']:.2f}"]
    cases = [("packing", "packed", case["packing"])]
    for name in ("batches", "training"):
        cases += [(name, where, case[where][name]) for where in ("memory", "packed")]
    rows = []
    for name, where, numbers in cases:
        ratio = ""
        if where == "packed" and name != "packing":
            reference = case["memory"][name]["rows_per_cpu_second"]
            ratio = f"{100 * numbers['rows_per_cpu_second'] / reference:.0f} %"
        rows.append(
            [
                *first,
                name,
                where,
                f"{numbers['rows_per_cpu_second']:,.0f}",
                ratio,
                f"{numbers['rows_per_second']:,.0f}",
                f"{numbers['resident_gb']:.2f}",
                f"{numbers['anonymous_gb']:.2f}",
            ]
        )
    return rows


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a measured document."""
    lines = [
        "# Packed data against data in memory",
        "",
        f"Random pictures of {SIDE} x {SIDE}, three channels; batches of {BATCH}; one thread, and",
        "for packed data the thread that reads ahead. `packing` streams the pictures to the disk;",
        "`batches` is one shuffled epoch of floats without a model; `training` is "
        f"{document['steps']} steps of a",
        "VAE on random rows. Packed data were read once before, and the fastest of "
        f"{REPEATS} repeats counts.",
        "`of memory` compares CPU-seconds of all threads; rows per second of wall-clock time",
        "depend on what else the machine does. The last column leaves out pages of mapped files.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
    ]
    for case in document["cases"]:
        lines += [f"| {' | '.join(row)} |" for row in rows_of_table(case)]
    return "\n".join([*lines, "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pictures", default="50000", help="numbers of pictures, with commas")
    parser.add_argument("--steps", type=int, default=100, help="training steps")
    parser.add_argument("--folder", type=Path, help="folder for the temporary packed data")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    arguments = parser.parse_args()
    document = conditions(" ".join(["python", "benchmarks/packed.py", *sys.argv[1:]])) | {
        "steps": arguments.steps,
        "batch": BATCH,
        "cases": [],
    }
    for pictures in map(int, arguments.pictures.split(",")):
        needed = 1.1 * pictures * PICTURE_BYTES
        root = arguments.folder or Path(tempfile.gettempdir())
        if shutil.disk_usage(root).free < needed:
            sys.exit(f"{root} has no room for {needed / 1e9:.1f} GB; give --folder.")
        with tempfile.TemporaryDirectory(dir=root) as folder:
            packed = str(Path(folder) / "packed")
            case = {
                "pictures": pictures,
                "gigabytes": pictures * PICTURE_BYTES / 1e9,
                "packing": separately(measure_packing, pictures, packed),
                "packed": separately(measure_case, "packed", packed, arguments.steps),
                "memory": separately(measure_case, "memory", packed, arguments.steps),
            }
        document["cases"].append(case)
        for row in rows_of_table(case):
            print(" | ".join(row), flush=True)
    if arguments.out is not None:
        write_results(arguments.out, document, page(document))


if __name__ == "__main__":
    main()
