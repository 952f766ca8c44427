"""`load_data`: a data set by registered name, path or torch Dataset; `reload`: the same again."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from intervae.data import registry
from intervae.data.build_transitions import FRACTIONS, with_transitions
from intervae.data.column_kinds import check_variables
from intervae.data.dataset import Dataset
from intervae.data.find_loader import find_loader
from intervae.data.image_sinks import ImageSink
from intervae.data.missing_labels import check_labelled, hide_labels
from intervae.data.options import as_data_option, check_fractions, read_names
from intervae.data.pixel_arrays import as_size
from intervae.data.registry import DatasetEntry, Loader
from intervae.data.transition_options import option_names, transition_options
from intervae.errors import DataError, UsageError, unknown
from intervae.settings import check_whole

DEFAULT_FRACTIONS = {"validation": 0.1, "test": 0.2}  # FRACTIONS with transitions
COMMAND_LINE = {"size": "--size", "group": "--group", "kinds": "--kind"}


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
    labelled: float | None = None,
    sink: ImageSink | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set: images, labels, named variables and, if known, the true graph.

    A label that is missing in the source is NaN.

    Arguments:
        source: a registered name (see `datasets()`), a path to a folder of images (with a
            `labels.csv` if they have labels), to an `.npz` or to an `.h5` file, or a torch Dataset
            of (image, labels), packed data, a Hugging Face data set (an object, saved to disk, or
            a `.parquet` file) or webdataset `.tar` files. A registered name comes before a path;
            write `./pendulum` for a folder of that name.
        size: resize to this many pixels, square or (height, width).
        variables: the variables to use, in this order; default all.
        kinds: name -> "continuous", "binary", "categorical" or "ordinal" (ordered numbers), or an
            order of texts, "small < medium < large", instead of the inferred kind.
        validation: fraction of the samples outside the test split; default 0.1.
        test: fraction of all samples; default 0.2. A split that comes with the data replaces it,
            except that 1.0 takes everything, for a model that was trained on other data.
        seed: seed of the random splits.
        group: column such as `patient`: samples with the same value stay in the same split.
        transitions: True to also find the pairs of images that differ in one factor by one step,
            or the options of `with_transitions`, also as one text, "cyclic=azimuth;draws=1000".
            The default splits are then 70, 15 and 15 percent.
        labelled: fraction of the training rows that keep their labels; those of the others are
            hidden, for experiments with few labels. Validation and test keep theirs.
        sink: where images go that are read one by one, instead of memory; `pack` passes one.
        options: further options of this kind of data: `channels` and `unlabelled` of a folder,
            `names` of arrays, `samples` of a simulator.
    """
    if labelled is not None:
        fraction = check_labelled(labelled, transitions)
        dataset = load_data(
            source,
            size=size,
            variables=variables,
            kinds=kinds,
            validation=validation,
            test=test,
            seed=seed,
            group=group,
            sink=sink,
            **options,
        )
        return hide_labels(dataset, fraction, int(seed))
    if not isinstance(sink, ImageSink | None):
        raise UsageError(f"sink={sink!r} must be an image sink; leave it out, or call pack.")
    explicit = check_fractions(validation=validation, test=test)
    check_whole(0, seed=seed)
    pair = as_size(size)
    common = {
        "size": pair[0] if pair is not None and pair[0] == pair[1] else pair,
        "kinds": kinds,
        **dict.fromkeys(DEFAULT_FRACTIONS),
        **explicit,
        "seed": int(seed),
        "group": group,
    }
    pairing = transition_options(transitions, int(seed))
    fractions = {**(DEFAULT_FRACTIONS if pairing is None else FRACTIONS), **explicit}
    if pairing is not None and pairing.get("splits") == "random":
        pairing = {**fractions, **pairing}
    if isinstance(source, str) and source in registry.DATASETS:
        entry = registry.DATASETS[source]
        return _load_registered(entry, common, fractions, variables, options, pairing, sink)
    loader, origin = find_loader(source)
    _check_options(loader, options, origin)
    common = {**common, **fractions}
    dataset = loader(
        source if "object" in origin else origin["path"],
        variables=variables,
        **common,
        **options,
        **_sink_argument(loader, sink),
    )
    selection = {"variables": list(variables)} if variables is not None else {}
    dataset = replace(
        dataset,
        source={
            **origin,
            "options": _as_json({**common, **options, "like": None}),
            "samples": sum(map(len, dataset.splits.values())),
            **selection,
        },
    )
    return dataset if pairing is None else _add_transitions(dataset, pairing)


def reload(source: Mapping[str, Any], where: str | os.PathLike | None = None) -> Dataset:
    """Load the data set that has this `Dataset.source` again, with the same options.

    Arguments:
        where: path of the data if it was moved, or a registered name.
    """
    if where is not None:
        rest = {k: v for k, v in source.items() if k not in ("path", "name", "object")}
        source = {**rest, ("name" if where in registry.DATASETS else "path"): os.fspath(where)}
    if "object" in source:
        raise DataError(
            f"this data came from a {source['object']} in memory, which cannot be loaded again; "
            "pass that object to load_data once more."
        )
    if "path" in source and not Path(source["path"]).exists():
        raise DataError(
            f"the data is no longer at {source['path']}; put it back, or say where it is now with "
            "--data (load_data in Python)."
        )
    if "path" not in source and "name" not in source:
        raise DataError(
            "this source of data has neither a name nor a path, so it cannot be loaded again; "
            "load it with load_data."
        )
    place = Path(source["path"]) if "path" in source else source["name"]
    dataset = load_data(place, variables=source.get("variables"), **source.get("options", {}))
    if "samples" in source and dataset.source["samples"] != source["samples"]:
        raise DataError(
            f"{place} had {source['samples']} samples and has {dataset.source['samples']} now, so "
            "its splits differ; put the old data back, or load it anew with load_data and train "
            "again (`intervae train ... --overwrite`)."
        )
    return dataset


def _load_registered(
    entry: DatasetEntry,
    common: dict[str, Any],
    fractions: Mapping[str, float],
    variables: Sequence[str] | None,
    options: dict[str, Any],
    pairing: dict[str, Any] | None,
    sink: ImageSink | None,
) -> Dataset:
    loader = entry.open_loader()
    parameters = inspect.signature(loader).parameters
    _check_options(loader, options, {"name": entry.name})
    defaults = {name: p.default for name, p in inspect.signature(load_data).parameters.items()}
    for name, value in common.items():
        if name not in parameters and value != defaults[name]:
            option = COMMAND_LINE.get(name, f"--data-option {name}=")
            raise UsageError(
                f"{name}= ({option}) does not apply to {entry.name!r}; "
                f"it takes {', '.join(parameters)}."
            )
    arguments = {
        name: value
        for name, value in {**common, **fractions}.items()
        if name in parameters and value is not None
    }
    arguments.update(options)
    dataset = loader(**arguments, **_sink_argument(loader, sink))
    if not dataset.source:
        source = {"name": entry.name, "options": _as_json(arguments)}
        dataset = replace(dataset, source=source)
    check_variables(variables, dataset.names)
    if pairing is not None:  # before `select`, so that pairs agree in unselected variables too
        if variables is not None and dataset.simulator is None:
            ignored = read_names(pairing.get("ignore", ()), "ignore")
            factors = [name for name in variables if name not in ignored]
            pairing = {"factors": factors, **pairing}
        dataset = _add_transitions(dataset, pairing)
    return dataset if variables is None else dataset.select(variables)


def _add_transitions(dataset: Dataset, pairing: dict[str, Any]) -> Dataset:
    options = {**dataset.source.get("options", {}), "transitions": _as_json(pairing)}
    return replace(
        with_transitions(dataset, **pairing), source={**dataset.source, "options": options}
    )


def _sink_argument(loader: Loader, sink: ImageSink | None) -> dict[str, ImageSink]:
    """Return the argument `sink` of a loader that takes one."""
    takes_it = sink is not None and "sink" in inspect.signature(loader).parameters
    return {"sink": sink} if takes_it else {}  # type: ignore[dict-item]


def _check_options(loader: Loader, options: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    """Raise an error for an option that the loader does not take."""
    parameters = inspect.signature(loader).parameters.items()
    names = [name for name, p in parameters if p.kind is p.KEYWORD_ONLY and name != "sink"]
    for name, value in options.items():
        if name not in names and name in option_names():
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            raise UsageError(
                f"{name}= is an option of transitions: pass transitions={{{name!r}: {value!r}}} "
                f"{as_data_option(f'{name}={text}')}."
            )
        if name not in names:
            what = f"option of {next(iter(origin.values()))}"
            raise unknown(what, name, {*names, "variables", "transitions"})


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not None, as JSON can store them."""

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        return list(value) if is_list else value

    return {name: convert(value) for name, value in options.items() if value is not None}
