"""What metrics require of a regressor or classifier of variables on images, and its quality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from intervae.data import Variable
from intervae.metrics.base import Measurement


class VariableRegressor(ABC):
    """A function of images (N, C, H, W) to values (N, n) in the units of `variables`."""

    variables: tuple[Variable, ...]

    @abstractmethod
    def __call__(self, images: Any) -> np.ndarray:
        """Return values (N, n) of images, uint8 or in [0, 1]."""

    @property
    @abstractmethod
    def training_images(self) -> int:
        """Number of images it was trained on."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    def quality(
        self, images: Any, labels: np.ndarray, *, name: str = "reader"
    ) -> list[Measurement]:
        """Measure the regressor on images it was not trained on.

        Returns `NAME_r2_min` of the continuous variables and `NAME_accuracy_min` of the others.

        Arguments:
            labels: (N, n) true values. Constant continuous variables are left out and listed in the
                parameters.
        """
        predicted = self(images)
        r2, accuracy, majority, constant = {}, {}, {}, []
        for variable, values, truth in zip(
            self.variables, predicted.T, np.asarray(labels, dtype=np.float64).T, strict=True
        ):
            if variable.kind != "continuous":
                accuracy[variable.name] = float((values == truth).mean())
                majority[variable.name] = float(
                    np.unique(truth, return_counts=True)[1].max() / len(truth)
                )
            elif np.ptp(truth) == 0:
                constant.append(variable.name)
            else:
                r2[variable.name] = float(
                    1 - np.square(values - truth).sum() / np.square(truth - truth.mean()).sum()
                )
        parameters: dict[str, Any] = {
            "training_pictures": self.training_images,
            **({"constant": constant} if constant else {}),
        }

        def minimum(metric: str, scores: dict[str, float], **more: Any) -> Measurement:
            return Measurement(
                f"{name}_{metric}_min",
                min(scores.values()),
                len(predicted),
                scores,
                parameters={**parameters, **more},
                higher_is_better=True,
            )

        measurements = [minimum("r2", r2)] if r2 else []
        measurements += [minimum("accuracy", accuracy, majority=majority)] if accuracy else []
        return measurements
