"""Product quantisation of feature maps by K codebooks (Gendron et al. 2023, 3.3).

Codes are moving averages of the features that use them (van den Oord et al. 2017, App. A). Unused
and duplicate codes restart.

Shapes: B images, K codebooks of S codes with d dims each, features (B, K d, H, W); codebook k
quantises channels k d ... (k + 1) d - 1. The n = K H W positions are ordered by codebook, then row,
then column. M = B H W feature vectors per codebook.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

EPSILON = 1e-5  # fraction of mean usage below which a code does not move
DUPLICATE = 0.2  # fraction of the typical distance between codes; nearer ones are duplicates
TYPICAL = 0.75  # quantile of the nearest-neighbour distances that is the typical distance
SAME_POINT = 0.002  # fraction of the codes' spread; nearer codes are always duplicates
INITIAL_USAGE = 2.0  # usage of a restarted code, in multiples of the restart threshold


class Quantised(NamedTuple):
    """Quantised features (B, K d, H, W)."""

    features: Tensor  # (B, K d, H, W) the nearest codes; gradients pass straight through
    indices: Tensor  # (B, n) number of the nearest code
    commitment: Tensor  # (B,) summed squared distance to the codes; its gradient moves features
    codebook: Tensor  # (B,) the same, its gradient moves learned codes; 0 for moving averages


class Quantiser(nn.Module):
    """K codebooks; `update` moves the codes after a step, `forward` does not.

    Arguments:
        decay: of the codes' moving averages.
        restart: fraction of mean usage below which a code restarts; duplicates restart too. New
            codes are features of the batch, drawn in proportion to their squared distance from
            their code (as in k-means++). 0 for no restarts.
        learned: whether the codes are parameters, moved by the gradient of `Quantised.codebook`
            (van den Oord et al. 2017, Eq. 3); `update` then does nothing.
    """

    codes: Tensor  # (K, S, d)
    uses: Tensor  # (K, S) moving average of the fraction of positions that use a code
    sums: Tensor  # (K, S, d) moving average of the features that use it, per position
    merged: Tensor  # (K, S) whether a code is a duplicate that is never chosen

    def __init__(
        self,
        codebooks: int,
        codes: int,
        dims: int,
        *,
        decay: float = 0.99,
        restart: float = 0.1,
        learned: bool = False,
    ) -> None:
        super().__init__()
        self.codebooks, self.size, self.dims = codebooks, codes, dims
        self.decay, self.restart, self.learned = decay, restart, learned
        initial = torch.randn(codebooks, codes, dims) * dims**-0.5
        if learned:
            self.codes = nn.Parameter(initial)
        else:
            self.register_buffer("codes", initial)
        # with usage 0, the first update restarts almost all codes at features of its batch
        self.register_buffer("uses", torch.zeros(codebooks, codes))
        self.register_buffer("sums", torch.zeros(codebooks, codes, dims))
        self.register_buffer("merged", torch.zeros(codebooks, codes, dtype=torch.bool))
        # vectors, indices and candidates of the last training batch, for update(); not saved
        self.last_batch: tuple[Tensor, Tensor, Tensor] | None = None

    # ---- features to codes and back --------------------------------------------------------------
    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Quantised:
        height, width = features.shape[-2:]
        vectors = self._by_codebook(features)  # (K, M, d)
        distances, indices = self._distances(vectors.detach()).min(2)  # (K, M)
        nearest = self.codes.gather(1, indices[..., None].expand(-1, -1, self.dims))
        if self.training and not self.learned:
            candidates = self._draw_candidates(vectors.detach(), distances, generator)
            self.last_batch = vectors.detach(), indices, candidates
        error = (vectors - nearest.detach()).square().sum(2)
        codebook = torch.zeros_like(error)
        if self.learned:
            codebook = (vectors.detach() - nearest).square().sum(2)
        straight_through = vectors + (nearest - vectors).detach()
        return Quantised(
            self._as_map(straight_through, height, width).to(features.dtype),
            self._as_positions(indices, height * width),
            self._as_positions(error, height * width).sum(1),
            self._as_positions(codebook, height * width).sum(1),
        )

    def indices(self, features: Tensor) -> Tensor:
        """Return the code numbers (B, n) of features (B, K d, H, W)."""
        nearest = self._distances(self._by_codebook(features)).argmin(2)
        return self._as_positions(nearest, features.shape[-2] * features.shape[-1])

    def lookup(self, indices: Tensor) -> Tensor:
        """Return the code vectors (B, n, d) of code numbers (B, n)."""
        positions = indices.shape[1] // self.codebooks
        book = torch.arange(self.codebooks, device=indices.device).repeat_interleave(positions)
        return self.codes.flatten(0, 1)[book * self.size + indices]

    def mean(self, probabilities: Tensor) -> Tensor:
        """Return the mean code vectors (B, n, d) under probabilities (B, n, S)."""
        return (probabilities.unflatten(1, (self.codebooks, -1)) @ self.codes).flatten(1, 2)

    def nearest(self, vectors: Tensor) -> Tensor:
        """Return the numbers (B, n) of the codes nearest to vectors (B, n, d)."""
        by_codebook = vectors.unflatten(1, (self.codebooks, -1)).transpose(0, 1).flatten(1, 2)
        nearest = self._distances(by_codebook).argmin(2)
        return self._as_positions(nearest, vectors.shape[1] // self.codebooks)

    def to_map(self, vectors: Tensor, height: int, width: int) -> Tensor:
        """Return code vectors (B, n, d) as a feature map (B, K d, H, W)."""
        grid = vectors.unflatten(1, (self.codebooks, height, width))
        return grid.permute(0, 1, 4, 2, 3).flatten(1, 2)

    def _by_codebook(self, features: Tensor) -> Tensor:
        """Return features (B, K d, H, W) as (K, M, d)."""
        split = features.float().unflatten(1, (self.codebooks, self.dims))
        return split.permute(1, 0, 3, 4, 2).flatten(1, 3)

    def _as_map(self, vectors: Tensor, height: int, width: int) -> Tensor:
        """Return vectors (K, M, d) as (B, K d, H, W)."""
        return vectors.unflatten(1, (-1, height, width)).permute(1, 0, 4, 2, 3).flatten(1, 2)

    def _as_positions(self, values: Tensor, positions: int) -> Tensor:
        """Return values (K, M) as (B, n); `positions` is H W."""
        return values.unflatten(1, (-1, positions)).transpose(0, 1).flatten(1)

    def _distances(self, vectors: Tensor) -> Tensor:
        """Return squared distances (K, M, S) of vectors (K, M, d) to all codes not merged."""
        return squared_distances(vectors, self.codes, self.merged)

    # ---- updates of the codes --------------------------------------------------------------------
    @torch.no_grad()
    def update(self) -> None:
        """Move usage, sums and codes towards the last training batch; restart codes.

        Call it from `Phase.after_step`. A restart waits if no feature of the batch is far enough
        from all codes.
        """
        if self.last_batch is None:
            return
        vectors, indices, candidates = self.last_batch
        # not scatter_add_, whose order of summation varies on a GPU
        one_hot = indices[..., None] == torch.arange(self.size, device=indices.device)
        chosen = one_hot.to(vectors.dtype) / vectors.shape[1]  # (K, M, S)
        self.uses.lerp_(chosen.sum(1), 1 - self.decay)
        self.sums.lerp_(chosen.transpose(1, 2) @ vectors, 1 - self.decay)
        mean_use = 1 / self.size
        codes = torch.where(
            self.uses[..., None] > EPSILON * mean_use,
            self.sums / self.uses.clamp(min=EPSILON * mean_use)[..., None],
            self.codes,
        )
        dead = self.uses < self.restart * mean_use
        if self.restart:
            dead, candidates = self._choose_restarts(codes, dead, candidates)
        initial = INITIAL_USAGE * self.restart * mean_use
        self.codes.copy_(torch.where(dead[..., None], candidates, codes))
        self.uses.copy_(torch.where(dead, torch.full_like(self.uses, initial), self.uses))
        self.sums.copy_(torch.where(dead[..., None], candidates * initial, self.sums))
        self.merged.zero_()  # from an earlier training

    def _draw_candidates(
        self, vectors: Tensor, distances: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Return features (K, S, d) at which codes may restart, without replacement if possible.

        Arguments:
            vectors: (K, M, d).
            distances: (K, M) squared, to the nearest code.
        """
        uniform = torch.rand(distances.shape, device=distances.device, generator=generator)
        threshold = self._duplicate_distance(self.codes, self._in_use())
        far = distances.where(distances > threshold[:, None], 0.0)
        gumbel = -(-(uniform.clamp(1e-6, 1 - 1e-6)).log()).log()
        scores = (far + 1e-12).log() + gumbel
        order = scores.topk(min(self.size, distances.shape[1]), dim=1).indices
        order = order[:, torch.arange(self.size, device=order.device) % order.shape[1]]
        return vectors.gather(1, order[..., None].expand(-1, -1, self.dims))

    def _choose_restarts(
        self, codes: Tensor, dead: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return which codes restart (K, S), and where (K, S, d).

        Arguments:
            codes: (K, S, d) updated codes.
            dead: (K, S) codes with little usage.
            candidates: (K, S, d), the best first.
        """
        restarted = torch.where(dead[..., None], candidates, codes)
        threshold = self._duplicate_distance(restarted, torch.ones_like(dead))
        dead = dead | self._duplicates(codes, self.uses, threshold)
        rank = (dead.cumsum(1) - 1).clamp(min=0)  # the first dead code gets the first candidate
        candidates = candidates.gather(1, rank[..., None].expand_as(candidates))
        restarted = torch.where(dead[..., None], candidates, codes)
        uses = torch.where(dead, -1.0, self.uses)
        return dead & ~self._duplicates(restarted, uses, threshold), candidates

    def _in_use(self) -> Tensor:
        """Return which codes are in use, (K, S)."""
        return self.uses >= max(self.restart, EPSILON) / self.size

    # ---- duplicate codes -------------------------------------------------------------------------
    @torch.no_grad()
    def merge(self) -> None:
        """Exclude duplicates in favour of codes used more, once the codes no longer move."""
        threshold = self._duplicate_distance(self.codes, self._in_use())
        near = (squared_distances(self.codes, self.codes) <= threshold[:, None, None]).cpu()
        order = self.uses.argsort(dim=1, descending=True, stable=True).tolist()
        stay = torch.zeros(self.codebooks, self.size, dtype=torch.bool)
        for book, codes in enumerate(order):
            for code in codes:
                stay[book, code] = not bool((near[book, code] & stay[book]).any())
        self.merged.copy_(~stay)

    def _duplicate_distance(self, codes: Tensor, in_use: Tensor) -> Tensor:
        """Return the squared distance (K,) up to which codes (K, S, d) are duplicates.

        It is a fraction of the typical distance of codes in use (K, S) to the nearest other point.
        """
        weight, distances = in_use[..., None].to(codes.dtype), squared_distances(codes, codes)
        count = weight.sum(1, keepdim=True).clamp(min=1)
        centre = (weight * codes).sum(1, keepdim=True) / count
        spread = (weight * (codes - centre).square()).sum((1, 2)) / count[:, 0, 0]
        smallest = SAME_POINT**2 * spread  # (K,)
        others = in_use[:, None] & in_use[..., None] & (distances > smallest[:, None, None])
        nearest = distances.masked_fill(~others, torch.inf).amin(2)
        nearest = nearest.sort(dim=1).values  # (K, S), codes not in use last
        typical = (TYPICAL * (in_use.sum(1) - 1)).long().clamp(min=0)
        distance = nearest.gather(1, typical[:, None])[:, 0]
        distance = torch.where(distance.isfinite(), DUPLICATE**2 * distance, 0.0)
        return torch.maximum(smallest, distance)

    def _duplicates(self, codes: Tensor, uses: Tensor, threshold: Tensor) -> Tensor:
        """Return which codes (K, S, d) have a duplicate that is used more, or as much and first."""
        number = torch.arange(self.size, device=codes.device)
        more, same = uses[:, None] > uses[..., None], uses[:, None] == uses[..., None]
        near = squared_distances(codes, codes) <= threshold[:, None, None]
        return (near & (more | same & (number < number[:, None]))).any(2)


def squared_distances(vectors: Tensor, codes: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Return squared distances (K, M, S) of vectors (K, M, d) to codes (K, S, d).

    They are relative to the mean code and in double precision, so that the terms do not cancel and
    the nearest code is the same under autocast and TF32.

    Arguments:
        excluded: (K, S) codes at infinite distance.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        centre, dtype = codes.mean(1, keepdim=True), vectors.dtype
        vectors, codes = (vectors - centre).double(), (codes - centre).double()
        lengths = codes.square().sum(2)
        if excluded is not None:
            lengths = lengths.masked_fill(excluded, torch.inf)
        squares = vectors.square().sum(2, keepdim=True)
        # |x|^2 - 2 x c + |c|^2 as one product, which reads and writes (K, M, S) once
        left = torch.cat([vectors, squares, torch.ones_like(squares)], dim=2)
        right = torch.cat(
            [-2 * codes, torch.ones_like(lengths)[..., None], lengths[..., None]], dim=2
        )
        return (left @ right.transpose(1, 2)).clamp(min=0).to(dtype)


def usage(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return fraction of used codes (...) and perplexity exp(entropy) (...) of counts (..., S)."""
    shares = counts.double() / counts.double().sum(-1, keepdim=True).clamp(min=1e-300)
    return (shares > 0).double().mean(-1), torch.exp(-torch.special.xlogy(shares, shares).sum(-1))
