"""Flow between noise and picture: exact inversion, closed forms of a Gaussian, and a tiny fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intervae.errors import UsageError
from intervae.nets.flow_picture import FlowPicture
from small_mechanisms import PARENTS, SHAPES, batch, loss_terms, make

SHAPE = (1, 8, 8)


class GaussianVelocity(nn.Module):
    """E(x - e | x_t) of pictures x ~ N(mean, std^2 I), the minimiser of the loss; mean = parents.

    With a = t and b = 1 - t: x_t ~ N(a mean, a^2 std^2 + b^2), and the conditional mean is linear.
    """

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, states: Tensor, times: Tensor, parents: Tensor) -> Tensor:
        a, b = times[:, None, None, None], 1 - times[:, None, None, None]
        mean, variance = parents[:, :1, None, None], self.std**2
        gain = (a * variance - b) / (a**2 * variance + b**2)
        return mean + gain * (states - a * mean)


def gaussian_flow(std: float, **options: Any) -> Any:
    flow = FlowPicture(SHAPE, PARENTS, **{"noise_share": 0.0, **options}).double()
    flow.velocity = GaussianVelocity(std)  # type: ignore[assignment]
    return flow


# ---- closed forms --------------------------------------------------------------------------------
@torch.no_grad()
def test_flow_of_gaussian_pictures_is_affine() -> None:
    """The flow is x = mean + std e, so do() of the mean moves the picture with it."""
    std, generator = 0.2, torch.Generator().manual_seed(0)
    noise = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    parents = torch.tensor([[-0.1], [0.0], [0.1], [0.2]]).double().expand(4, PARENTS)
    pictures = parents[:, :1, None, None] + std * noise  # in [-1, 1]
    errors = []
    for steps in (20, 40, 80):
        flow = gaussian_flow(std, steps=steps)
        abducted = flow.abduct(0.5 + 0.5 * pictures, parents)
        errors.append((abducted.latents[0] - noise).abs().max())
        torch.testing.assert_close(
            2 * flow.predict(abducted, parents + 0.1) - 1, pictures + 0.1, atol=2e-3, rtol=0
        )
    assert errors[0] < 0.05
    assert errors[0] / errors[1] > 3  # second order: a quarter of the error with half the step
    assert errors[1] / errors[2] > 3


def gaussian_pictures(std: float, mean: float) -> tuple[Tensor, Tensor]:
    """Pictures (4, C, H, W) in [-1, 1] and their parents, all of them the mean."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    return mean + std * noise, torch.full((4, PARENTS), mean).double()


@pytest.mark.parametrize("std", [0.2, 0.0])
@torch.no_grad()
def test_abduction_from_a_noisy_picture_has_a_closed_form(std: float) -> None:
    """With T = 1 - s: e = (T (x - mean) + s n) / sqrt(T^2 std^2 + s^2), also without any spread."""
    flow = gaussian_flow(std, steps=200, noise_share=0.1)
    pictures, parents = gaussian_pictures(std, 0.1)
    abducted = flow.abduct(0.5 + 0.5 * pictures, parents)
    expected = 0.9 * (pictures - 0.1) + 0.1 * flow.fixed_noise
    expected = expected / ((0.9 * std) ** 2 + 0.1**2) ** 0.5
    torch.testing.assert_close(abducted.latents[0], expected, atol=0.02, rtol=0)
    answer = 2 * flow.predict(abducted, parents + 0.1) - 1
    torch.testing.assert_close(answer, pictures + 0.1, atol=1e-3, rtol=0)
    torch.testing.assert_close(2 * flow.predict(abducted, parents) - 1, pictures)


class SpreadVelocity(GaussianVelocity):
    """The same with the second parent as the standard deviation of each picture."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def forward(self, states: Tensor, times: Tensor, parents: Tensor) -> Tensor:
        self.std = parents[:, 1, None, None, None]  # type: ignore[assignment]
        return super().forward(states, times, parents)


@torch.no_grad()
def test_new_pictures_end_with_their_expectation() -> None:
    """Without spread x' = mean' + x - E(x | x_T), not the noise that is left at T < 1.

    E(x | x_T) = mean + T std^2 / (T^2 std^2 + s^2) (x_T - T mean).
    """
    flow, std, end = gaussian_flow(0.2, steps=200, noise_share=0.1), 0.2, 0.9
    flow.velocity = SpreadVelocity()
    pictures, parents = gaussian_pictures(std, 0.1)
    parents[:, 1] = std
    abducted = flow.abduct(0.5 + 0.5 * pictures, parents)
    state = end * pictures + 0.1 * flow.fixed_noise
    expected = 0.1 + end * std**2 / ((end * std) ** 2 + 0.1**2) * (state - end * 0.1)
    torch.testing.assert_close(abducted.latents[2], pictures - expected)
    after = parents.clone()
    after[:, 0], after[:, 1] = 0.3, 0.0
    answer = 2 * flow.predict(abducted, after) - 1
    torch.testing.assert_close(answer, 0.3 + pictures - expected)


@torch.no_grad()
def test_guidance_multiplies_what_a_changed_class_adds() -> None:
    """This velocity is linear in the mean, the first feature, and has mean 0 without the class."""
    options = {"steps": 40, "guidance": 2.0, "hidden_classes": 0.1}
    pictures, parents = gaussian_pictures(0.2, 0.1)
    for classes, factor in (([slice(0, 1)], 2.0), ([slice(1, 2)], 1.0)):
        flow = gaussian_flow(0.2, classes=classes, **options)
        abducted = flow.abduct(0.5 + 0.5 * pictures, parents)
        after = parents.clone()
        after[:2, 0] += 0.1
        answer = 2 * flow.predict(abducted, after, factual=parents) - 1
        # without the class the mean is 0, so w times the new mean takes its place
        shift = factor * 0.2 - 0.1
        torch.testing.assert_close(answer[:2], pictures[:2] + shift, atol=2e-3, rtol=0)
        torch.testing.assert_close(answer[2:], pictures[2:])  # unchanged rows are not guided
        unguided = 2 * flow.predict(abducted, after) - 1
        torch.testing.assert_close(unguided[:2], pictures[:2] + 0.1, atol=2e-3, rtol=0)
        torch.testing.assert_close(2 * flow.predict(abducted, parents, 0, parents) - 1, pictures)


@pytest.mark.parametrize(("guidance", "expected"), [(1.0, 24), (2.0, 36)])
@torch.no_grad()
def test_evaluations_of_a_counterfactual_are_as_documented(guidance: float, expected: int) -> None:
    """2 steps + 4, and with guidance 3 steps + 6, of each picture."""
    rows = 0

    class Counter(GaussianVelocity):
        def forward(self, states: Tensor, times: Tensor, parents: Tensor) -> Tensor:
            nonlocal rows
            rows += len(states)
            return super().forward(states, times, parents)

    options = {"guidance": guidance, "hidden_classes": 0.1, "classes": [slice(0, 1)]}
    flow = gaussian_flow(0.2, steps=10, **options)
    flow.velocity = Counter(0.2)
    pictures, parents = gaussian_pictures(0.2, 0.1)
    abducted = flow.abduct(0.5 + 0.5 * pictures, parents)
    flow.predict(abducted, parents + 0.1, 0.0, parents)
    assert rows == expected * len(pictures)


@torch.no_grad()
def test_classes_are_hidden_from_some_training_pictures() -> None:
    recorded = []

    class Recorder(GaussianVelocity):
        def forward(self, states: Tensor, times: Tensor, parents: Tensor) -> Tensor:
            recorded.append(parents)
            return super().forward(states, times, parents)

    flow = gaussian_flow(0.2, hidden_classes=0.2, classes=[slice(0, 1), slice(1, 3)])
    parents = torch.ones(4000, PARENTS).double()
    flow.velocity = Recorder(0.2)
    flow.loss(torch.rand(4000, *SHAPE).double(), parents, torch.Generator().manual_seed(0))
    (features,) = recorded
    first, second = features[:, 0] == 0, features[:, 1] == 0
    assert torch.equal(features[:, 1], features[:, 2])  # a class is hidden as a whole
    assert (features[:, 3:] == 1).all()  # numbers never are
    for hidden, share in ((first, 0.2), (second, 0.2), (first & second, 0.04)):
        assert abs(hidden.double().mean() - share) < 4 * (share * (1 - share) / 4000) ** 0.5


@torch.no_grad()
def test_loss_at_the_true_velocity_is_the_conditional_variance() -> None:
    """Monte Carlo of the loss against the integral of var(x - e | x_t) over t."""
    std, count = 0.3, 20_000
    generator = torch.Generator().manual_seed(0)
    flow, parents = gaussian_flow(std), torch.zeros(count, PARENTS).double()
    drawn = torch.randn(count, *SHAPE, generator=generator, dtype=torch.float64)
    loss = flow.loss(0.5 + 0.5 * std * drawn, parents, generator)
    t = (torch.arange(1000).double() + 0.5) / 1000
    total, shared = t**2 * std**2 + (1 - t) ** 2, t * std**2 - (1 - t)
    expected = 0.5 * drawn[0].numel() * (std**2 + 1 - shared**2 / total).mean()
    standard_error = loss.error.std() / count**0.5
    assert abs(loss.error.mean() - expected) < 4 * standard_error
    assert loss.layer_kl.shape == (0, count)


# ---- abduction and prediction --------------------------------------------------------------------
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [1, 7])
@torch.no_grad()
def test_null_intervention_returns_the_picture(shape: tuple[int, int, int], steps: int) -> None:
    """Whatever the weights and the number of steps."""
    flow, (images, parents) = make("flow", shape, flow_steps=steps), batch(shape)
    noise = flow.abduct(images, parents)
    torch.testing.assert_close(flow.predict(noise, parents), images, rtol=0, atol=1e-4)
    assert [tuple(z.shape[1:]) for z in noise.latents] == flow.latent_shapes
    assert noise.pixels.numel() == 0
    again = flow.unpack(flow.pack(noise))
    torch.testing.assert_close(again, noise, rtol=0, atol=0)


@torch.no_grad()
def test_other_parents_change_the_prediction_of_the_same_noise() -> None:
    flow, (images, parents) = make("flow", SHAPE), batch(SHAPE)
    noise = flow.abduct(images, parents)
    before = flow.predict(noise, parents)
    for feature in range(PARENTS):
        other = parents.clone()
        other[0, feature] += 2
        change = (flow.predict(noise, other) - before).abs().amax((1, 2, 3))
        assert change[0] > 1e-3
        assert (change[1:] < 1e-5).all()


@torch.no_grad()
def test_samples_depend_on_generator_and_temperature() -> None:
    flow, (images, parents) = make("flow", SHAPE), batch(SHAPE)

    def draw(seed: int, temperature: float = 1.0) -> Tensor:
        return flow.sample(parents, torch.Generator().manual_seed(seed), temperature)

    assert draw(0).shape == images.shape
    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    assert torch.equal(draw(0, 0.0), draw(1, 0.0))
    loss = loss_terms(flow, images, parents, torch.Generator().manual_seed(0))[0]
    other = loss_terms(flow, images, parents, torch.Generator().manual_seed(1))[0]
    assert not torch.equal(loss, other)


# ---- training ------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_weight_has_a_gradient(shape: tuple[int, int, int]) -> None:
    flow, (images, parents) = make("flow", shape), batch(shape)
    flow.loss(images, parents, torch.Generator().manual_seed(0)).error.mean().backward()
    for name, weights in flow.named_parameters():
        assert weights.grad is not None, name
        assert torch.isfinite(weights.grad).all(), name
        assert weights.grad.abs().sum() > 0, name


def test_flow_learns_what_the_parents_do_and_keeps_the_rest() -> None:
    """Squares at one of nine places, brightness as parent: do() changes brightness, not place."""
    torch.manual_seed(0)
    rows = torch.arange(512)
    places, light = rows % 9, torch.rand(512)
    images = torch.zeros(512, *SHAPE)
    for row, place in enumerate(places.tolist()):
        top, left = 2 * (place // 3), 2 * (place % 3)
        images[row, 0, top : top + 3, left : left + 3] = 0.3 + 0.7 * light[row]
    parents = (2 * light[:, None] - 1).expand(-1, PARENTS)
    flow = FlowPicture(SHAPE, PARENTS, widths=(16, 32), hidden=32, steps=10)
    optimiser = torch.optim.Adam(flow.parameters(), 3e-3)
    for _ in range(400):
        chosen = torch.randint(512, (64,))
        loss = flow.loss(images[chosen], parents[chosen]).error.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        noise = flow.abduct(images[:64], parents[:64])
        answer = flow.predict(noise, parents[:64].flip(0))
    shapes = images[:64] / images[:64].amax((2, 3), keepdim=True)
    truth = shapes * images[:64].amax((2, 3), keepdim=True).flip(0)
    nothing = (images[:64] - truth).abs().mean()
    assert (answer - truth).abs().mean() < 0.4 * nothing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flow_steps": 0}, "flow_steps=0"),
        ({"flow_widths": ()}, "flow_widths"),
        ({"flow_noise_share": 1.0}, "flow_noise_share=1 must be at least 0 and below 1"),
        ({"flow_hidden_classes": -0.1}, "flow_hidden_classes=-0.1 must be at least 0"),
        ({"flow_guidance": 2.0}, "flow_guidance=2 needs a binary or categorical variable"),
        (
            {"flow_guidance": 2.0, "classes": [slice(0, 1)]},
            "flow_guidance=2 needs flow_hidden_classes above 0",
        ),
        ({"flow_guidance": 0.5}, "flow_guidance=0.5 must be at least 1"),
        ({"patch": 9}, "patch=9 must be from 1 to 4"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make("flow", SHAPE, **options)
