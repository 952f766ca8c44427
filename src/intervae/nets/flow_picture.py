"""Flow as a picture mechanism: an ordinary differential equation between noise and picture.

Flow matching (Lipman et al. 2023; Liu et al. 2023): with x the picture in [-1, 1] and e ~ N(0, I),

    x_t = (1 - t) e + t x,    minimise E |v(x_t, t, parents) - (x - e)|^2 over t ~ U(0, 1).

The flow of dx/dt = v from t = 0 to 1 turns N(0, I) into pictures given their parents. Backwards, it
abducts the noise of a picture; forwards with other parents it predicts the counterfactual. The
noise has as many numbers as the picture, and nothing is lost: no posterior, no pixel noise.

The solver is the asynchronous leapfrog method (Mutze 2013; Zhuang et al. 2021). Its state is
(x, w), w close to v, and a step of length h is

    m = x + w h / 2,    w' = 2 v(m, t + h / 2) - w,    x' = m + w' h / 2:

of second order with one evaluation, and its own inverse with -h. So an empty do() returns the
picture up to rounding, with any number of steps and whatever the network has learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intervae.errors import UsageError
from intervae.nets.likelihood import draw_standard
from intervae.nets.picture_mechanism import (
    PictureLoss,
    PictureMechanism,
    PictureNoise,
    single_precision,
)
from intervae.nets.velocity_network import VelocityNetwork


class FlowPicture(PictureMechanism):
    """x = flow of e under v(x, t, parents).

    The noise of a picture is (e, d): its state at t = 0, and d = w - v there, which is small and
    makes the abduction exact.

    Arguments:
        image_shape, parents: see `PictureMechanism`.
        widths, patch, hidden: of the `VelocityNetwork`.
        steps: of the solver; a counterfactual takes 2 steps + 3 evaluations of the network.
    """

    error_name = "velocity"

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        widths: Sequence[int] = (32, 64, 128),
        patch: int = 2,
        hidden: int = 128,
        steps: int = 20,
    ) -> None:
        super().__init__(image_shape, parents)
        if steps < 1:
            raise UsageError(f"flow_steps={steps} must be at least 1.")
        self.velocity = VelocityNetwork(image_shape, parents, widths, patch, hidden)
        self.steps = steps

    @property
    def latent_shapes(self) -> list[tuple[int, ...]]:
        return [self.image_shape, self.image_shape]

    @property
    def latent_fineness(self) -> list[float]:
        return []

    def loss(
        self, images: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> PictureLoss:
        """Return half the squared error of the velocity at one time per picture, over pixels."""
        pictures = 2 * images - 1
        noise = draw_standard(pictures, "gaussian", generator)
        device = images.device if generator is None else generator.device
        times = torch.rand(len(images), generator=generator, device=device).to(pictures)
        share = times[:, None, None, None]
        velocity = self.velocity((1 - share) * noise + share * pictures, times, parents)
        error = 0.5 * (single_precision(velocity) - (pictures - noise)).square().sum((1, 2, 3))
        return PictureLoss(error, error.new_zeros(0, len(error)), ())

    def abduct(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 0.0,
    ) -> PictureNoise:
        """Solve from the picture to its noise; nothing is drawn."""
        pictures = 2 * images - 1
        state, speed = self.solve(pictures, self._speed(pictures, 1.0, parents), parents, 1.0, 0.0)
        excess = speed - self._speed(state, 0.0, parents)
        return PictureNoise((state, excess), images[:, :0])

    def predict(
        self, noise: PictureNoise, parents: Tensor, pixel_temperature: float = 0.0
    ) -> Tensor:
        """Solve from the noise to the picture; there is no pixel noise."""
        state, excess = noise.latents
        speed = self._speed(state, 0.0, parents) + excess
        pictures, _ = self.solve(state, speed, parents, 0.0, 1.0)
        return (0.5 + 0.5 * pictures).clamp(0, 1)

    def sample(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        pixel_temperature: float = 0.0,
    ) -> Tensor:
        state = parents.new_zeros(len(parents), *self.image_shape)
        if temperature != 0:
            state = temperature * draw_standard(state, "gaussian", generator)
        noise = PictureNoise((state, torch.zeros_like(state)), state[:, :0])
        return self.predict(noise, parents)

    def solve(
        self, state: Tensor, speed: Tensor, parents: Tensor, start: float, end: float
    ) -> tuple[Tensor, Tensor]:
        """Return state and speed (B, C, H, W) at time `end`, of those at time `start`."""
        length = (end - start) / self.steps
        for step in range(self.steps):
            middle = state + speed * (length / 2)
            now = start + (step + 0.5) * length
            speed = 2 * self._speed(middle, now, parents) - speed
            state = middle + speed * (length / 2)
        return state, speed

    def _speed(self, state: Tensor, time: float, parents: Tensor) -> Tensor:
        return self.velocity(state, state.new_full((len(state),), time), parents)
