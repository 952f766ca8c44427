"""Seeded generator of odd inputs: damaged folders, tables, arrays and runs, and odd options."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from command import PENDULUM, SMALL

Case = tuple[str, list[object]]  # what was done, and the words of the command
NUMBERS = ["-1", "0", "nan", "inf", "1e30", "x", "", "1.5", "2^64", str(2**64), "none", "0x10", "٣"]
TEXTS = [
    "",
    " ",
    "\t",
    "'",
    '"',
    "a,b",
    "../../x",
    "\x1b[31m",
    "émile",
    "x" * 3000,
    "💥",
    "=",
    "%s",
]
VALUES: list[Any] = [None, True, -1, 0, 1e308, "x", "", [], [1], {}, {"a": 1}, [[]], 2**70]
CELLS = [*NUMBERS, *TEXTS, "1e999", "NaN", "yes", "1,5"]


def damage_bytes(rng: random.Random, path: Path) -> str:
    """Flip, cut, empty, lengthen or replace a file."""
    content = bytearray(path.read_bytes())
    way = rng.choice(
        ["flip", "cut", "empty", "lengthen", "random", "pipe", "folder", "gone", "loop"]
    )
    if way == "flip" and content:
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif way == "cut":
        content = content[: rng.randrange(len(content) + 1)]
    elif way == "lengthen":
        content += rng.randbytes(rng.randint(1, 500))
    elif way == "random":
        content = bytearray(rng.randbytes(rng.randint(1, 2000)))
    elif way == "empty":
        content = bytearray()
    path.unlink()
    if way == "pipe":
        os.mkfifo(path)
    elif way == "folder":
        path.mkdir()
    elif way == "loop":
        path.symlink_to(path.name)
    elif way != "gone":
        path.write_bytes(content)
    return f"{way} {path.name}"


def damage_table(rng: random.Random, path: Path) -> str:
    """Replace cells, drop or repeat columns and rows of a CSV."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    way = rng.choice(["cells", "header", "drop column", "repeat row", "few rows", "separator"])
    if way == "cells":
        for _ in range(rng.randint(1, 5)):
            row = rng.choice(rows[1:])
            row[rng.randrange(len(row))] = rng.choice(CELLS)
    elif way == "header":
        rows[0][rng.randrange(len(rows[0]))] = rng.choice(TEXTS)
    elif way == "drop column":
        at = rng.randrange(len(rows[0]))
        rows = [row[:at] + row[at + 1 :] for row in rows]
    elif way == "repeat row":
        rows.append(rows[rng.randrange(len(rows))])
    elif way == "few rows":
        rows = rows[: rng.randint(0, 5)]
    mark = ";" if way == "separator" else ","
    path.write_text("\n".join(mark.join(row) for row in rows))
    return f"{way} of {path.name}"


def damage_json(rng: random.Random, path: Path) -> str:
    """Replace a value somewhere in a JSON file, or remove it."""
    parsed = json.loads(path.read_text())
    place: Any = parsed
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.3:
            break
        place = place[key]
    value = rng.choice(VALUES)
    if rng.random() < 0.2:
        del place[key]
    else:
        place[key] = value
    path.write_text(json.dumps(parsed))
    return f"{key} of {path.name} is {value!r}"


def odd_array(rng: random.Random) -> np.ndarray:
    """Return an array of an odd shape and type."""
    shape = rng.choice([(), (0,), (80,), (80, 16), (80, 16, 16), (80, 16, 16, 3), (3, 1, 1, 1, 1)])
    kind = rng.choice(["u1", "i8", "f4", "c8", "U3", "S3", "?", "f2"])
    return np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(kind)


# ---- cases ---------------------------------------------------------------------------------------
def folder_case(rng: random.Random, folder: Path, run: Path, place: Path) -> Case:
    picture = folder / f"{rng.randrange(80):02}.png"
    ways: list[Callable[[], str]] = [
        lambda: damage_bytes(rng, rng.choice([picture, folder / "labels.csv"])),
        lambda: damage_table(rng, folder / "labels.csv"),
        lambda: write_graph(rng, folder / "graph.json"),
    ]
    text = rng.choice(ways)()
    return text, ["train", rng.choice(["vae", "causal-vae"]), "--data", folder, *SMALL, *new(place)]


def write_graph(rng: random.Random, path: Path) -> str:
    edges = [{"from": "level", "to": "width"}]
    path.write_text(json.dumps({"variables": ["level", "width"], "edges": edges}))
    return rng.choice([damage_json, damage_bytes])(rng, path)


def new(place: Path) -> list[object]:
    return ["--no-evaluate", "--set", "tensorboard=no", "--out", place / "new"]


def array_case(rng: random.Random, folder: Path, run: Path, place: Path) -> Case:
    names = ["images", "labels", "names", "kinds", "test", "graph", "factors"]
    arrays = {name: odd_array(rng) for name in rng.sample(names, rng.randint(1, 4))}
    path = place / rng.choice(["odd.npz", "odd.h5"])
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array.astype("S3") if array.dtype.kind == "U" else array
    text = ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in arrays.items())
    if rng.random() < 0.2:
        text += damage_bytes(rng, path)
    return text, ["train", "vae", "--data", path, *SMALL, *new(place)]


def run_case(rng: random.Random, folder: Path, run: Path, place: Path) -> Case:
    names = ["config.json", "model.safetensors", "graph.json", "checkpoints/last.safetensors"]
    path = run / rng.choice([*names, "config.json", "metrics.jsonl"])
    damage = damage_json if path.name == "config.json" and rng.random() < 0.7 else damage_bytes
    words = rng.choice(
        [
            ["graph", run],
            ["evaluate", run, "--metric", "reconstruction_pixel_mae"],
            ["intervene", run, "--do", "light=40", "--out", place / "strip.png"],
            ["resume", run, "--no-evaluate"],
        ]
    )
    return damage(rng, path), [*words]


def option_case(rng: random.Random, folder: Path, run: Path, place: Path) -> Case:
    odd = rng.choice([*NUMBERS, *TEXTS])
    train = ["train", "causal-vae", *PENDULUM, *SMALL, *new(place)]
    options = ["--size", "--seed", "--device", "--variables", "--kind", "--group", "--graph"]
    options += ["--data-option", "--threads", "--set", "--epochs"]
    settings = ["dims", "hidden", "channels", "batch_size", "learning_rate", "threads", odd]
    words = rng.choice(
        [
            [*train, rng.choice(options), odd],
            [*train, "--set", f"{rng.choice(settings)}={odd}"],
            [*train, "--data-option", f"samples={odd}"],
            ["train", odd, "--data", folder, *new(place)],
            ["train", "vae", "--data", odd, *new(place)],
            ["intervene", run, "--do", f"light={odd}", "--out", place / "s.png"],
            ["intervene", run, "--do", f"{odd}=3", "--out", place / "s.png"],
            [
                "intervene",
                run,
                "--do",
                "light=3",
                rng.choice(["--index", "--steps", "--image"]),
                odd,
            ],
            ["graph", run, "--out", place / f"g{rng.choice(TEXTS)[:20].replace('/', '')}"],
            [rng.choice(["graph", "evaluate", "resume", "report"]), odd],
            ["evaluate", run, "--metric", odd],
            ["reproduce", odd],
            ["models", odd],
            [odd],
        ]
    )
    return "odd option", [*words]


def table_case(rng: random.Random, folder: Path, run: Path, place: Path) -> Case:
    path = folder / "labels.csv"
    text = rng.choice([damage_table, damage_bytes])(rng, path)
    words: list[object] = ["discover", path, "--columns", "level,width", "--method", "notears"]
    more = [[], ["--bootstrap", rng.choice(NUMBERS)], ["--set", f"penalty={rng.choice(NUMBERS)}"]]
    more += [["--kind", f"level={rng.choice(TEXTS)}"], ["--out", place / "g.json"]]
    return text, [*words, *rng.choice(more)]


CASES = (folder_case, array_case, run_case, option_case, table_case)


def make_case(seed: int, folder: Path, run: Path, place: Path) -> Case:
    """Return the case of a seed, after damaging its own copies of `folder` and `run`."""
    rng = random.Random(seed)
    return CASES[seed % len(CASES)](rng, folder, run, place)
