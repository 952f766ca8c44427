"""Clips over time: do(), extrapolation and sampling of the temporal causal-prior VAE."""

from __future__ import annotations

import pytest
import torch
from small_temporal import STEADY, make, seeded

from intervae.data import Dataset
from intervae.data.simulators import Motion
from intervae.errors import QueryError
from intervae.models.causal_prior.posterior import gaussian_head

LAST = slice(4, 6)  # of the variables z1_0, z1_1, z2_0, z2_1, z3_0, z3_1


@pytest.fixture
def data() -> Dataset:
    return Motion(size=12, backgrounds=4).dataset(samples=64)


@pytest.fixture
def longer() -> Dataset:
    return Motion(size=16, frames=5, backgrounds=4).dataset(samples=64)


def test_do_changes_a_frame_and_the_frames_that_depend_on_it(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    latents, before = model.encode(clips), model.reconstruct(clips)
    for acted, moved in (("z1_0", [0, 2]), ("z2_1", [1, 2]), ("z3_0", [2]), ("b1", [0, 1, 2])):
        after = model.counterfactual(clips, {acted: 2.5})
        assert [t for t in range(3) if not torch.equal(after[:, t], before[:, t])] == moved, acted
    changed = model.intervene(latents, {"z1_0": 2.5, "z2_1": lambda v: v + 1})
    assert torch.allclose(changed[:, 4], latents[:, 4] - (2.5 - latents[:, 0]), atol=1e-5)
    assert torch.allclose(changed[:, 5], latents[:, 5] + 2, atol=1e-5)
    assert torch.equal(changed[:, [1, 2]], latents[:, [1, 2]])
    assert torch.equal(changed[:, 6:], latents[:, 6:])


@pytest.mark.parametrize("window", [2, 3])
def test_extrapolation_follows_the_equations_step_by_step(data: Dataset, window: int) -> None:
    edges = (
        STEADY
        if window == 3
        else {("z1_0", "z2_0"): 0.9, ("z1_1", "z2_0"): 0.3, ("z1_1", "z2_1"): -0.7}
    )
    model, clips = make(data, edges, window=window), data.test.images[:5].float() / 255
    frames = [gaussian_head(model.frame_encoder(clips[:, t]), 2)[0] for t in range(3)]
    for _ in range(3):
        if window == 3:
            frames.append(2 * frames[-1] - frames[-2])
        else:
            frames.append(frames[-1] @ torch.tensor([[0.9, 0.0], [0.3, -0.7]]))
    code = model.background_encoder(clips.median(1).values)
    expected = torch.stack([model.decoder(torch.cat([z, code], 1)) for z in frames[3:]], 1).clamp(
        0, 1
    )
    assert torch.allclose(model.extrapolate(data.test.images[:5], 3), expected, atol=1e-5)
    assert torch.allclose(
        model.extrapolate(clips[0], 3)[0], expected[0], atol=1e-5
    )  # a single clip


def test_samples_are_noises_passed_through_the_equations_on_codes_backgrounds(
    data: Dataset,
) -> None:
    model = make(data, STEADY)
    noise = model.draw_noise(50, seeded(3))
    codes = {tuple(row) for row in model.bank.tolist()}
    assert all(tuple(row) in codes for row in noise[:, 6:, 0].tolist())
    z = noise.clone()
    z[:, LAST] += 2 * z[:, 2:4] - z[:, 0:2]
    assert torch.allclose(model.sample(50, seed=3), model.decode(z), atol=1e-5)


def test_do_at_any_time_reaches_later_and_predicted_frames(longer: Dataset) -> None:
    model, clips = make(longer, STEADY, background="given"), longer.test.images
    background = longer.test.fields["background"]
    plain, future = (
        model.reconstruct(clips, background=background),
        model.extrapolate(clips, 3, background=background),
    )
    before = torch.cat([plain, future], 1)
    for acted, moved in (
        ("z2_0", range(1, 8)),
        ("z5_1", range(4, 8)),
        ("z7_0", (6, 7)),
        ("b2", range(8)),
    ):
        do = {acted: 1.5}
        after = [] if acted == "z7_0" else [model.counterfactual(clips, do, background=background)]
        after = torch.cat(
            [*(after or [plain]), model.extrapolate(clips, 3, background=background, do=do)], 1
        )
        assert [t for t in range(8) if not torch.equal(after[:, t], before[:, t])] == list(moved), (
            acted
        )
    z = [gaussian_head(model.frame_encoder(clips[:, t].float() / 255), 2)[0] for t in range(5)]
    shifts = torch.zeros(5 + 3)
    shifts[1] = 1.0  # frame 2 is shifted by 1, frame 1 is not, so later ones are by 2, 3, ...
    for t in range(2, 8):
        shifts[t] = 2 * shifts[t - 1] - shifts[t - 2]
    code = model.background_encoder(background.float() / 255)
    moved_last = z[4] + torch.tensor([[float(shifts[4]), 0.0]])
    expected = model.decoder(torch.cat([moved_last, code], 1)).clamp(0, 1)
    after_shift = model.counterfactual(clips, {"z2_0": lambda v: v + 1}, background=background)
    assert torch.allclose(after_shift[:, 4], expected, atol=1e-4)
    per_clip = model.counterfactual(
        clips, {"z2_0": z[1][:, 0].detach().numpy() + 1}, background=background
    )
    assert torch.allclose(per_clip, after_shift, atol=1e-4)
    with pytest.raises(QueryError, match="z9_0"):
        model.extrapolate(clips, 3, do={"z9_0": 1.0})


def test_latents_over_time_are_encoded_and_then_predicted(
    longer: Dataset,
) -> None:
    model, clips = make(longer, STEADY), longer.test.images
    plain = model.latents_over_time(clips, steps=2)
    assert list(plain) == [f"z{t}_{i}" for t in range(1, 8) for i in range(2)] + ["b0", "b1", "b2"]
    assert torch.allclose(
        torch.stack([plain[name] for name in model.latent_names], 1),
        model.encode(clips)[..., 0],
        atol=1e-5,
    )
    assert torch.allclose(plain["z6_1"], 2 * plain["z5_1"] - plain["z4_1"], atol=1e-4)
    assert torch.allclose(plain["z7_1"], 2 * plain["z6_1"] - plain["z5_1"], atol=1e-4)
    after = model.latents_over_time(clips, {"z6_0": 1.5}, steps=2)
    assert [name for name in plain if not torch.equal(after[name], plain[name])] == ["z6_0", "z7_0"]
    assert torch.equal(after["z6_0"], torch.full((len(clips),), 1.5))
    assert torch.allclose(after["z7_0"], 3.0 - plain["z5_0"], atol=1e-4)
    drawn = model.decode_frames(
        torch.stack(
            [torch.stack([after[f"z{t}_{i}"] for i in range(2)], 1) for t in range(1, 8)], 1
        ),
        model.encode(clips)[:, 6:, 0],
    )
    assert torch.allclose(
        model.counterfactual(clips, {"z6_0": 1.5}, steps=2), drawn.clamp(0, 1), atol=1e-5
    )


def test_reconstruct_and_counterfactual_take_clips_of_any_length(longer: Dataset) -> None:
    model, clips, background = (
        make(longer, STEADY, background="given"),
        longer.test.images,
        longer.test.fields["background"],
    )
    full, short = (model.reconstruct(c, background=background) for c in (clips, clips[:, :2]))
    assert torch.allclose(short, full[:, :2], atol=1e-6)
    do = {"z2_0": 1.0}
    moved, short = (
        model.counterfactual(c, do, background=background) for c in (clips, clips[:, :3])
    )
    assert torch.allclose(short, moved[:, :3], atol=1e-6)
    with pytest.raises(QueryError, match="frames"):
        model.reconstruct(clips[:, :0])


def test_extrapolation_continues_from_the_last_frames_of_clips_of_any_length(
    longer: Dataset,
) -> None:
    model = make(longer, STEADY, background="given")
    clips, background = longer.test.images, longer.test.fields["background"]
    future = model.extrapolate(clips, 4, background=background)
    assert future.shape[1:] == (4, 1, 16, 16)
    assert torch.allclose(
        future, model.extrapolate(clips[:, 3:], 4, background=background), atol=1e-6
    )
    assert not torch.allclose(
        future, model.extrapolate(clips[:, :3], 4, background=background), atol=1e-3
    )
    for frames, steps in ((clips[:, :1], 2), (clips, 0)):
        with pytest.raises(QueryError, match="2 frames at least and 1 step or more"):
            model.extrapolate(frames, steps)


def test_steps_must_be_a_whole_number_of_frames(data: Dataset) -> None:
    model = make(data)
    for steps in (1.5, "3", -1, True):
        with pytest.raises(QueryError, match="must be a whole number of frames"):
            model.counterfactual(data.test.images[:1], {}, steps=steps)
    with pytest.raises(QueryError, match="must be a whole number of frames"):
        model.extrapolate(data.test.images[:1], 1.5)
    with pytest.raises(QueryError, match="1 step or more"):
        model.extrapolate(data.test.images[:1], 0)


def test_error_for_do_beyond_the_last_frame(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    with pytest.raises(
        QueryError, match=r"do\(z9_0\): frame 9 is beyond the 4 frames requested; raise steps to 6"
    ):
        model.extrapolate(clips, 1, do={"z9_0": 1.0})
    model.extrapolate(clips, 6, do={"z9_0": 1.0})
    for name in ("z0_0", "z2_5", "z" + 5000 * "9" + "_0"):
        with pytest.raises(QueryError, match="unknown variable"):
            model.counterfactual(clips, {name: 1.0})
