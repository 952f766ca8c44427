"""Flow as a picture mechanism: an ordinary differential equation between noise and picture.

Flow matching (Lipman et al. 2023; Liu et al. 2023): with x the picture in [-1, 1] and e ~ N(0, I),

    x_t = (1 - t) e + t x,    minimise E |v(x_t, t, parents) - (x - e)|^2 over t ~ U(0, 1).

The flow of dx/dt = v from t = 0 to 1 turns N(0, I) into pictures given their parents. Backwards, it
abducts the noise of a picture; forwards with other parents it predicts the counterfactual. The
noise has the size of the picture, and nothing is lost: no posterior, no pixel noise.

The solver is the asynchronous leapfrog method (Mutze 2013; Zhuang et al. 2021). Its state is
(x, w), w close to v, and a step of length h is

    m = x + w h / 2,    w' = 2 v(m, t + h / 2) - w,    x' = m + w' h / 2:

of second order with one evaluation, and its own inverse with -h. So an empty do() returns the
picture up to rounding, with any number of steps and whatever the network has learned. Steps are
short near both ends, where the velocity changes fast: t_k = T (1 - cos(pi k / K)) / 2.

Abduction starts at T = 1 - s, from the picture mixed with a share s of a fixed noise n, and
prediction ends there, with the expected picture and what the factual one differs from its own:

    x_T = T x + s n,    x' = x'_T + s v(x'_T, T) + (x - x_T - s v(x_T, T)).

So no noise is left where strokes are new. A plain background has no spread, so at T = 1 every noise
leads to it, and what comes back is not like N(0, I): the flow then does not draw anything new.

Guidance w (Ho & Salimans 2022) is decoupled (Xia et al. 2025): where do() changed a class, such as
a digit, the prediction follows v_0 + w (v - v_0), with v_0 the velocity without that class. Numbers
are not guided, as they would overshoot. Abduction is not either, so an empty do() is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

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

NOISE_SEED = 0


class FlowPicture(PictureMechanism):
    """x = flow of e under v(x, t, parents).

    The noise of a picture is (e, d, r): its state at t = 0, d = w - v there, and what it differs
    from its expectation at T. d and r are small and make the abduction exact.

    Arguments:
        image_shape, parents: see `PictureMechanism`.
        widths, patch, hidden: of the `VelocityNetwork`.
        steps: of the solver; a counterfactual takes 2 steps + 4 evaluations of the network, and
            with guidance 3 steps + 6.
        noise_share: s, from 0 to below 1.
        classes: columns of the parents' features that belong to one class variable, for each of
            them; a class is hidden by zeros.
        guidance: w; with 1 the velocity without classes is not evaluated.
        hidden_classes: share of the training pictures in which a class is hidden; guidance needs
            some.
    """

    error_name = "velocity"
    fixed_noise: Tensor
    class_columns: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        widths: Sequence[int] = (32, 64, 128),
        patch: int = 2,
        hidden: int = 128,
        steps: int = 20,
        noise_share: float = 0.02,
        classes: Sequence[slice] = (),
        guidance: float = 1.0,
        hidden_classes: float = 0.0,
    ) -> None:
        super().__init__(image_shape, parents)
        if steps < 1:
            raise UsageError(f"flow_steps={steps} must be at least 1.")
        for name, share in (("noise_share", noise_share), ("hidden_classes", hidden_classes)):
            if not 0 <= share < 1:
                raise UsageError(f"flow_{name}={share:g} must be at least 0 and below 1.")
        if guidance < 1:
            raise UsageError(f"flow_guidance={guidance:g} must be at least 1, which is none.")
        if guidance > 1 and not classes:
            raise UsageError(
                f"flow_guidance={guidance:g} needs a binary or categorical variable among those "
                "of the picture: numbers are not guided."
            )
        if guidance > 1 and not hidden_classes:
            raise UsageError(
                f"flow_guidance={guidance:g} needs flow_hidden_classes above 0, such as 0.1: the "
                "velocity without a class is learned from that share of the pictures."
            )
        self.velocity = VelocityNetwork(image_shape, parents, widths, patch, hidden)
        self.steps, self.end = steps, 1 - noise_share
        self.guidance, self.hidden_classes = guidance, hidden_classes
        columns = torch.zeros(len(classes), parents)
        for row, features in zip(columns, classes, strict=True):
            row[features] = 1
        self.register_buffer("class_columns", columns, persistent=False)
        noise = torch.randn(image_shape, generator=torch.Generator().manual_seed(NOISE_SEED))
        self.register_buffer("fixed_noise", noise, persistent=False)

    @property
    def latent_shapes(self) -> list[tuple[int, ...]]:
        return [self.image_shape] * 3

    @property
    def latent_fineness(self) -> list[float]:
        return []

    def loss(
        self, images: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> PictureLoss:
        """Return half the squared error of the velocity at one time per picture, over pixels."""
        pictures = 2 * images - 1
        noise = draw_standard(pictures, "gaussian", generator)
        shape, device = (len(images), 1), images.device
        times = torch.rand(shape, device=device, generator=generator).to(pictures)
        if self.hidden_classes and len(self.class_columns):
            shape = (len(images), len(self.class_columns))
            draws = torch.rand(shape, device=device, generator=generator)
            parents = self._hide(parents, draws < self.hidden_classes)
        share = times[..., None, None]
        states = (1 - share) * noise + share * pictures
        velocity = self.velocity(states, times[:, 0], parents)
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
        path = (self.steps, self.end)
        latents = self.replays(self, "abduct", self._abduct, images, parents, constants=path)
        return PictureNoise(latents, images[:, :0])

    def _abduct(self, images: Tensor, parents: Tensor) -> tuple[Tensor, ...]:
        """Return (e, d, r) of pictures."""
        pictures = 2 * images - 1
        mixed = self.end * pictures + (1 - self.end) * self.fixed_noise
        speed = self._speed(mixed, self.end, parents)
        residual = pictures - (mixed + (1 - self.end) * speed)
        state, speed = self.solve(mixed, speed, parents, self.end, 0.0)
        return state, speed - self._speed(state, 0.0, parents), residual

    def predict(
        self,
        noise: PictureNoise,
        parents: Tensor,
        pixel_temperature: float = 0.0,
        factual: Tensor | None = None,
        guidance: float | None = None,
    ) -> Tensor:
        """Solve from the noise to the picture; there is no pixel noise.

        Classes that differ from the `factual` ones are guided; without `factual` none is.

        Arguments:
            guidance: w in the place of the mechanism's own.
        """
        state, excess, residual = noise.latents
        factor = self.guidance if guidance is None else guidance
        free = None if factor == 1 else self._without_changed_classes(parents, factual)
        if guidance is None:
            expected = self._predict(state, excess, parents, free, factor)
        else:  # of any number of pictures: graphs would not be used again
            expected = self._solve_forwards(factor, state, excess, parents, free)[0]
        return (0.5 + 0.5 * (expected + residual)).clamp(0, 1)

    def _without_changed_classes(self, parents: Tensor, factual: Tensor | None) -> Tensor | None:
        """Return parents (B, f) without the classes that changed; None if none has."""
        if factual is None or not len(self.class_columns):
            return None
        changed = (parents != factual).to(parents.dtype) @ self.class_columns.T > 0  # (B, classes)
        if not torch.compiler.is_compiling() and not changed.any():
            return None  # half the time
        return self._hide(parents, changed)

    def _hide(self, parents: Tensor, hidden: Tensor) -> Tensor:
        """Return parents (B, f) with zeros where `hidden` (B, classes)."""
        return parents * (1 - hidden.to(parents.dtype) @ self.class_columns)

    def _predict(
        self,
        state: Tensor,
        excess: Tensor,
        parents: Tensor,
        free: Tensor | None = None,
        guidance: float = 1.0,
    ) -> Tensor:
        """Return the expected pictures, in [-1, 1], of the noise (e, d)."""
        tensors = (state, excess, parents) if free is None else (state, excess, parents, free)
        path = (self.steps, self.end, guidance)
        solve = partial(self._solve_forwards, guidance)
        return self.replays(self, "predict", solve, *tensors, constants=path)[0]

    def _solve_forwards(
        self,
        guidance: float,
        state: Tensor,
        excess: Tensor,
        parents: Tensor,
        free: Tensor | None = None,
    ) -> tuple[Tensor]:
        speed = self._speed(state, 0.0, parents, free, guidance) + excess
        mixed, _ = self.solve(state, speed, parents, 0.0, self.end, free, guidance)
        # x = x_t + (1 - t) (x - e)
        return (mixed + (1 - self.end) * self._speed(mixed, self.end, parents, free, guidance),)

    def sample(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        pixel_temperature: float = 0.0,
    ) -> Tensor:
        state = parents.new_zeros(parents.shape[0], *self.image_shape)
        if temperature != 0:
            state = temperature * draw_standard(state, "gaussian", generator)
        expected = self._predict(state, torch.zeros_like(state), parents)
        return (0.5 + 0.5 * expected).clamp(0, 1)

    def solve(
        self,
        state: Tensor,
        speed: Tensor,
        parents: Tensor,
        start: float,
        end: float,
        free: Tensor | None = None,
        guidance: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """Return state and speed (B, C, H, W) at time `end`, of those at time `start`."""
        cosines = [math.cos(math.pi * k / self.steps) for k in range(self.steps + 1)]
        times = [end + (start - end) * (1 + cosine) / 2 for cosine in cosines]
        for now, after in itertools.pairwise(times):
            half = (after - now) / 2
            middle = state + half * speed
            speed = 2 * self._speed(middle, now + half, parents, free, guidance) - speed
            state = middle + half * speed
        return state, speed

    def _speed(
        self,
        state: Tensor,
        time: float,
        parents: Tensor,
        free: Tensor | None = None,
        guidance: float = 1.0,
    ) -> Tensor:
        """Return the velocity at one time, (B, C, H, W), guided away from `free` parents."""
        rows = state.shape[0]  # an exported program has any number of them: no len(), no chunk()
        times = state.new_full((rows,), time)
        if free is None:
            return self.velocity(state, times, parents)
        both = torch.cat([parents, free])
        velocities = self.velocity(torch.cat([state, state]), torch.cat([times, times]), both)
        guided, unguided = velocities[:rows], velocities[rows:]
        return unguided + guidance * (guided - unguided)
