"""Product quantisation of feature maps: K codebooks (Gendron et al. 2023, 3.3) whose codes follow the features as moving averages (van den Oord et
al. 2017, App. A), and start anew where nobody uses them or another lies in the same spot.

Shapes: B images, K codebooks of S codes with d dims each, features (B, K d, H, W); codebook k holds channels k d ... (k + 1) d - 1. The variables are
the n = K H W places, codebook after codebook and row after row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

EPSILON = 1e-5  # of equal use: a code that is used less keeps its place
ALIKE = 0.2  # of what lies between a code and the next one (TYPICAL): two nearer to each other are doubles, which rounding alone would decide between
TYPICAL = 0.75  # the quantile of these distances, so that a code far out does not count
ONE_SPOT = 0.002  # of the spread of the codes: nearer ones are doubles however many there are, and not next to each other in the above
TRUST = 2.0  # times the use below which a code is dead is what a fresh one starts with, so that it has log(2) / (1 - decay) steps to be found


class Quantised(NamedTuple):
    """What a quantiser makes of features (B, K d, H, W)."""

    features: Tensor  # (B, K d, H, W) the codes themselves; gradients go straight through to the features
    indices: Tensor  # (B, n) which code each place has
    commitment: Tensor  # (B,) sum over places and dims of the squared distance between feature and code; its gradient moves the features only


class Quantiser(nn.Module):
    """K codebooks. `forward` changes nothing; `update` moves the codes, after a step, towards the features of the last batch in training.

    Arguments:
        decay: of the moving averages that the codes are.
        restart: a code that is used less than this share of equal use, or is the double of one that is used more, starts anew at a feature of
            the batch, drawn with a probability that grows with its squared distance to its code, as k-means++ draws its centres; 0 never
            restarts one.
    """

    codes: Tensor
    uses: Tensor
    sums: Tensor
    merged: Tensor

    def __init__(self, codebooks: int, codes: int, dims: int, *, decay: float = 0.99, restart: float = 0.1) -> None:
        super().__init__()
        self.codebooks, self.size, self.dims, self.decay, self.restart = codebooks, codes, dims, decay, restart
        start = torch.randn(codebooks, codes, dims) * dims**-0.5
        self.register_buffer("codes", start)  # (K, S, d)
        # nothing has been used yet, so that the first update starts almost all codes at features of its batch
        self.register_buffer("uses", torch.zeros(codebooks, codes))  # moving average of the uses per place, (K, S); 1 in all for a codebook
        self.register_buffer("sums", torch.zeros(codebooks, codes, dims))  # of the features that use it, per place
        self.register_buffer("merged", torch.zeros(codebooks, codes, dtype=torch.bool))  # (K, S) which gave way to a double and are never chosen
        self.seen: tuple[Tensor, Tensor, Tensor] | None = None  # features, indices and fresh starts of the last batch in training; not saved

    # ---- from features to codes and back ----------------------------------------------------------------------------
    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Quantised:
        height, width = features.shape[-2:]
        parts = self._by_codebook(features)  # (K, B H W, d)
        distances, indices = self._distances(parts.detach()).min(2)  # (K, B H W)
        nearest = self.codes.gather(1, indices[..., None].expand(-1, -1, self.dims))
        if self.training:
            self.seen = parts.detach(), indices, self._fresh(parts.detach(), distances, generator)
        error = (parts - nearest).square().sum(2)
        through = self._as_map(parts + (nearest - parts).detach(), height, width).to(features.dtype)
        return Quantised(through, self._as_places(indices, height * width), self._as_places(error, height * width).sum(1))

    def indices(self, features: Tensor) -> Tensor:
        """Features (B, K d, H, W) to the codes' numbers (B, n)."""
        return self._as_places(self._distances(self._by_codebook(features)).argmin(2), features.shape[-2] * features.shape[-1])

    def lookup(self, indices: Tensor) -> Tensor:
        """Numbers (B, n) to code vectors (B, n, d)."""
        places = indices.shape[1] // self.codebooks
        book = torch.arange(self.codebooks, device=indices.device).repeat_interleave(places)
        return self.codes.flatten(0, 1)[book * self.size + indices]

    def mean(self, chances: Tensor) -> Tensor:
        """Probabilities (B, n, S) to the mean code vectors (B, n, d)."""
        return (chances.unflatten(1, (self.codebooks, -1)) @ self.codes).flatten(1, 2)

    def nearest(self, vectors: Tensor) -> Tensor:
        """Vectors (B, n, d) to the numbers (B, n) of the codes next to them."""
        parts = vectors.unflatten(1, (self.codebooks, -1)).transpose(0, 1).flatten(1, 2)
        return self._as_places(self._distances(parts).argmin(2), vectors.shape[1] // self.codebooks)

    def to_map(self, vectors: Tensor, height: int, width: int) -> Tensor:
        """Code vectors (B, n, d) to a feature map (B, K d, H, W)."""
        return vectors.unflatten(1, (self.codebooks, height, width)).permute(0, 1, 4, 2, 3).flatten(1, 2)

    def _by_codebook(self, features: Tensor) -> Tensor:
        """(B, K d, H, W) to (K, B H W, d)."""
        return features.float().unflatten(1, (self.codebooks, self.dims)).permute(1, 0, 3, 4, 2).flatten(1, 3)

    def _as_map(self, parts: Tensor, height: int, width: int) -> Tensor:
        """The inverse of `_by_codebook`."""
        return parts.unflatten(1, (-1, height, width)).permute(1, 0, 4, 2, 3).flatten(1, 2)

    def _as_places(self, values: Tensor, places: int) -> Tensor:
        """(K, B H W) to (B, K H W)."""
        return values.unflatten(1, (-1, places)).transpose(0, 1).flatten(1)

    def _distances(self, parts: Tensor) -> Tensor:
        """Squared distances of (K, M, d) to every code, (K, M, S); infinite to those that gave way."""
        return _squared_distances(parts, self.codes, self.merged)

    # ---- how the codes move -----------------------------------------------------------------------------------------
    def _fresh(self, parts: Tensor, distances: Tensor, generator: torch.Generator | None) -> Tensor:
        """Features of the batch for codes to start at, (K, S, d), drawn without replacement as far as there are enough."""
        uniform = torch.rand(distances.shape, device=distances.device, generator=generator)
        far = distances.where(distances > self._alike(self.codes, self._living())[:, None], 0.0)  # the others would be doubles
        scores = (far + 1e-12).log() - (-(uniform.clamp(1e-6, 1 - 1e-6)).log()).log()  # the Gumbel trick
        order = scores.topk(min(self.size, distances.shape[1]), dim=1).indices
        order = order[:, torch.arange(self.size, device=order.device) % order.shape[1]]
        return parts.gather(1, order[..., None].expand(-1, -1, self.dims))

    def _living(self) -> Tensor:
        """Which codes are in use, (K, S)."""
        return self.uses >= max(self.restart, EPSILON) / self.size

    def _alike(self, codes: Tensor, living: Tensor) -> Tensor:
        """The squared distance up to which codes (K, S, d) are doubles, by that of the living ones (K, S) to the next spot of another, (K,)."""
        weight, distances = living[..., None].to(codes.dtype), _squared_distances(codes, codes)
        count = weight.sum(1, keepdim=True).clamp(min=1)
        centre = (weight * codes).sum(1, keepdim=True) / count
        floor = ONE_SPOT**2 * (weight * (codes - centre).square()).sum((1, 2)) / count[:, 0, 0]
        others = living[:, None] & living[..., None] & (distances > floor[:, None, None])
        nearest = distances.masked_fill(~others, torch.inf).amin(2).sort(dim=1).values  # (K, S), the dead at the end
        typical = (TYPICAL * (living.sum(1) - 1)).long().clamp(min=0)
        distance = nearest.gather(1, typical[:, None])[:, 0]
        return torch.maximum(floor, torch.where(distance.isfinite(), ALIKE**2 * distance, 0.0))

    def _doubles(self, codes: Tensor, uses: Tensor, alike: Tensor) -> Tensor:
        """Which codes (K, S, d) have a double that is used more (K, S), or as much and comes first, (K, S)."""
        place = torch.arange(self.size, device=codes.device)
        more, same = uses[:, None] > uses[..., None], uses[:, None] == uses[..., None]
        near = _squared_distances(codes, codes) <= alike[:, None, None]
        return (near & (more | same & (place < place[:, None]))).any(2)

    @torch.no_grad()
    def merge(self) -> None:
        """Let codes give way to doubles that are used more and stay themselves, once the codes no longer move."""
        near = _squared_distances(self.codes, self.codes) <= self._alike(self.codes, self._living())[:, None, None]
        near, order = near.cpu(), self.uses.argsort(dim=1, descending=True, stable=True).tolist()
        stay = torch.zeros(self.codebooks, self.size, dtype=torch.bool)
        for book, codes in enumerate(order):
            for code in codes:
                stay[book, code] = not bool((near[book, code] & stay[book]).any())
        self.merged.copy_(~stay)

    @torch.no_grad()
    def update(self) -> None:
        """Move uses, sums and codes towards the last batch, and start doubles anew and what fell out of use; belongs into `Phase.after_step`.

        Where a batch has no place that is far enough from all codes, they wait for the next one.
        """
        if self.seen is None:
            return
        parts, indices, fresh = self.seen
        places = parts.shape[1]
        chosen = (indices[..., None] == torch.arange(self.size, device=indices.device)).to(parts.dtype) / places  # (K, M, S)
        uses, sums = chosen.sum(1), chosen.transpose(1, 2) @ parts  # not scatter_add_, which on a GPU adds in an order of its own
        self.uses.lerp_(uses, 1 - self.decay)
        self.sums.lerp_(sums, 1 - self.decay)
        share = 1 / self.size
        codes = torch.where(self.uses[..., None] > EPSILON * share, self.sums / self.uses.clamp(min=EPSILON * share)[..., None], self.codes)
        dead, trust = self.uses < self.restart * share, TRUST * self.restart * share
        if self.restart:
            alike = self._alike(torch.where(dead[..., None], fresh, codes), torch.ones_like(dead))
            dead = dead | self._doubles(codes, self.uses, alike)
            turn = (dead.cumsum(1) - 1).clamp(min=0)  # the first of the dead takes what was drawn first
            fresh = fresh.gather(1, turn[..., None].expand_as(fresh))
            dead = dead & ~self._doubles(torch.where(dead[..., None], fresh, codes), torch.where(dead, -1.0, self.uses), alike)  # no two in one spot
        self.codes.copy_(torch.where(dead[..., None], fresh, codes))
        self.uses.copy_(torch.where(dead, torch.full_like(self.uses, trust), self.uses))
        self.sums.copy_(torch.where(dead[..., None], fresh * trust, self.sums))
        self.merged.zero_()  # of an earlier training


def _squared_distances(parts: Tensor, codes: Tensor, never: Tensor | None = None) -> Tensor:
    """Squared distances of (K, M, d) to codes (K, S, d), (K, M, S); infinite to those that are `never` to be chosen (K, S).

    From the mean code and in double precision, so that the three parts do not cancel, and a code is the same under autocast and on a GPU's TF32
    units, whose rounding is larger than what lies between codes.
    """
    with torch.autocast(parts.device.type, enabled=False):
        centre, kind = codes.mean(1, keepdim=True), parts.dtype
        parts, codes = (parts - centre).double(), (codes - centre).double()
        lengths = codes.square().sum(2)
        lengths = lengths if never is None else lengths.masked_fill(never, torch.inf)
        squares = parts.square().sum(2, keepdim=True)
        # all three parts in one product, as everything else would read and write (K, M, S) once more
        left = torch.cat([parts, squares, torch.ones_like(squares)], dim=2)
        right = torch.cat([-2 * codes, torch.ones_like(lengths)[..., None], lengths[..., None]], dim=2)
        return (left @ right.transpose(1, 2)).clamp(min=0).to(kind)


def usage(counts: Tensor) -> tuple[Tensor, Tensor]:
    """How well codebooks are used: counts or shares (..., S) to the share of codes in use (...) and the perplexity exp(entropy) (...)."""
    shares = counts.double() / counts.double().sum(-1, keepdim=True).clamp(min=1e-300)
    return (shares > 0).double().mean(-1), torch.exp(-torch.special.xlogy(shares, shares).sum(-1))
