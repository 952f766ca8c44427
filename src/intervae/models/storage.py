"""Models on disk: config.json, model.safetensors, graph.json and a model card.

Nothing that is read is executed.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data import Spec
from intervae.errors import IntervaeError, RunError, abbreviate
from intervae.files import (
    as_path,
    open_regular,
    parse_json,
    read_json,
    write_bytes,
    write_json,
    write_text,
)
from intervae.models.archive import is_archive, read_archive
from intervae.models.base import Model
from intervae.models.capabilities import HasGraph
from intervae.models.config_checks import check_config
from intervae.models.description import model_card
from intervae.models.device import choose_device
from intervae.nets.stacked import Stacked
from intervae.settings import upgrade_settings

FORMAT = 1
CONFIG = "the run's settings"  # what errors call config.json
# errors of a network that is built from a damaged config
DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def describe_model(model: Model) -> dict[str, Any]:
    """Return the part of config.json from which the model can be built again."""
    return {
        "format": FORMAT,
        "intervae": intervae.__version__,
        "model": model.name,
        **({"preset": model.preset} if model.preset is not None else {}),
        "settings": asdict(model.settings),
        "spec": model.spec.to_json(),
        **({"graph": model.known_graph.to_json()} if model.known_graph is not None else {}),
    }


def describe_graph(model: Model) -> dict[str, Any]:
    """Return the graph as JSON; an edge of unknown direction has "direction": "open"."""
    document: dict[str, Any] = model.graph.to_json()
    for edge in document["edges"]:
        if (edge["from"], edge["to"]) in model.undirected_edges:
            edge["direction"] = "open"
    return document


def save_model(model: Model, folder: Path, **run: Any) -> None:
    """Write the model.

    Arguments:
        run: entries for config.json about its training: data, seed, versions, ...
    """
    config = {**describe_model(model), **run}
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    write_bytes(folder / "model.safetensors", save(tensors, metadata={"model": model.name}))
    if isinstance(model, HasGraph):
        write_json(folder / "graph.json", describe_graph(model))
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", model_card(model, config))


def load_model(
    folder: str | Path, device: str | torch.device = "cpu", *, model: type[Model] | None = None
) -> Model:
    """Load the model of a run folder, or of a zip of `intervae export`, ready for queries.

    Arguments:
        folder: the run folder, or the zip.
        model: the class of the model, if it is not registered.
    """
    folder, device = as_path(folder, "folder"), choose_device(device)
    if is_archive(folder):
        files = read_archive(folder)
        config = parse_json(files["config.json"], folder / "config.json", CONFIG)
        loaded = build_model(config, folder, model)
        weights = files["model.safetensors"]
    else:
        loaded = build_model(read_config(folder), folder, model)
        weights = _read_weights(folder)
    path = folder / "model.safetensors"
    try:
        tensors = load(weights)
    except SafetensorError as error:
        raise RunError(f"{path} is not a readable safetensors file ({error}).") from None
    load_tensors(loaded, tensors, path)
    loaded.trained = True
    return loaded.to(device).eval()


def read_config(run: Path) -> Any:
    """Return the parsed config.json of a run folder or of an exported zip."""
    if is_archive(run):
        return parse_json(read_archive(run)["config.json"], run / "config.json", CONFIG)
    check_run_folder(run)
    return read_json(run / "config.json", CONFIG)


def _read_weights(folder: Path) -> bytes:
    """Return the bytes of model.safetensors; raise a RunError if there is none."""
    path = folder / "model.safetensors"
    if not path.exists():
        hint = (
            f"its training has not finished: {how_to_resume(folder)}"
            if (folder / "checkpoints").is_dir()
            else "put the file back, or train it again"
        )
        raise RunError(f"{folder} has no model.safetensors (the weights); {hint}.")
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise RunError(f"{path} is not a readable safetensors file ({error}).") from None


def check_run_folder(folder: Path) -> None:
    """Raise a RunError for a path that is no folder; it names the runs next to it."""
    if not folder.is_dir():
        why = "is a file" if folder.exists() else "does not exist"
        beside = sorted(path.parent.name for path in folder.parent.glob("*/config.json"))
        known = f"; {folder.parent} has {abbreviate(beside, 4)}" if beside else ""
        raise RunError(
            f"{folder} is not a run folder: it {why}; "
            f"give the folder that `intervae train` wrote (its --out){known}."
        )


def how_to_resume(folder: Path) -> str:
    """Return how to continue an interrupted run, as part of an error."""
    return f"go on with `intervae resume {shlex.quote(str(folder))}` (fit with resume=True)"


def build_model(config: Any, folder: Path, cls: type[Model] | None = None) -> Model:
    """Return an untrained model for the parsed config.json of `folder`.

    Arguments:
        cls: class of the model; by default the registered one of the name in `config`.
    """
    path = folder / "config.json"
    if not isinstance(config, dict) or "model" not in config or "spec" not in config:
        raise RunError(
            f"{path} is not the config of an intervae run: expected an object with model and spec."
        )
    if config.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {config.get('format')!r}; "
            f"this version of intervae reads format {FORMAT}."
        )
    check_config(config, path)
    cls = _find_class(config["model"], folder) if cls is None else cls
    if config["model"] != cls.name:
        raise RunError(f"{folder} holds a model {config['model']!r}, not a {cls.name!r}.")
    try:
        graph = {"graph": CausalGraph.from_json(config["graph"])} if "graph" in config else {}
        settings = upgrade_settings(cls.Settings, config.get("settings", {}))
        model = cls(Spec.from_json(config["spec"]), **{**settings, **graph})
    except IntervaeError as error:
        raise RunError(f"{path}: {error}") from None
    except DAMAGE as error:
        raise RunError(
            f"{path} does not describe a model ({type(error).__name__}: {error})."
        ) from None
    model.preset = config.get("preset")
    return model


def _find_class(name: Any, folder: Path) -> type[Model]:
    from intervae.models import MODELS  # models import this module

    if not isinstance(name, str) or name not in MODELS:
        raise RunError(
            f"{folder} holds a model {name!r}, which is not registered; load it with "
            f"intervae.load(folder, model=...); registered: {', '.join(MODELS)}."
        )
    return MODELS[name]


def load_tensors(model: Model, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Copy tensors into the model; raise a RunError for other names or shapes than its own."""
    for prefix, module in model.named_modules():
        if isinstance(module, Stacked):  # some of its networks may have been dropped by training
            sizes = {
                len(tensors[name]) if name in tensors and tensors[name].ndim else 0
                for name in module.state_dict(prefix=f"{prefix}.")
            }
            if len(sizes) == 1 and min(sizes) < len(module):
                module.select(range(min(sizes)))
    expected = model.state_dict()
    optional = model.optional_tensors & expected.keys()
    tensors = {name: expected[name] for name in optional} | tensors
    for name, tensor in expected.items():
        if name not in tensors:
            raise RunError(
                f"{path} lacks the tensor {name!r}; it belongs to another model or is damaged."
            )
        stored, built = (f"{t.dtype} {tuple(t.shape)}" for t in (tensors[name], tensor))
        if stored != built:
            raise RunError(
                f"{path}: tensor {name!r} is {stored} where the config says {built}; "
                "the two do not belong together."
            )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise RunError(
            f"{path} holds the unknown tensor {extra[0]!r}; it belongs to another model."
        )
    model.load_state_dict(tensors)
