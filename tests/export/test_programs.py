"""Programs of torch.export and ONNX give what the model gives, for any number of images."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.data.simulators import Pendulum
from intervae.errors import RunError, UsageError
from intervae.export import export_run
from intervae.export.programs import EXTENSIONS, do_names, export_programs, queries
from intervae.models import MODELS, Model
from intervae.testing import ModelCase, ramps
from quick_settings import QUICK

TOLERANCE = 1e-5
WITH_COUNTERFACTUAL = {name for name, cls in MODELS.items() if hasattr(cls, "counterfactual")}
Run = Callable[..., np.ndarray]


def make_model(name: str) -> tuple[Model, Dataset]:
    """Return a model with random weights and data that suit it."""
    case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}))
    data = case.simulated() if not hasattr(MODELS[name], "act") else case.data()
    model = case.model(data)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model, data


FLOW = {"picture": "flow", "flow_widths": (8,), "flow_steps": 3, "channels": (8, 8), "hidden": 16}
GUIDED = {"flow_guidance": 2.0, "flow_hidden_classes": 0.1}


@pytest.mark.parametrize("added", [{}, GUIDED, {**GUIDED, "corrections": 1}])
def test_programs_of_a_flow_equal_the_model(added: dict[str, Any]) -> None:
    data = ramps(kinds=("continuous", "binary"))
    settings = {**FLOW, **added}
    graph = CausalGraph.from_edges(data.names, [(data.names[1], data.names[0])])
    model = MODELS["deep-scm"](data.spec, graph=graph, **settings)
    with torch.no_grad():
        for parameter in model.picture.parameters():
            parameter += 0.05 * torch.randn(parameter.shape)
    assert_equal_to_model(model, data, run_torch, "torch")


def test_a_flow_whose_guidance_rises_says_why_it_is_left_out() -> None:
    data = ramps(kinds=("continuous", "binary"))
    settings = {**FLOW, **GUIDED, "flow_confidence": 0.9}
    _, left_out = export_programs(MODELS["deep-scm"](data.spec, graph="empty", **settings), "torch")
    assert set(left_out) == {"counterfactual"}
    assert "flow_confidence=0" in left_out["counterfactual"]


def run_torch(content: bytes) -> Run:
    program = torch.export.load(io.BytesIO(content)).module()
    return lambda *tensors: program(*tensors).numpy()


def run_onnx(content: bytes) -> Run:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *tensors: session.run(
        None, dict(zip(names, (t.numpy() for t in tensors), strict=True))
    )[0]


def assert_equal_to_model(model: Any, data: Dataset, load: Callable[[bytes], Run], to: str) -> None:
    """Compare every program with the query of the same name, for 1, 3 and 7 images."""
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    files, left_out = export_programs(model, to)
    assert not left_out
    assert ("counterfactual" in queries(model)) == (model.name in WITH_COUNTERFACTUAL)
    programs = {name: load(files[name + EXTENSIONS[to]]) for name in queries(model)}
    assert type(model) is MODELS[model.name]
    assert [parameter.requires_grad for parameter in model.parameters()] == trainable
    for rows in (1, 3, 7):
        index = torch.arange(rows) % len(data.test)
        images, labels = data.test.images[index].float() / 255, data.test.labels[index]
        known = (labels,) if model.needs_labels else ()
        latents = model.encode(images, *known)
        assert_close(programs["encode"](images, *known), latents)
        assert_close(programs["decode"](latents), model.decode(latents))
        if "counterfactual" not in programs:
            continue
        names = do_names(model)
        kinds = {variable.name: variable.kind for variable in model.spec.variables}
        binary = {i for i, name in enumerate(names) if kinds.get(name) == "binary"}
        rest = (labels,) if model.counterfactual_takes_labels else ()
        for acted in ([], [0], [0, len(names) - 1], list(range(len(names)))):
            values, mask = torch.full((rows, len(names)), 7.0), torch.zeros(rows, len(names))
            values[:, acted] = torch.linspace(-1, 1, rows * len(acted)).reshape(rows, -1)
            mask[:, acted] = 1
            for i in set(acted) & binary:
                values[:, i] = (values[:, i] > 0).float()
            do = {names[i]: values[:, i] for i in acted}
            assert_close(
                programs["counterfactual"](images, values, mask.bool(), *rest),
                model.counterfactual(images, do, *rest),
            )


def assert_close(value: np.ndarray, expected: torch.Tensor) -> None:
    assert value.shape == tuple(expected.shape)
    assert np.abs(value - expected.numpy()).max() < TOLERANCE


@pytest.mark.parametrize("name", list(MODELS))
def test_programs_of_torch_equal_the_model(name: str) -> None:
    assert_equal_to_model(*make_model(name), run_torch, "torch")


@pytest.mark.parametrize(
    "name",
    [
        name if name == "causal-vae" else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)
def test_programs_of_onnx_equal_the_model(name: str) -> None:
    pytest.importorskip("onnxscript", reason="needs pip install intervae[onnx]")
    assert_equal_to_model(*make_model(name), run_onnx, "onnx")


def test_programs_of_layers_equal_the_model() -> None:
    """Pictures of a few painted layers, each in its region, with the images' own pixels."""
    data = Pendulum().dataset(size=24, samples=60)
    settings: dict[str, Any] = {"channels": (8, 8), "hidden": 16, "dims": 2, "layer_hidden": 16}
    layers = "pendulum,light,shadow_length+shadow_position"
    model: Any = MODELS["causal-vae"](
        data.spec, graph=data.graph, decoder="layers", layers=layers, **settings
    )
    model.prepare_pictures(data, 0)
    model.initialise(0)
    assert_equal_to_model(model, data, run_torch, "torch")


def test_each_row_has_its_own_mask() -> None:
    model: Any
    model, data = make_model("causal-vae")
    program = run_torch(export_programs(model, "torch")[0]["counterfactual.pt2"])
    images, n = data.test.images[:4].float() / 255, len(model.latent_names)
    values, mask = torch.full((4, n), 3.0), torch.eye(4, n).bool()
    rows = program(images, values, mask)
    for i in range(4):
        do = {model.latent_names[i]: 3.0} if i < n else {}
        assert_close(rows[i : i + 1], model.counterfactual(images[i : i + 1], do))


def test_categories_and_missing_labels_of_deep_scm() -> None:
    data = ramps(kinds=("binary", "continuous", "continuous"))
    case = ModelCase(MODELS["deep-scm"], QUICK["deep-scm"])
    model: Any = case.model(data)
    files, left_out = export_programs(model, "torch")
    assert not left_out
    program = run_torch(files["counterfactual.pt2"])
    images, labels = data.test.images[:3].float() / 255, data.test.labels[:3].clone()
    labels[0, 1] = torch.nan
    mask = torch.tensor([True, False, False]).expand(3, 3)
    expected = model.counterfactual(images, {"a": 1.0}, labels)
    assert_close(program(images, torch.ones(3, 3), mask, labels), expected)


def test_a_query_that_draws_noise_is_left_out_with_a_reason() -> None:
    data = ramps(kinds=("continuous", "binary", "continuous"))  # the binary one has a cause
    case = ModelCase(MODELS["deep-scm"], QUICK["deep-scm"])
    files, left_out = export_programs(case.model(data), "torch")
    assert set(files) == {"encode.pt2", "decode.pt2", "manifest.json"}
    assert "draws noise" in left_out["counterfactual"]
    assert json.loads(files["manifest.json"])["left_out"] == left_out


def test_manifest_names_variables_units_and_shapes() -> None:
    model, data = make_model("causal-vae")
    manifest = json.loads(export_programs(model, "torch")[0]["manifest.json"])
    assert manifest["do"] == list(data.names)
    assert [each["unit"] for each in manifest["variables"]] == [
        variable.unit for variable in data.spec.variables
    ]
    inputs = manifest["programs"]["counterfactual"]["inputs"]
    assert [each["name"] for each in inputs] == ["images", "values", "mask"]
    assert inputs[0]["shape"] == ["batch", *data.spec.image_shape]
    assert inputs[2] == {**inputs[2], "shape": ["batch", len(data.names)], "dtype": "bool"}


# ---- folders -----------------------------------------------------------------------------------
@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_model("vae")[0].save(tmp_path / "run")
    return tmp_path / "run"


def test_folder_is_written_as_a_whole_or_not_at_all(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from intervae import files

    real, written = files.write_bytes, []

    def interrupted(path: Path, content: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path)
        real(path, content)

    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(files, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_run(run, "torch", tmp_path / "out")
    assert written
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(files, "write_bytes", real)
    export_run(run, "torch", tmp_path / "out")
    complete = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    written.clear()
    monkeypatch.setattr(files, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_run(run, "torch", tmp_path / "out", overwrite=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == complete


def test_existing_paths_are_not_replaced_by_accident(run: Path, tmp_path: Path) -> None:
    export_run(run, "torch", tmp_path / "out")
    with pytest.raises(RunError, match=r"exists.*overwrite"):
        export_run(run, "torch", tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="no earlier export"):
        export_run(run, "torch", tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").is_file()
    with pytest.raises(UsageError, match="unknown format 'tensorflow'"):
        export_run(run, "tensorflow", tmp_path / "tf")
