"""The measurements of the CT-VAE table: an oracle that acts truly scores as it should, one that does nothing or too much is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from intervae.causal.transition import Graph
from intervae.data import Neighbours, load_data
from intervae.experiments.actions import TIMES, explained, fit_predictor, others, repeated, selectivity
from intervae.experiments.ctvae import CTVAE_TABLE1, Actions, Codes
from intervae.models.ct_vae import Explanations
from intervae.models.views import AS_IT_IS, View

SMALL = {"size": 16, "levels": [4, 3, 3, 2, 2, 3], "transitions": {"cyclic": ["floor_hue"], "draws": 1000}}


@pytest.fixture(scope="module")
def rooms():
    return load_data("shapes3d-like", **SMALL)


class Oracle:
    """Answers as CT-VAE does, with the grid's own pictures; `besides` is an action that it does as well."""

    device = torch.device("cpu")

    def views(self):
        return [AS_IT_IS]

    def __init__(self, data, *, idle: bool = False, besides: int | None = None) -> None:
        self.near, self.idle, self.besides, self.actions = Neighbours(data), idle, besides, len(data.actions)
        everything = self.near.images(torch.arange(sum(map(len, (data.train, data.validation, data.test)))))
        self.number = {picture.numpy().tobytes(): i for i, picture in enumerate(everything)}
        self.before_test = len(data.train) + len(data.validation)

    def rows(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor(
            [self.number[(image if image.dtype == torch.uint8 else image * 255).to(torch.uint8).numpy().tobytes()] for image in images]
        )

    def act_repeatedly(self, images: torch.Tensor, action: int, times: int) -> torch.Tensor:
        start = self.rows(images)
        numbers = self.near.after("train", start, action, times)  # the training split begins at 0, so a number is a row of it
        if self.besides is not None:
            more = [self.near.after("train", numbers[:, t].clamp(min=0), self.besides, 1)[:, 0] for t in range(times)]
            numbers = torch.where(torch.stack(more, 1) >= 0, torch.stack(more, 1), numbers)
        numbers = start[:, None].expand_as(numbers) if self.idle else torch.where(numbers >= 0, numbers, start[:, None])
        return self.near.images(numbers.flatten()).unflatten(0, numbers.shape).float() / 255

    def act(self, images: torch.Tensor, action: int) -> torch.Tensor:
        return self.act_repeatedly(images, action, 1)[:, 0]

    def reconstruct(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() / 255

    def explain(self, before: torch.Tensor, after: torch.Tensor) -> Explanations:
        """1 for what happened, 0 for all else; by chance 0.5. If idle, no action ever does anything."""
        start, end = self.rows(before), torch.tensor([self.number.get(image.numpy().tobytes(), -1) for image in after])
        steps = [self.near.after("train", start, action, 1)[:, 0] for action in range(self.actions)]
        found = torch.stack([(step == end) & (end >= 0) & (not self.idle) for step in steps], dim=1).double()
        return Explanations(found, (start == end).double(), torch.full((len(start),), 0.5))


def test_true_actions_reach_the_highest_psnr_and_doing_nothing_that_of_the_unchanged_picture(rooms):
    true, idle = repeated(Oracle(rooms), rooms, 0), repeated(Oracle(rooms, idle=True), rooms, 0)
    assert true["action_psnr"] == true["reconstruction_psnr"] == pytest.approx(100.0)
    assert true[f"action_psnr|{TIMES} times"] == pytest.approx(100.0)  # floor hues go round, so eight steps lead somewhere
    assert idle["action_psnr"] == pytest.approx(idle["unchanged_psnr"], abs=1e-6)
    assert idle["unchanged_psnr"] < 40
    assert idle["action_psnr|4 times"] == pytest.approx(100.0)  # four floor hues: once round, and no other factor has five values


def test_what_explains_pictures_is_counted(rooms):
    true, idle = explained(Oracle(rooms), rooms, 0), explained(Oracle(rooms, idle=True), rooms, 0)
    assert true["explained_pairs"] == true["explained_equal"] == true["explained_noise"] == 1
    assert true["explained_unrelated"] > 0.9  # a few may be a step apart
    assert idle == {"explained_pairs": 0, "explained_equal": 1, "explained_unrelated": 1, "explained_noise": 1}


def test_a_predictor_finds_an_action_that_changes_more_or_nothing(rooms, monkeypatch):
    """Beside the true action a step of another factor is done, which a predictor sees as an error of the others."""
    predict = fit_predictor(rooms, "cpu", 250, (16, 32, 32))
    near = Neighbours(rooms)
    right = (predict(rooms.test.images) == torch.from_numpy(near.codes[near.numbers("test", torch.arange(len(rooms.test)))])).float().mean()
    assert right > 0.95
    monkeypatch.setattr("intervae.experiments.actions._predictor", lambda *_: predict)
    true, idle, more = (others(Oracle(rooms, **how), rooms, 0, 250, (16, 32, 32)) for how in ({}, {"idle": True}, {"besides": 0}))
    assert true["others_worse"] == pytest.approx(0.0, abs=2.0)
    assert true["action_psnr_pairs"] == pytest.approx(100.0)
    assert idle["action_psnr_pairs"] < 40
    assert more["others_worse_by|floor_hue after shape"] > 50  # of the factor that moves beside the other one, and of no other
    assert more["others_worse_by|wall_hue after shape"] < 5
    pairs = rooms.transitions.test
    fewer = replace(rooms, transitions=replace(rooms.transitions, test=pairs[pairs.action != 0]))  # an action without a test pair
    assert others(Oracle(rooms), fewer, 0, 250, (16, 32, 32))["others_worse"] == pytest.approx(0.0, abs=2.0)
    assert true["predictor_error"] == pytest.approx(true["others_error_reconstructed"], abs=3.0)
    assert true["predictor_error"] < 5
    blind = fit_predictor(rooms, "cpu", 1, (16, 32, 32))
    monkeypatch.setattr("intervae.experiments.actions._predictor", lambda *_: blind)
    assert others(Oracle(rooms, besides=0), rooms, 0, 1, (16, 32, 32))["predictor_error"] > 40  # which tells that it sees no difference
    assert true["acted_error_after_action"] == pytest.approx(true["acted_error_reconstructed"])
    assert idle["others_worse"] == 0
    assert idle["acted_error_after_action"] > 90
    assert more["others_worse|floor_hue"] > 80
    assert more["others_worse|after floor_hue"] < 5 < more["others_worse|after shape"]
    assert more["others_worse"] > 10
    assert more["others_worse|shape"] < 10


class Looker(Oracle):
    """Right with all views together; with the picture alone it changes something else too. Of two views one shows nothing."""

    def __init__(self, data) -> None:
        super().__init__(data)
        self.careless = Oracle(data, besides=0)

    def views(self):
        return [AS_IT_IS, View(down=15)]

    def act(self, images: torch.Tensor, action: int, alone: bool = False) -> torch.Tensor:
        return (self.careless if alone else super()).act(images, action)


def test_what_views_bring_is_told_from_what_actions_bring(rooms):
    found = others(Looker(rooms), rooms, 0, 250, (16, 32, 32))
    assert found["others_worse"] == pytest.approx(0.0, abs=2.0)
    assert found["others_worse_alone"] > 10
    assert found["others_worse_views"] < -10  # reconstructions that are means with a picture of one row are read worse


class Seer(Oracle):
    """A model whose mask is exactly what an action changes, turned round, or nothing in particular; what it expects to change is the opposite."""

    def __init__(self, data, turn: float) -> None:
        super().__init__(data)
        self.turn, self.asked, self.transition = turn, [], self

    def codes(self, images: torch.Tensor) -> torch.Tensor:
        self.asked.append(self.rows(images))
        return images[:, :, ::4, ::4].long().sum(1).flatten(1)

    def nodes(self, codes: torch.Tensor) -> torch.Tensor:
        return self.asked[-2]

    def graph(self, nodes: torch.Tensor, action: torch.Tensor) -> Graph:
        after = torch.stack([self.near.after("train", row[None], int(a), 1)[0, 0] for row, a in zip(nodes, action, strict=True)])
        before, then = (self.near.images(rows)[:, :, ::4, ::4].long().sum(1).flatten(1) for rows in (nodes, after))
        mask, edges = 0.5 + self.turn * ((before != then).float() - 0.5), torch.full((len(nodes), 1, 16, 16), 0.25)
        return Graph(edges.logit(), edges, mask[:, None].logit(), mask[:, None])

    def changes(self, codes: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return 1 - self.graph(self.nodes(codes), action).mask[:, 0]


def test_a_mask_is_judged_by_the_codes_that_change(rooms):
    right, wrong, flat = (selectivity(Seer(rooms, turn), rooms, 0) for turn in (1.0, -1.0, 0.0))
    assert (right["mask_auc"], wrong["mask_auc"], flat["mask_auc"]) == (1.0, 0.0, 0.5)
    assert (right["change_auc"], wrong["change_auc"], flat["change_auc"]) == (0.0, 1.0, 0.5)
    assert right["edges_open"] == 0.25
    assert 0 < right["mask_open"] < 0.5 < wrong["mask_open"] < 1
    assert flat["mask_open"] == 0.5


def test_a_small_job_gives_every_number_of_the_table(tmp_path):
    settings = {"codes": 16, "features": 16, "patch": 4, "filters": 8, "epochs": 1, "width": 16, "edge_width": 8, "transition_epochs": 1}
    job = Actions("shapes3d-like", "ct-vae", SMALL, settings, predictor_steps=5, predictor_channels=(8, 8))
    numbers = job.run(0, "cpu", tmp_path / "run")
    elsewhere = {"others_worse_views", "others_worse_alone", "codes_psnr", "codes_ssim", "code_usage", "code_perplexity"}
    assert {*CTVAE_TABLE1.shown, *CTVAE_TABLE1.columns} - set(numbers) == elsewhere  # with mirrors, and of codebooks alone
    assert 0 <= numbers["action_accuracy"] <= numbers["factor_accuracy"] <= 1
    assert "others_worse_views" not in numbers
    views = replace(job, settings={**settings, "mirror": ("orientation",), "shift": 1}).run(0, "cpu", tmp_path / "views")
    assert {"others_worse_views", "others_worse_alone"} <= set(views)
    assert all(f"action_psnr|{times} times" in numbers for times in range(1, TIMES + 1))
    alike = replace(job, options={**SMALL, "transitions": {"unique": False}}, settings={**settings, "picture_epochs": 0}, truth=False)
    assert {"action_accuracy", "majority_accuracy", "mask_auc"} <= set(alike.run(0, "cpu", tmp_path / "alike"))


def test_codebooks_alone_are_judged_by_what_they_keep(tmp_path):
    settings = {"codebooks": 2, "codes": 16, "features": 16, "patch": 4, "filters": 16, "epochs": 1}
    found = [Codes("shapes3d-like", "mcq-vae", SMALL, {**settings, "epochs": epochs}).run(0, "cpu", tmp_path / str(epochs)) for epochs in (1, 5)]
    assert found[1]["codes_psnr"] > found[0]["codes_psnr"] > 5
    assert found[1]["codes_ssim"] > found[0]["codes_ssim"]
    assert all(0 < numbers["code_usage"] <= 1 <= numbers["code_perplexity"] <= 16 for numbers in found)


def test_the_table_has_the_papers_four_data_sets_and_a_quick_form():
    papers = ["cars3d", "shapes3d-like", "sprites-frames", "dsprites"]
    assert [job.data for job in CTVAE_TABLE1.jobs] == [*papers, "celeba", "sprites-frames", *papers]
    assert [job.model for job in CTVAE_TABLE1.jobs] == ["ct-vae"] * 6 + ["mcq-vae"] * 4
    assert all(set(job.paper) == {"action_accuracy", "factor_accuracy"} for job in CTVAE_TABLE1.jobs[:4])
    assert len(CTVAE_TABLE1.jobs[4].options["attributes"].split(",")) == 10
    assert CTVAE_TABLE1.quick_form.seeds == 1


def test_the_quick_form_brings_its_pictures(tmp_path):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "actions.png").write_bytes(b"a")
    assert CTVAE_TABLE1.gather is not None
    CTVAE_TABLE1.gather({"small grid": tmp_path / "run"}, tmp_path / "ctvae-table1-quick")
    assert [path.name for path in tmp_path.glob("*.png")] == ["ctvae-table1-quick-small-grid-actions.png"]
