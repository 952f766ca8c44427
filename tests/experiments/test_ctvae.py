"""Measures of the CT-VAE experiment: oracles that act truly, not at all, or too much."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from intervae.data import Neighbours, load_data
from intervae.experiments import ctvae_measures
from intervae.experiments.base import MetricKey
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.experiments.ctvae_jobs import TrainActions, TrainCodebooks
from intervae.experiments.ctvae_measures import (
    REPETITIONS,
    explanation_rates,
    factor_errors,
    mask_selectivity,
    repeated_action_psnr,
)
from intervae.experiments.factor_predictor import fit_factor_predictor
from intervae.models.ct_vae.augmentations import IDENTITY, Augmentation
from intervae.models.ct_vae.explanations import Explanations
from intervae.models.ct_vae.graph import TransitionGraph

SMALL = {
    "size": 16,
    "levels": [4, 3, 3, 2, 2, 3],
    "transitions": {"cyclic": ["floor_hue"], "draws": 1000},
}
PREDICTOR = (250, (16, 32, 32))  # steps, channels


@pytest.fixture(scope="module")
def rooms():
    return load_data("shapes3d-like", **SMALL)


class Oracle:
    """Stand-in for CT-VAE that answers with the grid's own images.

    Arguments:
        idle: whether actions do nothing.
        extra: an action that is applied in addition to every other.
    """

    device = torch.device("cpu")

    def __init__(self, data, *, idle: bool = False, extra: int | None = None) -> None:
        self.neighbours, self.idle, self.extra = Neighbours(data), idle, extra
        self.actions = len(data.actions)
        count = sum(map(len, (data.train, data.validation, data.test)))
        images = self.neighbours.images(torch.arange(count))
        self.number = {image.numpy().tobytes(): i for i, image in enumerate(images)}

    def augmentations(self):
        return [IDENTITY]

    def numbers(self, images: torch.Tensor) -> torch.Tensor:
        """Return the numbers of images among all, -1 for unknown ones."""
        pixels = images if images.dtype == torch.uint8 else (images * 255).to(torch.uint8)
        return torch.tensor([self.number.get(image.numpy().tobytes(), -1) for image in pixels])

    def after(self, numbers: torch.Tensor, action: int, times: int = 1) -> torch.Tensor:
        """Return the numbers (N, times) after an action; numbers start with the training rows."""
        return self.neighbours.after("train", numbers, action, times)

    def act_repeatedly(self, images: torch.Tensor, action: int, times: int) -> torch.Tensor:
        start = self.numbers(images)
        numbers = self.after(start, action, times)
        if self.extra is not None:
            steps = [self.after(numbers[:, t].clamp(min=0), self.extra) for t in range(times)]
            further = torch.cat(steps, dim=1)
            numbers = torch.where(further >= 0, further, numbers)
        unchanged = start[:, None].expand_as(numbers)
        numbers = unchanged if self.idle else torch.where(numbers >= 0, numbers, unchanged)
        acted = self.neighbours.images(numbers.flatten()).unflatten(0, numbers.shape)
        return acted.float() / 255

    def act(self, images: torch.Tensor, action: int) -> torch.Tensor:
        return self.act_repeatedly(images, action, 1)[:, 0]

    def reconstruct(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() / 255

    def explain(self, before: torch.Tensor, after: torch.Tensor) -> Explanations:
        """Return 1 for what happened, 0 for all else, and 0.5 for chance."""
        start, end = self.numbers(before), self.numbers(after)
        steps = torch.cat([self.after(start, action) for action in range(self.actions)], dim=1)
        actions = (steps == end[:, None]) & (end >= 0)[:, None] & (not self.idle)
        chance = torch.full((len(start),), 0.5)
        return Explanations(actions.double(), (start == end).double(), chance)


def test_psnr_of_true_and_of_idle_actions(rooms):
    true = repeated_action_psnr(Oracle(rooms), rooms, 0)
    idle = repeated_action_psnr(Oracle(rooms, idle=True), rooms, 0)
    assert true["action_psnr"] == true["reconstruction_psnr"] == pytest.approx(100.0)
    # the four floor hues are cyclic, so eight steps are possible and four lead back
    assert true[MetricKey("action_psnr", f"{REPETITIONS} times")] == pytest.approx(100.0)
    assert idle[MetricKey("action_psnr", "4 times")] == pytest.approx(100.0)
    assert idle["action_psnr"] == pytest.approx(idle["unchanged_psnr"], abs=1e-6)
    assert idle["unchanged_psnr"] < 40


def test_explanation_rates_of_true_and_of_idle_actions(rooms):
    true = explanation_rates(Oracle(rooms), rooms, 0)
    assert true["explained_pairs"] == true["explained_equal"] == true["explained_noise"] == 1
    assert true["explained_unrelated"] > 0.9  # a few are one step apart
    assert explanation_rates(Oracle(rooms, idle=True), rooms, 0) == {
        "explained_pairs": 0,
        "explained_equal": 1,
        "explained_unrelated": 1,
        "explained_noise": 1,
    }


# ---- factor errors -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def predictor(rooms):
    return fit_factor_predictor(rooms, "cpu", *PREDICTOR)


@pytest.fixture
def errors(rooms, predictor, monkeypatch):
    """Return the errors of an oracle with these options."""
    monkeypatch.setattr(ctvae_measures, "shared_factor_predictor", lambda *_: predictor)
    return lambda data=rooms, **options: factor_errors(
        Oracle(rooms, **options), data, 0, *PREDICTOR
    )


def test_predictor_reads_real_images(rooms, predictor):
    neighbours = Neighbours(rooms)
    numbers = neighbours.numbers("test", torch.arange(len(rooms.test)))
    codes = torch.from_numpy(neighbours.codes[numbers])
    assert (predictor(rooms.test.images) == codes).float().mean() > 0.95


def test_true_actions_leave_other_factors_unchanged(errors):
    true = errors()
    assert true["others_worse"] == pytest.approx(0.0, abs=2.0)
    assert true["action_psnr_pairs"] == pytest.approx(100.0)
    assert true["acted_error_after_action"] == pytest.approx(true["acted_error_reconstructed"])
    assert true["predictor_error"] == pytest.approx(true["others_error_reconstructed"], abs=3.0)
    assert true["predictor_error"] < 5


def test_idle_actions_have_a_high_error_of_the_acted_factor(errors):
    idle = errors(idle=True)
    assert idle["others_worse"] == 0
    assert idle["acted_error_after_action"] > 90
    assert idle["action_psnr_pairs"] < 40


def test_an_additional_action_is_an_error_of_its_factor_alone(errors):
    both = errors(extra=0)  # floor_hue+1 with every action
    assert both["others_worse"] > 10
    assert both[MetricKey("others_worse", "floor_hue")] > 80
    assert both[MetricKey("others_worse", "shape")] < 10
    assert both[MetricKey("others_worse", "after shape")] > 5
    assert both[MetricKey("others_worse", "after floor_hue")] < 5
    assert both[MetricKey("others_worse_by", "floor_hue after shape")] > 50
    assert both[MetricKey("others_worse_by", "wall_hue after shape")] < 5


def test_an_action_may_lack_test_pairs(rooms, errors):
    pairs = rooms.transitions.test
    fewer = replace(rooms.transitions, test=pairs[pairs.action != 0])
    result = errors(replace(rooms, transitions=fewer))
    assert result["others_worse"] == pytest.approx(0.0, abs=2.0)


def test_predictor_error_shows_a_blind_predictor(rooms, monkeypatch):
    blind = fit_factor_predictor(rooms, "cpu", 1, PREDICTOR[1])
    monkeypatch.setattr(ctvae_measures, "shared_factor_predictor", lambda *_: blind)
    result = factor_errors(Oracle(rooms, extra=0), rooms, 0, *PREDICTOR)
    assert result["predictor_error"] > 40


class AveragingOracle(Oracle):
    """Acts truly with augmentation, and changes another factor without; one view is blank."""

    def __init__(self, data) -> None:
        super().__init__(data)
        self.careless = Oracle(data, extra=0)

    def augmentations(self):
        return [IDENTITY, Augmentation(down=15)]

    def act(self, images: torch.Tensor, action: int, augment: bool = True) -> torch.Tensor:
        return (super() if augment else self.careless).act(images, action)


def test_errors_with_and_without_augmentation_are_separate(rooms):
    result = factor_errors(AveragingOracle(rooms), rooms, 0, *PREDICTOR)
    assert result["others_worse"] == pytest.approx(0.0, abs=2.0)
    assert result["others_worse_alone"] > 10
    assert result["others_worse_views"] < -10  # reconstructions averaged with a blank view


# ---- masks ---------------------------------------------------------------------------------------
class MaskOracle(Oracle):
    """Its mask is what an action changes (1), the opposite (-1) or constant (0), by `sign`.

    Its change probability is 1 - mask.
    """

    def __init__(self, data, sign: float) -> None:
        super().__init__(data)
        self.sign, self.encoded, self.transition = sign, [], self

    def codes(self, images: torch.Tensor) -> torch.Tensor:
        self.encoded.append(self.numbers(images))
        return self.pixels(images)

    def pixels(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, ::4, ::4].long().sum(1).flatten(1)

    def nodes(self, codes: torch.Tensor) -> torch.Tensor:
        return self.encoded[-2]  # the images before

    def graph(self, nodes: torch.Tensor, action: torch.Tensor) -> TransitionGraph:
        pairs = zip(nodes, action.tolist(), strict=True)
        after = torch.cat([self.after(row[None], a)[0] for row, a in pairs])
        first, second = (self.pixels(self.neighbours.images(each)) for each in (nodes, after))
        mask = 0.5 + self.sign * ((first != second).float() - 0.5)
        edges = torch.full((len(nodes), 1, 16, 16), 0.25)
        return TransitionGraph(edges.logit(), edges, mask[:, None].logit(), mask[:, None])

    def change_probability(self, codes: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return 1 - self.graph(self.nodes(codes), action).mask[:, 0]


def test_mask_auc_measures_where_codes_change(rooms):
    right, wrong, flat = (
        mask_selectivity(MaskOracle(rooms, sign), rooms, 0) for sign in (1.0, -1.0, 0.0)
    )
    assert (right["mask_auc"], wrong["mask_auc"], flat["mask_auc"]) == (1.0, 0.0, 0.5)
    assert (right["change_auc"], wrong["change_auc"], flat["change_auc"]) == (0.0, 1.0, 0.5)
    assert (right["mask_balanced"], wrong["mask_balanced"]) == (1.0, 0.0)
    assert flat["mask_balanced"] == 0.5  # all shut
    assert right["mask_open"] == pytest.approx(right["codes_changed"])
    assert right["edges_open"] == 0.25
    assert 0 < right["mask_open"] < 0.5 < wrong["mask_open"] < 1
    assert flat["mask_open"] == 0.5


# ---- jobs and table ------------------------------------------------------------------------------
SETTINGS = {
    "codes": 16,
    "features": 16,
    "patch": 4,
    "filters": 8,
    "epochs": 1,
    "width": 16,
    "edge_width": 8,
    "transition_epochs": 1,
}
JOB = TrainActions(
    "shapes3d-like", "ct-vae", SMALL, SETTINGS, predictor_steps=5, predictor_channels=(8, 8)
)


def test_a_small_job_gives_every_number_of_the_table(tmp_path):
    numbers = JOB.run(0, "cpu", tmp_path / "run")
    with_mirror = {"others_worse_views", "others_worse_alone"}
    of_codebooks = {"codes_psnr", "codes_ssim", "code_usage", "code_perplexity"}
    missing = {*CTVAE_TABLE1.shown, *CTVAE_TABLE1.columns} - set(numbers)
    assert missing == with_mirror | of_codebooks
    assert 0 <= numbers["action_accuracy"] <= numbers["factor_accuracy"] <= 1
    for times in range(1, REPETITIONS + 1):
        assert MetricKey("action_psnr", f"{times} times") in numbers


def test_a_job_with_mirrored_pairs_has_errors_with_augmentation(tmp_path):
    job = replace(JOB, settings={**SETTINGS, "mirror": ("orientation",), "shift": 1})
    numbers = job.run(0, "cpu", tmp_path / "run")
    assert {"others_worse_views", "others_worse_alone"} <= set(numbers)


def test_a_job_may_lack_true_images(tmp_path):
    options = {**SMALL, "transitions": {"unique": False}}
    job = replace(JOB, options=options, settings={**SETTINGS, "decoder_epochs": 0}, truth=False)
    numbers = job.run(0, "cpu", tmp_path / "run")
    assert {"action_accuracy", "majority_accuracy", "mask_auc"} <= set(numbers)


def test_codebooks_improve_with_training(tmp_path):
    settings = {"codebooks": 2, "codes": 16, "features": 16, "patch": 4, "filters": 16}
    short, long = (
        TrainCodebooks("shapes3d-like", "mcq-vae", SMALL, {**settings, "epochs": epochs}).run(
            0, "cpu", tmp_path / str(epochs)
        )
        for epochs in (1, 5)
    )
    assert long["codes_psnr"] > short["codes_psnr"] > 5
    assert long["codes_ssim"] > short["codes_ssim"]
    for numbers in (short, long):
        assert 0 < numbers["code_usage"] <= 1 <= numbers["code_perplexity"] <= 16


def test_the_table_has_the_data_sets_of_the_paper():
    papers = ["cars3d", "shapes3d-like", "sprites-frames", "dsprites"]
    assert [job.data for job in CTVAE_TABLE1.jobs] == [*papers, "celeba", "sprites-frames", *papers]
    assert [job.model for job in CTVAE_TABLE1.jobs] == ["ct-vae"] * 6 + ["mcq-vae"] * 4
    for job in CTVAE_TABLE1.jobs[:4]:
        assert set(job.paper) == {"action_accuracy", "factor_accuracy"}
    assert len(CTVAE_TABLE1.jobs[4].options["attributes"].split(",")) == 10
    assert CTVAE_TABLE1.quick_form.seeds == 1


def test_the_quick_form_copies_its_pictures(tmp_path):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "actions.png").write_bytes(b"a")
    assert CTVAE_TABLE1.gather is not None
    CTVAE_TABLE1.gather({"small grid": tmp_path / "run"}, tmp_path / "ctvae-table1-quick")
    names = [path.name for path in tmp_path.glob("*.png")]
    assert names == ["ctvae-table1-quick-small-grid-actions.png"]
