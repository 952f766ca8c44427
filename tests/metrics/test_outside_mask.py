"""Pixels that do() must not change: queries with known errors outside the mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from intervae.data import Dataset
from intervae.data.simulators import Flow, Garden, Pendulum
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.interventions import random_interventions
from intervae.metrics.outside_mask import outside_mask_errors

SIZE = 32


@pytest.fixture(scope="module", params=[Pendulum(), Flow(), Garden()], ids=lambda s: s.name)
def data(request: pytest.FixtureRequest) -> Dataset:
    return request.param.dataset(size=SIZE, samples=160)


@pytest.fixture(scope="module")
def pendulum() -> Dataset:
    return Pendulum().dataset(size=SIZE, samples=160)


def measure(
    data: Dataset, query: Callable[..., Any], simulator: Simulator | None = None, **options: Any
) -> list[Measurement]:
    assert data.simulator is not None
    return outside_mask_errors(
        query,
        simulator or data.simulator,
        data.test.images.numpy(),
        data.test.fields["exogenous"].numpy(),
        data.variables,
        **options,
    )


def simulated(data: Dataset, spoil: Callable[[np.ndarray], None]) -> Callable[..., np.ndarray]:
    """The simulator as a query: true images uint8, changed in place by `spoil`."""
    exogenous, simulator = data.test.fields["exogenous"].numpy(), data.simulator
    assert simulator is not None

    def query(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        answer = simulator.counterfactual(exogenous, do, size=SIZE)[0]
        spoil(answer)
        return answer

    return query


def test_the_truth_and_the_unchanged_image_score_0(data: Dataset) -> None:
    for query in (simulated(data, lambda x: None), lambda images, do: images):
        measurements = measure(data, query)
        assert [m.metric for m in measurements] == ["outside_mask_mae", "changed_outside_share"]
        for m in measurements:
            assert m.value == 0
            assert m.per_variable == dict.fromkeys(data.names, 0)
            assert m.parameters["doing_nothing"] == {"value": 0, **m.per_variable}
            assert m.parameters["causes"]["value"] == m.parameters["effects"]["value"] == 0
            assert m.higher_is_better is False


def test_one_wrong_pixel_outside_is_one_over_their_number(data: Dataset) -> None:
    def spoil(answer: np.ndarray) -> None:
        answer[:, :, 0, 0] = 0

    corner = data.test.images.numpy()[0, :, 0, 0] / 255  # where no object is ever drawn
    error, share = measure(data, simulated(data, spoil))
    for name, outside in error.parameters["outside"].items():
        assert 0.5 < outside < 1
        assert error.per_variable[name] == pytest.approx(corner.mean() / (outside * SIZE**2))
        assert share.per_variable[name] == pytest.approx(1 / (outside * SIZE**2))
    for m in (error, share):
        assert m.value == pytest.approx(np.mean(list(m.per_variable.values())))
    one_channel = measure(data, simulated(data, lambda x: x[:, 1, 0, 0].fill(0)))
    assert one_channel[0].value == pytest.approx(error.value * corner[1] / corner.sum())
    assert one_channel[1].value == share.value


def test_outside_is_what_neither_the_old_nor_the_new_shadow_covers(pendulum: Dataset) -> None:
    (error, _) = measure(pendulum, lambda images, do: images)
    exogenous = pendulum.test.fields["exogenous"].numpy()
    assert pendulum.simulator is not None
    drawn = random_interventions(pendulum.variables, len(exogenous), seed=0)["shadow_length"]
    covered = np.zeros((len(exogenous), SIZE, SIZE), dtype=bool)
    for do in ({}, {"shadow_length": drawn}):
        values = pendulum.simulator.simulate(exogenous, do)
        covered |= pendulum.simulator.object_masks(values, size=SIZE)["shadow"]
    outside = error.parameters["outside"]
    assert outside["shadow_length"] == pytest.approx(1 - covered.mean())
    assert outside["pendulum"] < outside["shadow_length"]  # which moves rod, ball and shadow


def test_errors_inside_the_mask_do_not_count(pendulum: Dataset) -> None:
    exogenous, simulator = pendulum.test.fields["exogenous"].numpy(), pendulum.simulator
    assert simulator is not None

    def query(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        """Answer as if nothing were done, except that the true shadow after do() is grey."""
        answer = images.copy()
        mask = simulator.object_masks(simulator.simulate(exogenous, do), size=SIZE)["shadow"]
        answer.transpose(0, 2, 3, 1)[mask] = 128
        return answer

    for m in measure(pendulum, query):
        assert m.value == 0  # every do() of Pendulum may change the shadow


def test_a_change_is_more_than_8_levels_from_the_image_before(pendulum: Dataset) -> None:
    factual = pendulum.test.images.numpy()
    for levels, counted in ((8, 0.0), (9, 1.0)):

        def query(images: np.ndarray, do: dict[str, Any], levels: int = levels) -> np.ndarray:
            up = images.astype(int) + levels
            return np.where(up <= 255, up, images.astype(int) - levels).astype(np.uint8)

        error, share = measure(pendulum, query)
        assert share.value == counted
        assert error.value == pytest.approx(levels / 255, rel=1e-5)
        floats = measure(pendulum, lambda images, do, f=query: f(images, do) / np.float32(255))
        assert floats[1].value == counted
    assert (factual == pendulum.test.images.numpy()).all()


def test_reconstructions_are_scored_beside_the_answers(pendulum: Dataset) -> None:
    blurred = pendulum.test.images.numpy() / 255 * 0.95
    as_answers = measure(pendulum, lambda images, do: blurred)
    beside = measure(pendulum, simulated(pendulum, lambda x: None), reconstructions=blurred)
    for answer, truth in zip(as_answers, beside, strict=True):
        assert truth.value == 0
        assert answer.value > 0.01
        expected = {"value": answer.value, **answer.per_variable}
        assert truth.parameters["reconstruction"] == expected
        assert truth.parameters["effects"]["reconstruction"] == pytest.approx(
            answer.parameters["effects"]["value"]
        )


class WithoutObjects(Pendulum):
    objects: ClassVar = {}


class Everywhere(Pendulum):
    """One object that covers the image."""

    objects: ClassVar = {"fog": ("pendulum", "light", "shadow_length", "shadow_position")}

    def object_masks(self, values: Any, exogenous: Any = None, *, size: int = 64) -> Any:
        return {"fog": np.ones((len(values), size, size), dtype=bool)}


def test_bad_input_and_masks_of_everything(pendulum: Dataset) -> None:
    unchanged = lambda images, do: images  # noqa: E731
    with pytest.raises(UsageError, match="'pendulum' does not name the objects"):
        measure(pendulum, unchanged, WithoutObjects())
    with pytest.raises(DataError, match=r"answer to do\(pendulum\)"):
        measure(pendulum, lambda images, do: images * 255.0)
    assert measure(pendulum, unchanged, Everywhere()) == []
