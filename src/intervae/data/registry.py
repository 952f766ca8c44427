"""`load_data`: a data set by its registered name, from a path, or from a torch Dataset; and `reload`, the same data once more."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from intervae.data.arrays import load_arrays, load_torch
from intervae.data.base import Dataset
from intervae.data.columns import check_variables
from intervae.data.folder import load_folder
from intervae.data.images import as_size
from intervae.data.options import as_data_option, check_fractions, read_names
from intervae.data.transitions import FRACTIONS, option_names, transition_options, with_transitions
from intervae.errors import DataError, UsageError, unknown
from intervae.settings import check_whole

ACCEPTED = "a folder of images with or without a labels.csv, an .npz or .h5 file, or a torch Dataset of (image, labels)"
USUAL = {"validation": 0.1, "test": 0.2}  # fractions of the splits; with transitions they are FRACTIONS
Loader = Callable[..., Dataset]


@dataclass(frozen=True)
class Entry:
    """A registered data set: its name, one line on what it is, what it needs, and how to get at its loader.

    `open` imports what is needed and returns the loader, a function whose keyword-only arguments are the data set's options;
    listing the data sets calls none of them.
    """

    name: str
    description: str
    needs: str
    open: Callable[[], Loader] = field(repr=False)


_entries: dict[str, Entry] = {}


def register(name: str, description: str, needs: str, open: Callable[[], Loader]) -> None:  # noqa: A002
    """Make `load_data(name, ...)` work. A loader that takes `size`, `validation`, `test`, `seed`, `group` or `kinds` is given them."""
    if name in _entries:
        raise UsageError(f"a data set called {name!r} is already registered; choose another name.")
    _entries[name] = Entry(name, description, needs, open)


def datasets() -> list[Entry]:
    """The registered data sets by name."""
    return [_entries[name] for name in sorted(_entries)]


def load_data(
    source: Any,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float | None = None,
    test: float | None = None,
    seed: int = 0,
    group: str | None = None,
    transitions: bool | str | Mapping[str, Any] = False,
    **options: Any,
) -> Dataset:
    """Load a data set: images, labels, named variables and, where it is known, the true graph.

    Arguments:
        source: a registered name (see `datasets()`), a path to a folder of images (with a `labels.csv` where they have labels), to an `.npz` or
            to an `.h5` file, or a torch Dataset of (image, labels). A registered name comes before a path; write `./pendulum` for a folder of
            that name.
        size: resize to this many pixels, square or (height, width).
        variables: the variables to use, in this order; all of them without it.
        kinds: name -> "continuous", "binary" or "categorical" where the inferred kind is not the right one.
        validation: the fraction of what is not test that is kept for validation; a tenth without it.
        test: the fraction of everything that is kept for test, a fifth without it; a split that comes with the data is used instead.
        seed: draws the splits.
        group: a column such as `patient`: samples with the same value stay in the same split.
        transitions: also the pairs of pictures that differ in one factor by one step (data/transitions.py): True, or the options of
            `with_transitions`, also as one text, "cyclic=azimuth;draws=1000". Fractions that are not given are then those of 70, 15 and 15 percent.
        options: more, for this kind of data only: `channels` of a folder, `names` of arrays, `samples` of a simulator.
    """
    given = check_fractions(validation=validation, test=test)
    check_whole(0, seed=seed)
    pair = as_size(size)
    square = pair[0] if pair is not None and pair[0] == pair[1] else pair
    common = {"size": square, "kinds": kinds, **dict.fromkeys(USUAL), **given, "seed": int(seed), "group": group}
    pairs = transition_options(transitions, int(seed))
    fractions = {**(USUAL if pairs is None else FRACTIONS), **given}
    if pairs is not None and pairs.get("splits") == "random":
        pairs = {**fractions, **pairs}
    if isinstance(source, str) and source in _entries:
        return _load_registered(_entries[source], common, fractions, variables, options, pairs)
    loader, origin = _find(source)
    _check_options(loader, options, origin)
    common = {**common, **fractions}
    dataset = loader(source if "object" in origin else origin["path"], variables=variables, **common, **options)
    chosen = {"variables": list(variables)} if variables is not None else {}
    samples = sum(len(split) for split in (dataset.train, dataset.validation, dataset.test))
    dataset = replace(dataset, source={**origin, "options": _plain({**common, **options}), "samples": samples, **chosen})
    return dataset if pairs is None else _pair(dataset, pairs)


def reload(source: Mapping[str, Any]) -> Dataset:
    """The data set that has this `Dataset.source`, loaded again with the same options."""
    if "object" in source:
        raise DataError(f"this data came from a {source['object']} in memory, which cannot be loaded again; pass that object to load_data once more.")
    if "path" in source and not Path(source["path"]).exists():
        raise DataError(
            f"the data is no longer at {source['path']}; put it back, or load it from where it is now with load_data (--data of `intervae train`)."
        )
    if "path" not in source and "name" not in source:
        raise DataError("this source of data has neither a name nor a path, so it cannot be loaded again; load it with load_data.")
    where = Path(source["path"]) if "path" in source else source["name"]
    dataset = load_data(where, variables=source.get("variables"), **source.get("options", {}))
    if "samples" in source and dataset.source["samples"] != source["samples"]:
        raise DataError(
            f"{where} had {source['samples']} samples and has {dataset.source['samples']} now, so its splits differ; put the old data back, "
            "or load it anew with load_data and train again (`intervae train ... --overwrite`)."
        )
    return dataset


def _find(source: Any) -> tuple[Loader, dict[str, str]]:
    """The loader for something that is not a registered name, and what a run keeps of where it came from."""
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.abspath(Path(source).expanduser()))
        if path.is_dir():
            return load_folder, {"path": str(path)}
        if path.suffix.lower() in (".npz", ".h5", ".hdf5") and path.is_file():
            return load_arrays, {"path": str(path)}
        if path.exists():
            raise UsageError(f"{path} is neither a folder nor an .npz or .h5 file; load_data (--data) takes a registered name, {ACCEPTED}.")
        text = str(unknown("data set", str(source), _entries)).removesuffix(".")
        raise UsageError(f"{text}; there is no file or folder of that name either: load_data (--data) also takes {ACCEPTED}.")
    if isinstance(source, Mapping) or not any(hasattr(source, method) for method in ("__getitem__", "__iter__")):
        raise UsageError(f"load_data cannot read a {type(source).__name__}; give a registered name, {ACCEPTED}.")
    return load_torch, {"object": type(source).__name__}


def _load_registered(
    entry: Entry,
    common: dict[str, Any],
    fractions: Mapping[str, float],
    variables: Sequence[str] | None,
    options: dict[str, Any],
    pairs: dict[str, Any] | None,
) -> Dataset:
    loader = entry.open()
    taken = inspect.signature(loader).parameters
    _check_options(loader, options, {"name": entry.name})
    defaults = {name: p.default for name, p in inspect.signature(load_data).parameters.items()}
    for name, value in common.items():
        if name not in taken and value != defaults[name]:
            option = {"size": "--size", "group": "--group", "kinds": "--kind"}.get(name, f"--data-option {name}=")
            raise UsageError(f"{name}= ({option}) does not apply to {entry.name!r}; it takes {', '.join(taken)}.")
    given = {name: value for name, value in {**common, **fractions}.items() if name in taken and value is not None}
    dataset = loader(**given, **options)
    if not dataset.source:
        dataset = replace(dataset, source={"name": entry.name, "options": _plain({**given, **options})})
    check_variables(variables, dataset.names)
    if pairs is not None:  # before any variable is left out, so that a pair agrees in that one too
        ignored = read_names(pairs.get("ignore", ()), "ignore")
        chosen = None if variables is None or dataset.simulator is not None else [name for name in variables if name not in ignored]
        dataset = _pair(dataset, pairs if chosen is None else {"factors": chosen, **pairs})
    return dataset if variables is None else dataset.select(variables)


def _pair(dataset: Dataset, pairs: dict[str, Any]) -> Dataset:
    kept = {**dataset.source, "options": {**dataset.source.get("options", {}), "transitions": _plain(pairs)}}
    return replace(with_transitions(dataset, **pairs), source=kept)


def _check_options(loader: Loader, options: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    taken = [name for name, p in inspect.signature(loader).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name, value in options.items():
        if name not in taken and name in option_names():
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            raise UsageError(f"{name}= is an option of transitions: pass transitions={{{name!r}: {value!r}}} {as_data_option(f'{name}={text}')}.")
        if name not in taken:
            raise unknown(f"option of {next(iter(origin.values()))}", name, {*taken, "variables", "transitions"})


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, as JSON can hold it."""
    kept = {name: value for name, value in options.items() if value is not None}
    return {
        name: dict(v) if isinstance(v, Mapping) else list(v) if isinstance(v, Sequence) and not isinstance(v, str) else v for name, v in kept.items()
    }


# ---- what is registered ---------------------------------------------------------------------------------------------------
def _simulator(class_name: str) -> Callable[[], Loader]:
    def open_simulator() -> Loader:
        from intervae.data import simulators

        simulator = getattr(simulators, class_name)()

        @functools.wraps(simulator.dataset)
        def load(**options: Any) -> Dataset:
            if not isinstance(options.get("size", 0), int):
                raise UsageError(f"size={options['size']}: {simulator.name!r} is drawn square; give one number.")
            return simulator.dataset(**options)

        return load

    return open_simulator


register("pendulum", "a pendulum, a light and the shadow it throws: 4 variables, true graph and counterfactuals", "nothing", _simulator("Pendulum"))
register("flow", "water flowing from a hole in a glass with a ball in it: 4 variables, true graph and counterfactuals", "nothing", _simulator("Flow"))
register(
    "cross-modal",
    "latents that make a picture and table columns that cause them or are caused by them (CMCL): true graph and counterfactuals",
    "nothing",
    _simulator("CrossModal"),
)
register(
    "motion",
    "short clips of a sprite in motion over backgrounds: a position per frame, true graph and counterfactuals",
    "nothing",
    _simulator("Motion"),
)
register(
    "parabola",
    "76,800 white ovals whose height is the square of their place: 4 variables, true graph and counterfactuals",
    "nothing",
    _simulator("Parabola"),
)
register(
    "shapes3d-like",
    "a room with an object, drawn by us with the six factors of 3D Shapes: a grid of 480,000 pictures and counterfactuals",
    "nothing",
    _simulator("Shapes3d"),
)
register(
    "xray-like",
    "drawn chests with an opacity that a binary column causes, or that causes it (CMCL): true graph, counterfactuals and masks",
    "nothing",
    _simulator("XRay"),
)


def _reader(name: str, file: str = "") -> Callable[[], Loader]:
    """The function of the file that bears its name, or of another file."""
    return lambda: getattr(importlib.import_module(f"intervae.data.readers.{file or name}"), name)


_FILES = "files below INTERVAE_DATA: docs/datasets.md"
register("dsprites", "2D shapes on a complete grid of 5 factors, 737,280 black-and-white pictures", _FILES, _reader("dsprites"))
register("celeba", "aligned faces with the CausalVAE label sets smile (true graph) and beard, or any of 40 attributes", _FILES, _reader("celeba"))
register("covid-cxr", "577 chest X-rays with and without COVID-19 and their patients' table, split by patient", _FILES, _reader("covid_cxr"))
register("mnist", "70,000 handwritten digits, published test split", _FILES, _reader("mnist"))
register(
    "mnist-rotation",
    "ten MNIST digits turned by a column of a table (CMCL): true graph and counterfactuals",
    _FILES,
    _reader("mnist_rotation", "mnist_moved"),
)
register(
    "mnist-shift",
    "ten MNIST digits shifted by a column of a table (CMCL): true graph and counterfactuals",
    _FILES,
    _reader("mnist_shift", "mnist_moved"),
)
register("omniglot", "32,460 drawings of characters from 50 alphabets", _FILES, _reader("omniglot"))
register("norb", "small NORB: toys under varied viewpoints and lighting, 4 factors, published test split", _FILES, _reader("norb"))
register(
    "sprites",
    "clips of 1,296 game characters in 9 sequences (Li and Mandt 2018), the paper's held-out characters as test split",
    _FILES,
    _reader("sprites"),
)
register("sprites-frames", "the single frames of those clips, 93,312 pictures on a complete grid of 7 factors", _FILES, _reader("sprites_frames"))
register("sprites-reed", "119,616 frames of 672 game characters, 10 factors (Reed et al. 2015)", _FILES, _reader("sprites_reed"))
register("cars3d", "183 cars from 24 sides and 4 heights, 17,568 pictures on a complete grid of 3 factors", _FILES, _reader("cars3d"))
register("shapes3d", "3D Shapes: a room with an object, 480,000 pictures on a complete grid of 6 factors", _FILES, _reader("shapes3d"))
