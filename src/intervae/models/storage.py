"""Models on disk: config.json, model.safetensors, graph.json and a model card; nothing in them is ever executed."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data.base import Spec
from intervae.data.columns import listed
from intervae.errors import IntervaeError, QueryError, RunError
from intervae.files import read_json, write_bytes, write_json, write_text
from intervae.models.base import Model, answers
from intervae.nets.stacked import Stacked

FORMAT = 1
REVISION = 12  # characters of a git revision


def describe_model(model: Model) -> dict[str, Any]:
    """The part of config.json from which the model can be built again."""
    return {
        "format": FORMAT,
        "intervae": intervae.__version__,
        "model": model.name,
        "settings": asdict(model.settings),
        "spec": model.spec.to_json(),
        **({"graph": model.given_graph.to_json()} if model.given_graph is not None else {}),
    }


def save_model(model: Model, folder: Path, **run: Any) -> None:
    """Write the model; `run` adds what is known of its training (data, seed, versions, ...) to config.json and the card."""
    config = {**describe_model(model), **run}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(folder / "model.safetensors", save(tensors, metadata={"model": model.name}))
    if answers(type(model), "graph"):
        write_json(folder / "graph.json", model.graph.to_json())
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", model_card(model, config))


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """The model of a run folder, ready for queries."""
    folder = Path(folder)
    need_folder(folder)
    config = read_json(folder / "config.json", "the run's settings")
    model = build_model(config, folder)
    path = folder / "model.safetensors"
    if not path.is_file():
        hint = f"its training has not finished: {going_on(folder)}" if (folder / "checkpoints").is_dir() else "put the file back, or train it again"
        raise RunError(f"{folder} has no model.safetensors (the weights); {hint}.")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is not a readable safetensors file ({error}).") from None
    load_tensors(model, tensors, path)
    model.trained = True
    return model.to(device).eval()


def need_folder(folder: Path) -> None:
    """Refuse what is not a folder, where that of a run is needed; the runs beside it are told."""
    if not folder.is_dir():
        why = "is a file" if folder.exists() else "does not exist"
        beside = sorted(path.parent.name for path in folder.parent.glob("*/config.json"))
        known = f"; {folder.parent} has {listed(beside, 4)}" if beside else ""
        raise RunError(f"{folder} is not a run folder: it {why}; give the folder that `intervae train` wrote (its --out){known}.")


def going_on(folder: Path) -> str:
    """What to do with a run that was stopped."""
    return f"go on with `intervae resume {shlex.quote(str(folder))}` (fit with resume=True)"


def build_model(config: Any, folder: Path) -> Model:
    """An untrained model from the parsed config.json of `folder`."""
    from intervae.models import MODELS

    if not isinstance(config, dict) or "model" not in config or "spec" not in config:
        raise RunError(f"{folder / 'config.json'} is not the config of an intervae run.")
    if config.get("format") != FORMAT:
        raise RunError(f"{folder / 'config.json'} has format {config.get('format')!r}; this version of intervae reads format {FORMAT}.")
    if not isinstance(config["model"], str) or config["model"] not in MODELS:
        raise RunError(f"{folder} holds a model {config['model']!r}, which this version of intervae does not know; known: {', '.join(MODELS)}.")
    try:
        given = {"graph": CausalGraph.from_json(config["graph"])} if "graph" in config else {}
        return MODELS[config["model"]](Spec.from_json(config["spec"]), **{**config.get("settings", {}), **given})
    except IntervaeError as error:
        raise RunError(f"{folder / 'config.json'}: {error}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # a damaged config can break a network anywhere
        raise RunError(f"{folder / 'config.json'} does not describe a model ({type(error).__name__}: {error}).") from None


def load_tensors(model: Model, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Copy tensors into the model after checking that names and shapes are its own."""
    for prefix, module in model.named_modules():
        if isinstance(module, Stacked):  # some of its networks, or one, had been chosen when this was stored
            stored = {len(tensors[name]) if name in tensors and tensors[name].ndim else 0 for name in module.state_dict(prefix=f"{prefix}.")}
            if len(stored) == 1 and min(stored) < len(module):
                module.keep(range(min(stored)))
    expected = model.state_dict()
    tensors = {name: expected[name] for name in model.newer} | tensors
    for name, tensor in expected.items():
        if name not in tensors:
            raise RunError(f"{path} lacks the tensor {name!r}; it belongs to another model or is damaged.")
        found, wanted = ((t.dtype, tuple(t.shape)) for t in (tensors[name], tensor))
        if found != wanted:
            raise RunError(
                f"{path}: tensor {name!r} is {found[0]} {found[1]} where the config says {wanted[0]} {wanted[1]}; the two do not belong together."
            )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise RunError(f"{path} holds the unknown tensor {extra[0]!r}; it belongs to another model.")
    model.load_state_dict(tensors)


def versions() -> dict[str, str]:
    return {"intervae": intervae.__version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def revision() -> str:
    """The git revision of the package's own checkout, with a + when it has uncommitted changes.

    A copy without its history (a machine in a cluster, a folder inside another checkout) is told it by INTERVAE_REVISION; without either it
    is empty.
    """
    package = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # fails for a copy that lies in a checkout without being part of it
        return git("rev-parse", f"--short={REVISION}", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("INTERVAE_REVISION", "")[:REVISION]


def hardware(device: torch.device | str = "cpu") -> str:
    """In words: the accelerator's name, or the number of cores."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def model_card(model: Model, config: dict[str, Any]) -> str:
    """README.md of a run: what it is, what it knows, how to use it."""
    lines = [f"# {model.title}", "", f"A `{model.name}` model made with intervae {config['intervae']}.", ""]
    data = config.get("data") or {}
    if data:
        lines += [f"- data: `{data.get('name') or data.get('path') or 'given in Python'}`"]
    lines += [f"- images: {' x '.join(map(str, model.spec.image_shape))} (channels, height, width)"]
    lines += [f"- parameters: {sum(p.numel() for p in model.parameters()):,}"]
    if "seed" in config:
        seconds, machine = config.get("seconds", 0), config.get("hardware", "unknown hardware")
        lines += [f"- seed {config['seed']}, trained on {machine}, {config.get('date', '')}, {seconds:.0f} s"]
    if model.spec.variables:
        lines += ["", "| variable | kind | unit | range in training |", "|---|---|---|---|"]
        ranges = [listed(v.categories, 12) or f"{v.low:.4g} to {v.high:.4g}" for v in model.spec.variables]  # words in the order of their codes
        lines += [f"| {v.name} | {v.kind} | {v.unit} | {values} |" for v, values in zip(model.spec.variables, ranges, strict=True)]
    if answers(type(model), "act"):
        lines += ["", "Actions: " + ", ".join(f"`{action}`" for action in model.spec.actions) + "."]
    try:
        loose = model.undirected_edges
        edges = [f"`{a}` {'--' if (a, b) in loose else '->'} `{b}` ({w:.2f})" for a, b, w in model.graph.edges]
        lines += ["", "Graph: " + (", ".join(edges) or "no edges") + "."]
    except QueryError:
        pass
    lines += ["", "```python", "import intervae", "", 'model = intervae.load(".")']
    if answers(type(model), "counterfactual"):
        first = model.latent_names[0]
        middle = {v.name: (v.low + v.high) / 2 for v in model.spec.variables}.get(first, 0.0)  # a latent without a label has no range
        lines += [f'pictures = model.counterfactual(images, {{"{first}": {middle:.4g}}})']
    if answers(type(model), "act"):
        lines += [f'after = model.act(images, "{model.spec.actions[0]}")', "chances = model.attribute(images, after)  # of each action"]
    lines += ["```", "", "Settings:", "", "```json", json.dumps(config["settings"], indent=2), "```", ""]
    acted = "What act() paints is only as right as what was learned of the action"
    asked = acted if answers(type(model), "act") else "A counterfactual is only as right as the graph and the mechanisms"
    lines += [f"{asked}; outside the training ranges above it extrapolates.", ""]
    return "\n".join(lines)
