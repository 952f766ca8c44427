"""`evaluate` hands each metric the right arrays: numbers agree with the metrics called by hand, and what does not apply is left out aloud."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intervae as package
from intervae import metrics
from intervae.causal.graph import CausalGraph
from intervae.data.base import CHUNK, Dataset, Split
from intervae.errors import DataError, UsageError
from intervae.evaluation import METRICS, Metric, evaluate, headlines, variable_tables
from intervae.evaluation.subject import Subject
from intervae.metrics.base import Measurement
from intervae.models.base import Model
from intervae.report import write_figures

ELSEWHERE = ("actions", "heat_map")  # need a model of transitions (tests/models/test_ct_vae.py), or masks (tests/models/test_latent_heat_maps.py)
MEASURED_HERE = [name for name in METRICS if name not in ELSEWHERE]
DEFAULT = {name for name in MEASURED_HERE if not METRICS[name].on_request}


@pytest.fixture(scope="module")
def model(make_model: Any, pendulum: Dataset) -> Model:
    return make_model("causal-vae", pendulum, seed=1)


@pytest.fixture(scope="module")
def found(model: Model, pendulum: Dataset) -> dict[str, Measurement]:
    return {m.metric: m for m in evaluate(model, pendulum)}


@dataclass(frozen=True)
class Nothing:
    """Settings of a model that has none."""


class Mean(Model):
    """A model that was told no labels: three latents with names of their own, the mean pixel of three places; its pictures are its input."""

    name, title, Settings, takes_clips = "mean", "means of pixels", Nothing, True

    def build(self) -> None:
        self.unused = nn.Parameter(torch.zeros(1))

    def phases(self) -> list[Any]:
        return []

    def loss(self, batch: Any, generator: Any = None) -> Any:
        return {"loss": self.unused.sum()}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return ("down", "level", "across")

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        x = self.as_images(images).mean(-3)  # (..., H, W)
        ramp = torch.linspace(-1, 1, x.shape[-1])
        logits = torch.logit(x.clamp(0.01, 0.99))
        return torch.stack([(logits * ramp[:, None]).mean((-2, -1)), logits.mean((-2, -1)), (logits * ramp).mean((-2, -1))], dim=-1)[..., None]

    def decode(self, latents: Tensor) -> Tensor:
        return torch.zeros(len(latents), *self.spec.image_shape)

    def reconstruct(self, images: Any) -> Tensor:
        return (self.as_images(images) - 0.25).abs()

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        return torch.zeros(n, *self.spec.image_shape)


# ---- which metrics --------------------------------------------------------------------------------------------------
def test_without_names_everything_is_measured_that_applies_and_is_not_on_request(found: dict[str, Measurement]) -> None:
    hoped = {"r2_min", "reconstruction_pixel_mae", "mic", "tic", "mic_best_dim", "tic_best_dim", "counterfactual_pixel_mae", "identity_pixel_mae"}
    hoped |= {"counterfactual_psnr", "counterfactual_ssim", "counterfactual_variable_error", "nondescendant_movement", "reader_r2_min"}
    hoped |= {"nondescendant_latent_movement", "shd", "tpr", "fpr", "fdr", "elbo", "log_likelihood", "active_units", "mig", "sap", "irs", "mcc"}
    hoped |= {"dci_disentanglement", "dci_completeness", "dci_informativeness"}
    assert set(found) == hoped


@pytest.mark.parametrize("name", MEASURED_HERE)
def test_every_metric_by_its_name_is_finite_and_fits_a_file(name: str, model: Model, pendulum: Dataset) -> None:
    measured = evaluate(model, pendulum, [name, name])
    assert len({m.metric for m in measured}) == len(measured) > 0  # named twice, measured once
    for m in measured:
        assert math.isfinite(m.value)
        assert all(math.isfinite(value) for value in m.per_variable.values())
        assert m.n > 0
        assert json.loads(json.dumps(m.to_json(), allow_nan=False))["metric"] == m.metric


def test_two_entries_never_measure_the_same_thing(model: Model, pendulum: Dataset) -> None:
    measured = [m.metric for m in evaluate(model, pendulum, MEASURED_HERE)]
    assert len(set(measured)) == len(measured)


def test_a_metric_that_is_unknown_or_does_not_apply_is_refused_before_anything_is_measured(model: Model, make_data: Any, pendulum: Dataset) -> None:
    with pytest.raises(UsageError, match="unknown metric 'mick'; did you mean 'mic'"):
        evaluate(model, pendulum, ["r2", "mick"])
    data = make_data()
    with pytest.raises(UsageError, match="'counterfactual' does not apply to mean on made: it needs data with a simulator"):
        evaluate(Mean(data.spec), data, ["counterfactual"])


def test_samples_that_a_metric_cannot_use_are_told_and_the_rest_is_measured(model: Model, pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(subject: Any) -> Any:
        raise DataError("one class only.")

    monkeypatch.setitem(METRICS, "mig", Metric("", "", lambda _: True, fails))
    for name in DEFAULT - {"r2", "mig"}:
        monkeypatch.delitem(METRICS, name)
    told: list[str] = []
    assert [m.metric for m in evaluate(model, pendulum, tell=told.append)] == ["r2_min"]
    assert told == ["mig left out: one class only."]
    with pytest.raises(DataError, match="one class only"):
        evaluate(model, pendulum, ["mig"], tell=told.append)


# ---- the numbers -----------------------------------------------------------------------------------------------------
def test_mic_and_tic_are_those_of_the_latents_with_their_own_labels(found: dict[str, Measurement], model: Model, pendulum: Dataset) -> None:
    latents, labels = model.encode(pendulum.test.images).numpy(), pendulum.test.labels.numpy()
    for i, name in enumerate(pendulum.names):
        assert found["mic"].per_variable[name] == pytest.approx(metrics.mic(latents[:, i].mean(1), labels[:, i]))
        best = max(metrics.tic(latents[:, i, j], labels[:, i]) for j in range(latents.shape[2]))
        assert found["tic_best_dim"].per_variable[name] == pytest.approx(best)
    assert found["mic"].n == len(pendulum.test) == 24
    assert found["mic"].parameters["matching"] == "identity"
    assert found["mic"].parameters["matched"] == {name: name for name in pendulum.names}
    assert 0 < found["mic"].parameters["by_chance"]["value"] < 1


def test_likelihoods_and_active_units_are_those_of_the_model(found: dict[str, Measurement], model: Model, pendulum: Dataset) -> None:
    bounds = metrics.likelihood_bounds(model.log_weights, pendulum.test.images, pendulum.test.labels, samples=64)
    assert found["elbo"].value == pytest.approx(bounds.elbo.mean())
    assert found["log_likelihood"].value == pytest.approx(bounds.importance_weighted.mean())
    assert found["log_likelihood"].parameters["reading"].startswith("Conditional likelihood p(x | u)")
    variances = model.encode(pendulum.test.images).var(0, unbiased=False)
    assert found["active_units"].value == (variances > 0.01).sum()


def test_graph_and_disentanglement_are_those_of_the_model(found: dict[str, Measurement], model: Model, pendulum: Dataset) -> None:
    assert pendulum.graph is not None
    for row in metrics.graph_metrics(pendulum.graph, model.graph).rows():
        assert found[row.metric].value == row.value
    latents, labels = model.encode(pendulum.test.images).numpy().mean(2), pendulum.test.labels.numpy()
    assert found["mig"].value == pytest.approx(metrics.mig(latents, labels, kinds="continuous").value)
    assert found["mcc"].value == pytest.approx(metrics.mcc(latents, labels, kinds="continuous", matching="identity").value)
    robust = metrics.irs(latents, labels, kinds="continuous").per_variable
    assert found["irs"].per_variable == pytest.approx(dict(zip(pendulum.names, robust.values(), strict=True)))  # named, not z0, z1, ...


def test_counterfactuals_are_measured_on_the_models_pictures(found: dict[str, Measurement], model: Model, pendulum: Dataset) -> None:
    assert pendulum.simulator is not None
    images, exogenous = pendulum.test.images.numpy(), pendulum.test.fields["exogenous"].numpy()

    def query(pictures: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        return model.counterfactual(pictures, do).numpy()

    for m in metrics.counterfactual_errors(query, pendulum.simulator, images, exogenous, pendulum.variables):
        assert found[m.metric].per_variable == pytest.approx(m.per_variable)
    assert found["nondescendant_latent_movement"].value == 0
    assert found["reader_r2_min"].n == 500
    errors = found["counterfactual_variable_error"]
    assert set(errors.per_variable) == set(pendulum.names)
    assert errors.value > errors.parameters["true_picture"]["value"]  # an untrained model


def test_a_latent_that_should_have_stayed_is_found(model: Any, pendulum: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = type(model).intervene

    def leaky(self: Any, latents: Tensor, do: Any) -> Tensor:
        after = honest(self, latents, do)
        if "light" in do:
            after[:, 0] += 0.125  # the pendulum is no effect of the light
        return after

    monkeypatch.setattr(type(model), "intervene", leaky)
    found = {m.metric: m for m in evaluate(model, pendulum, ["counterfactual"])}["nondescendant_latent_movement"]
    assert found.value == pytest.approx(0.125, abs=1e-5)
    assert {name for name, value in found.per_variable.items() if value > 0} == {"light"}


def test_the_axioms_use_a_predictor_of_the_validation_split_and_name_the_graph(model: Model, pendulum: Dataset) -> None:
    found = {m.metric: m for m in evaluate(model, pendulum, ["axioms"])}
    hoped = {"composition_1", "composition_10", "reversibility_1", "reversibility_10", "effectiveness_error"}
    assert set(found) == hoped | {"minimality_variables", "minimality_picture", "predictor_r2_min"}
    assert found["predictor_r2_min"].parameters["training_pictures"] == len(pendulum.validation)
    assert found["composition_1"].value == pytest.approx(evaluate(model, pendulum, ["reconstruction"])[0].value, rel=1e-4)  # do nothing, once
    assert found["minimality_variables"].parameters["graph"] == "true"
    unknown = evaluate(model, replace(pendulum, graph=None), ["axioms"])
    assert {m.parameters["graph"] for m in unknown if m.metric.startswith("minimality")} == {"the model's"}


def test_the_latents_answer_to_the_models_own_graph_and_the_axioms_to_the_true_one(make_model: Any, pendulum: Dataset) -> None:
    wrong = CausalGraph.from_edges(pendulum.names, [("light", "pendulum"), ("pendulum", "shadow_length"), ("shadow_length", "shadow_position")])
    model = make_model("causal-vae", pendulum, graph=wrong)
    found = {m.metric: m for m in evaluate(model, pendulum, ["counterfactual", "axioms"])}
    assert found["nondescendant_latent_movement"].value == 0  # do(light) moves the pendulum, as this model thinks it should
    assert "light" not in found["nondescendant_latent_movement"].per_variable  # in its graph nothing must stay
    assert "light" in found["minimality_variables"].per_variable  # in truth the pendulum must
    assert "light" in found["nondescendant_movement"].per_variable


def test_labels_are_shown_to_an_encoder_that_needs_them_and_to_no_other(make_model: Any, make_data: Any) -> None:
    data = make_data()
    images, labels = data.test.images, data.test.labels
    needs = make_model("ivae", data, label_dropout=0.0)
    able = make_model("causal-vae", data, encode_labels=True)
    for model in (needs, able):
        model.requires_grad_(False)
        for weights in model.parameters():
            weights.mul_(3)  # so that what an untrained encoder sees matters
    assert (needs.needs_labels, able.needs_labels) == (True, False)
    assert torch.equal(torch.tensor(Subject(needs, data).latents), needs.encode(images, labels))
    assert torch.equal(torch.tensor(Subject(able, data).latents), able.encode(images))
    assert not torch.allclose(able.encode(images), able.encode(images, labels), atol=1e-3)
    (error,) = evaluate(needs, data, ["reconstruction"])
    assert error.value == pytest.approx(metrics.pixel_mae(needs.decode(needs.encode(images, labels)), images).mean(), rel=1e-6)
    (read,) = evaluate(able, data, ["r2"])
    assert read.per_variable == pytest.approx(metrics.r2(able.measure(images).numpy(), labels.numpy(), data.names).per_variable)


# ---- other models, other data ----------------------------------------------------------------------------------------
def test_latents_that_are_not_the_labels_are_matched(make_data: Any) -> None:
    data = make_data(samples=400)
    found = {m.metric: m for m in evaluate(Mean(data.spec), data)}
    assert not {"r2_min", "counterfactual_pixel_mae", "shd", "elbo"} & set(found)  # nobody asks it about labels, do() or graphs
    assert found["mic"].parameters["matching"] == "hungarian-mic"
    assert found["mic"].parameters["matched"] == {"a": "level", "b": "across", "c": "down"}
    assert found["mcc"].parameters["matched"] == found["mic"].parameters["matched"]
    assert found["mcc"].parameters["matching"] == "hungarian"
    assert found["mcc"].value > 0.95
    assert "mic_best_dim" not in found  # one dim each
    assert set(found["irs"].per_variable) == {"down", "level", "across"}


def test_what_is_constant_in_the_test_split_is_left_out_and_named(make_data: Any, make_model: Any) -> None:
    data = make_data(kinds=("continuous", "binary", "continuous"))
    labels = data.test.labels.clone()
    labels[:, 1] = 1.0
    data = replace(data, test=Split(images=data.test.images, labels=labels))
    found = {m.metric: m for m in evaluate(make_model("causal-vae", data), data)}
    for name in ("r2_min", "mic", "mig", "mcc", "dci_disentanglement"):
        assert set(found[name].per_variable) == {"a", "c"}, name
        assert found[name].parameters["constant_in_test"] == ["b"], name


def test_a_test_split_of_two_images_is_measured_as_far_as_it_goes(make_data: Any, make_model: Any) -> None:
    data = make_data()
    data = replace(data, test=data.test[:2])
    told: list[str] = []
    found = {m.metric for m in evaluate(make_model("causal-vae", data), data, tell=told.append)}
    assert not told  # what cannot apply is not tried
    assert {"r2_min", "reconstruction_pixel_mae", "log_likelihood", "active_units", "shd"} <= found
    assert not {"mic", "tic", "mig"} & found


def test_clips_are_reconstructed_frame_by_frame(make_data: Any) -> None:
    data = make_data()

    def clips(split: Split) -> Split:
        return Split(images=split.images[:, None].repeat(1, 3, 1, 1, 1), labels=split.labels)

    data = replace(data, train=clips(data.train), validation=clips(data.validation), test=clips(data.test))
    (found,) = evaluate(Mean(data.spec), data, ["reconstruction"])
    x = data.test.images.float() / 255
    assert found.value == pytest.approx(float(((x - 0.25).abs() - x).abs().mean()), rel=1e-5)
    assert found.n == 3 * len(data.test)


class Counting(Split):
    """A split that makes its pictures when they are asked for, and notes how many at a time."""

    made: ClassVar[list[int]] = []

    @property
    def images(self) -> Tensor:
        self.made.append(len(self))
        return self.fields["kept"]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.fields["kept"].shape)


def test_the_test_split_is_gone_through_in_chunks_with_the_numbers_of_the_whole(make_model: Any, make_data: Any, tmp_path: Path) -> None:
    data = make_data((1, 8, 8), samples=3100)
    data = replace(data, validation=data.validation[:20], test=data.train[:2100])
    whole, model = data.test, make_model("causal-vae", data)
    data = replace(data, test=Counting(kept=whole.images, labels=whole.labels))
    Counting.made.clear()
    found = {m.metric: m for m in evaluate(model, data, ["r2", "reconstruction", "active_units", "likelihood", "diversity", "axioms"])}
    write_figures(model, data, tmp_path)
    assert max(Counting.made) == CHUNK < len(whole)
    subject = Subject(model, data)
    np.testing.assert_allclose(subject.latents, model.encode(whole.images).numpy(), atol=1e-6)
    errors = metrics.pixel_mae(model.reconstruct(whole.images), whole.images)
    assert (found["reconstruction_pixel_mae"].value, found["reconstruction_pixel_mae"].n) == (pytest.approx(errors.mean(), rel=1e-6), len(whole))
    assert found["reconstruction_pixel_mae"].spread == pytest.approx(errors.std(), rel=1e-5)
    read = metrics.r2(model.measure(whole.images).numpy(), whole.labels.numpy(), data.names)
    assert found["r2_min"].per_variable == pytest.approx(read.per_variable, rel=1e-5)


def test_diversity_compares_the_models_samples_with_the_test_images(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    (collapsed,) = evaluate(Mean(data.spec), data, ["diversity"])
    assert (collapsed.value, collapsed.n) == (0, len(data.test))
    monkeypatch.setattr(Mean, "sample", lambda self, n, do=None, seed=None: 0.5 * data.test.images[:n].flip(0) / 255)
    assert evaluate(Mean(data.spec), data, ["diversity"])[0].value == pytest.approx(0.5)


# ---- tables ----------------------------------------------------------------------------------------------------------
def test_headlines_say_what_a_number_is_to_be_compared_with() -> None:
    rows = [
        Measurement("mic", 0.9512, 2000, parameters={"by_chance": {"value": 0.1081, "a": 0.2}}),
        Measurement("counterfactual_variable_error", 0.08, 512, parameters={"doing_nothing": {"value": 0.7}, "true_picture": {"value": 0.05}}),
        Measurement("log_likelihood", -290.0, 128, parameters={"samples": 64, "effective_samples": 3.321}),
        Measurement("shd", 0, 1),
    ]
    assert headlines(rows) == [
        ["mic", "0.9512", "2000", "chance 0.108"],
        ["counterfactual_variable_error", "0.08", "512", "doing nothing 0.7, true pictures 0.05"],
        ["log_likelihood", "-290", "128", "3.32 of 64 samples count"],
        ["shd", "0", "1", ""],
    ]


def test_tables_of_variables_have_a_row_for_each_metric_and_few_columns() -> None:
    first = Measurement("r2_min", 0.1, 5, dict(zip("abcdef", np.arange(6) / 10, strict=True)))
    second = Measurement("tic", 0.3, 5, {"b": 0.25})
    tables = variable_tables([first, Measurement("shd", 0, 1), second])
    assert tables == [
        (["for each variable", "a", "b", "c", "d"], [["r2", "0", "0.1", "0.2", "0.3"], ["tic", "", "0.25", "", ""]]),
        (["for each variable", "e", "f"], [["r2", "0.4", "0.5"]]),
    ]
    assert variable_tables([]) == []


def test_the_package_has_one_door_to_it(model: Model, pendulum: Dataset) -> None:
    assert package.evaluate is evaluate
    assert set(metrics.__all__) >= {"counterfactual_errors", "likelihood_bounds", "action_accuracy", "ssim", "composition", "simulator_reader"}
    for name in metrics.__all__:
        assert callable(getattr(metrics, name))


def test_edges_are_judged_by_strength_and_under_the_best_renaming(make_model: Any, pendulum: Dataset) -> None:
    names = pendulum.names
    backwards = CausalGraph.from_edges(
        names, [(names[3], names[0], 0.9), (names[3], names[1], 0.8), (names[2], names[0], 0.7), (names[2], names[1], 0.6)]
    )
    model = make_model("causal-vae", pendulum, graph=backwards)
    measured = {m.metric: m.value for m in evaluate(model, pendulum, ["shd", "edges", "shd_permuted"])}
    assert measured["shd"] == 4  # every edge the wrong way round ...
    assert measured["shd_permuted"] == 0  # ... and the right graph under other names
    curves = metrics.edge_curves(pendulum.graph, backwards)
    assert measured[curves.auroc.metric] == curves.auroc.value < 0.5
