"""q(variables | picture): the variables of a picture without labels, by one small network.

Not in the papers, which take labels of every picture. It is trained on labelled rows with its own
loss and shares no weights with the other networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.variable_types import VariableType, feature_slices
from intervae.nets.images import ConvEncoder

QUANTILES = 32  # of the pixels of each channel
MOST_PIXELS = 4096  # that are sorted, of each channel


class PixelQuantiles(nn.Module):
    """Pictures (B, C, H, W) to outputs (B, outputs) that depend on the pixels' values alone.

    Where they are in the picture is lost, so brightness and colour are easy to read. Of large
    pictures every k-th pixel is taken. 0 at first.
    """

    def __init__(self, colours: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Sequential(
            nn.Linear(colours * QUANTILES, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, outputs),
        )
        for weight in (self.dense[-1].weight, self.dense[-1].bias):
            nn.init.zeros_(weight)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        pixels, width = images.flatten(2), images.shape[3]
        every = -(-pixels.shape[2] // MOST_PIXELS)
        while math.gcd(every, width) > 1:  # else it would be a few columns
            every += 1
        ordered = pixels[:, :, ::every].sort(dim=2).values
        ranks = torch.linspace(0, ordered.shape[2] - 1, QUANTILES, device=images.device)
        quantiles = ordered.index_select(2, ranks.round().long())
        return self.dense(4 * quantiles.flatten(1) - 1)


class VariablePredictor(nn.Module):
    """Pictures (B, C, H, W) to outputs (B, f): means of continuous variables, logits of classes.

    f is the width of `encode_values`; a binary variable has one logit. Numbers such as brightness
    are also read off the quantiles of the pixels, where any variable is a number.

    Arguments:
        channels, hidden: of the `ConvEncoder`.
        dropout: share of the inputs of each dense layer that is dropped in training.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        types: Sequence[VariableType],
        channels: Sequence[int],
        hidden: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.types, self.slices = tuple(types), feature_slices(types)
        outputs = sum(each.width for each in types)
        self.network = ConvEncoder(image_shape, outputs, channels, hidden)
        self.log_std = nn.Parameter(torch.zeros(len(self.types)))  # used where continuous
        self.quantiles: PixelQuantiles | None = None
        if any(kind.kind == "continuous" for kind in self.types):
            self.quantiles = PixelQuantiles(image_shape[0], hidden, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self._with_quantiles(self.network(images), images)

    def _with_quantiles(self, outputs: Tensor, images: Tensor) -> Tensor:
        return outputs if self.quantiles is None else outputs + self.quantiles(images)

    def outputs_for_training(self, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the outputs with dropout (Srivastava et al. 2014), drawn from `generator`."""
        if not self.dropout or not self.training:
            return self(images)
        features = self.network.before_dense(images)
        for layer in list(self.network.dense)[1:]:
            if isinstance(layer, nn.Linear):
                draws = torch.rand(features.shape, device=features.device, generator=generator)
                features = features * (draws >= self.dropout) / (1 - self.dropout)
            features = layer(features)
        return self._with_quantiles(features, images)

    def _columns(self, outputs: Tensor) -> list[tuple[VariableType, Tensor]]:
        """Return the type and the outputs (B, width) of each variable."""
        return [
            (kind, outputs[:, columns])
            for kind, columns in zip(self.types, self.slices, strict=True)
        ]

    def features(self, outputs: Tensor) -> Tensor:
        """Return expected features (B, f): means, 2 p - 1 if binary, class probabilities."""
        blocks = []
        for kind, column in self._columns(outputs):
            if kind.kind == "continuous":
                blocks.append(column)
            elif kind.kind == "binary":
                blocks.append(torch.tanh(column / 2))
            else:
                blocks.append(column.softmax(1))
        return torch.cat(blocks, dim=1)

    def values(self, outputs: Tensor) -> Tensor:
        """Return values (B, n) in normalised units: means, and the most probable classes."""
        columns = []
        for kind, column in self._columns(outputs):
            if kind.kind == "continuous":
                columns.append(column[:, 0])
            else:
                codes = column[:, 0] > 0 if kind.kind == "binary" else column.argmax(1)
                columns.append(kind.values(codes, outputs.dtype))
        return torch.stack(columns, dim=1)

    def loss(
        self, outputs: Tensor, values: Tensor, known: Tensor, log_std: Tensor | None = None
    ) -> Tensor:
        """Return -log q(value | picture) up to a constant, (B, n); 0 where it is not known.

        A Gaussian with a learned standard deviation for continuous variables, cross-entropy for
        classes.

        Arguments:
            values: (B, n) in normalised units, finite.
            known: (B, n).
            log_std: (n,) in the place of the learned ones.
        """
        terms = []
        spreads = (self.log_std if log_std is None else log_std).unbind()
        columns = zip(self._columns(outputs), values.unbind(1), spreads, strict=True)
        for (kind, column), value, spread in columns:
            if kind.kind == "continuous":
                error = (column[:, 0] - value) * torch.exp(-spread)
                terms.append(0.5 * error.square() + spread)
            elif kind.kind == "binary":
                terms.append(functional.softplus(-value * column[:, 0]))
            else:
                codes = kind.codes(value)[:, None]
                terms.append(-column.log_softmax(1).gather(1, codes)[:, 0])
        return torch.where(known, torch.stack(terms, dim=1), 0.0)
