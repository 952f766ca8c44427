"""Programs of a trained model: encode, decode and counterfactual as functions of tensors.

Each is traced by `torch.export` with any number of images and gives what the model gives. The
checks of inputs are not part of a program. manifest.json says what goes in and what comes out.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import intervae
from intervae.causal.do import MaskedAction
from intervae.errors import QueryError, UsageError
from intervae.models.base import Model
from intervae.models.capabilities import Counterfactual, HasGraph

MANIFEST = "manifest.json"
FORMAT = 1
EXAMPLES = 3  # images in the example that is traced; 1 would be taken for a constant
EXTENSIONS = {"torch": ".pt2", "onnx": ".onnx"}
# properties that are computed from weights; they are constants of a program
CONSTANTS = ("graph", "hard_edges", "latent_names")


class TensorInput(NamedTuple):
    """A tensor that a program takes: its name, shape without the batch, dtype and meaning."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    description: str


class Query(NamedTuple):
    """A query as a function of (model, tensors), with its inputs and its output."""

    function: Callable[..., Tensor]
    inputs: tuple[TensorInput, ...]
    output: TensorInput


class Program(nn.Module):
    """The module that is traced: one query of a model."""

    def __init__(self, model: Model, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.function(self.model, *tensors)


def export_programs(model: Model, to: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the files of a folder of programs, name -> bytes, and why queries are left out.

    Arguments:
        to: "torch" or "onnx".
    """
    model = copy.deepcopy(model).cpu().eval().requires_grad_(False)  # programs are not trained
    if to == "onnx":
        _check_onnx()
    files, programs, left_out = {}, {}, {}
    for name, query in queries(model).items():
        file = name + EXTENSIONS[to]
        try:
            files[file] = to_bytes(trace(model, query), query, to)
        except QueryError as error:
            left_out[name] = str(error)
            continue
        except Exception as error:  # whatever torch raises for code that it cannot trace
            left_out[name] = f"torch cannot trace it ({type(error).__name__}: {_summary(error)})."
            continue
        programs[name] = {
            "file": file,
            "inputs": [_describe(each) for each in query.inputs],
            "output": _describe(query.output),
        }
    if not files:
        raise UsageError(f"{model.name} cannot be exported: {left_out['encode']}")
    manifest = describe(model, to, programs, left_out)
    files[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    return files, left_out


def _summary(error: Exception) -> str:
    """Return the text of the first cause of an error, on one line."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return " ".join(str(error).split())[:160]


# ---- queries -----------------------------------------------------------------------------------
def queries(model: Model) -> dict[str, Query]:
    """Return the queries of a model that can become programs."""
    spec = model.spec
    frames = () if spec.frames is None else (spec.frames,)
    picture = (*frames, *spec.image_shape)
    images = TensorInput("images", picture, "float32", "pixels in [0, 1]")
    labels = TensorInput(
        "labels", (len(spec.variables),), "float32", "labels of the images, in own units"
    )
    example = torch.zeros(1, *picture)
    row = (torch.zeros(1, len(spec.variables)),) if model.needs_labels else ()
    latents = TensorInput(
        "latents", tuple(model.encode(example, *row).shape[1:]), "float32", "one row per latent"
    )
    shown = tuple(model.decode(model.encode(example, *row)).shape[1:])
    pictures = images._replace(name="pictures")  # an input and an output of ONNX differ in name
    encode_inputs = (images, labels) if model.needs_labels else (images,)
    result = {
        "encode": Query(lambda net, *tensors: net.encode(*tensors), encode_inputs, latents),
        "decode": Query(lambda net, z: net.decode(z), (latents,), pictures._replace(shape=shown)),
    }
    if isinstance(model, Counterfactual):
        n = (len(do_names(model)),)
        inputs = (
            images,
            TensorInput("values", n, "float32", "values that do() sets, in own units"),
            TensorInput("mask", n, "bool", "true where do() sets the variable"),
            *((labels,) if model.counterfactual_takes_labels or model.needs_labels else ()),
        )
        result["counterfactual"] = Query(_counterfactual, inputs, pictures)
    return result


def do_names(model: Any) -> tuple[str, ...]:
    """Return the variables that do() may set, in the order of `values` and `mask`."""
    if model.spec.frames is not None:  # the latents of all frames of a clip
        empty = torch.zeros(1, model.spec.frames, *model.spec.image_shape)
        return tuple(model.latents_over_time(empty, {}))
    return tuple(getattr(model, "node_names", model.latent_names))


def _counterfactual(model: Any, images: Tensor, values: Tensor, mask: Tensor, *rest: Tensor) -> Any:
    """Return the counterfactual of images (B, ...) for do() as values and mask, each (B, n)."""
    do = {name: MaskedAction(values[:, i], mask[:, i]) for i, name in enumerate(model.do_names)}
    return model.counterfactual(images, do, *rest)


# ---- tracing -----------------------------------------------------------------------------------
def trace(model: Model, query: Query) -> torch.export.ExportedProgram:
    """Trace a query with a batch of any size."""
    generator = torch.Generator().manual_seed(0)
    example = []
    for each in query.inputs:
        tensor = torch.rand(EXAMPLES, *each.shape, generator=generator)
        example.append(tensor > 0.5 if each.dtype == "bool" else tensor)
    batch = torch.export.Dim("batch", min=1)
    shapes = (tuple({0: batch} for _ in example),)
    with _constants(model), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export, about its own parts
        program = Program(model, query.function)
        return torch.export.export(program, tuple(example), dynamic_shapes=shapes, strict=False)


@contextlib.contextmanager
def _constants(model: Model) -> Iterator[None]:
    """Replace properties that read weights as numbers by their values, while a model is traced."""
    cls = type(model)
    values = {name: getattr(model, name) for name in CONSTANTS if hasattr(cls, name)}
    if isinstance(model, Counterfactual):
        values["do_names"] = do_names(model)
    model.__class__ = type(cls.__name__, (cls,), values)
    try:
        yield
    finally:
        model.__class__ = cls


def to_bytes(program: torch.export.ExportedProgram, query: Query, to: str) -> bytes:
    """Return the file of a traced program."""
    if to == "onnx":
        return _to_onnx(program, query)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, buffer)
    return buffer.getvalue()


def _check_onnx() -> None:
    """Raise a UsageError if a package that ONNX needs is missing."""
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--to onnx needs the package {missing[0]}; install it with pip install intervae[onnx]."
        )


def _to_onnx(program: torch.export.ExportedProgram, query: Query) -> bytes:
    """Return the ONNX model of a program."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it names packages we do not use
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            program,
            input_names=[each.name for each in query.inputs],
            output_names=[query.output.name],
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    return exported.model_proto.SerializeToString()


# ---- manifest ----------------------------------------------------------------------------------
def describe(
    model: Model, to: str, programs: dict[str, Any], left_out: dict[str, str]
) -> dict[str, Any]:
    """Return manifest.json: names, units, shapes and files."""
    variables = [
        {
            "name": variable.name,
            "kind": variable.kind,
            "unit": variable.unit,
            "categories": list(variable.categories),
            "ordered": variable.ordered,
            "low": variable.low,
            "high": variable.high,
        }
        for variable in model.spec.variables
    ]
    return {
        "format": FORMAT,
        "intervae": intervae.__version__,
        "torch": str(torch.__version__),
        "to": to,
        "model": model.name,
        "title": model.title,
        "variables": variables,
        "latents": list(model.latent_names),
        "do": list(do_names(model)) if isinstance(model, Counterfactual) else [],
        **({"graph": model.graph.to_json()} if isinstance(model, HasGraph) else {}),
        "programs": programs,
        "left_out": left_out,
    }


def _describe(tensor: TensorInput) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": ["batch", *tensor.shape],
        "dtype": tensor.dtype,
        "description": tensor.description,
    }
