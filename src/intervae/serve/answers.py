"""Answers of queries; a `PNG` is base64 of a PNG file, a number that is not finite is null."""

from __future__ import annotations

from pydantic import BaseModel, Field

from intervae.serve.schemas import PNG, Code


class ValueAnswer(BaseModel):
    """A variable before and after do(), by the model and by the simulator.

    `after` is what do() and the mechanisms set, `shown` what the model reads on its own picture.
    """

    name: str
    unit: str
    before: float | None
    after: float | None
    shown: float | None = None
    true_before: float | None = None
    true_after: float | None = None
    error: float | None = None  # |after - true_after|; 1 for another class
    before_text: str
    after_text: str
    true_text: str | None = None
    changed: bool


class PixelErrors(BaseModel):
    pixel_mae: float
    identity_pixel_mae: float


class CounterfactualAnswer(BaseModel):
    """One picture under do()."""

    factual: PNG
    counterfactual: PNG
    truth: PNG | None
    truth_error: str | None
    difference: PNG | None
    difference_max: float | None
    change: PNG
    change_max: float
    errors: PixelErrors | None
    values: list[ValueAnswer]


class InterventionAnswer(BaseModel):
    run: int
    answers: list[CounterfactualAnswer]
    set: list[str]
    changed: list[str]
    cut: list[tuple[str, str]]
    notes: list[str]
    warnings: dict[str, str]
    milliseconds: float
    code: Code


class SweepAnswer(BaseModel):
    run: int
    variable: str
    values: list[float]
    texts: list[str]
    frames: list[PNG]
    truth: list[PNG] | None
    pixel_mae: list[float] | None
    measured: dict[str, list[float | None]]
    milliseconds: float
    code: Code


class ComparedAnswer(BaseModel):
    run: int
    error: str | None = None
    counterfactual: PNG | None = None
    pixel_mae: float | None = None
    values: list[ValueAnswer] = []


class CompareAnswer(BaseModel):
    answers: list[ComparedAnswer]
    factual: PNG
    truth: PNG | None
    mean: PNG | None
    std: PNG | None
    std_max: float | None
    std_mean: float | None
    code: Code


class ActAnswer(BaseModel):
    run: int
    action: str
    factual: PNG
    pictures: list[PNG]
    changes: list[PNG]
    milliseconds: float
    code: Code


class ActionProbability(BaseModel):
    name: str
    probability: float | None
    log_likelihood: float | None


class AttributeAnswer(BaseModel):
    run: int
    before: PNG
    after: PNG
    actions: list[ActionProbability]
    best: str
    note: str | None
    true_action: str | None
    code: Code


class ClipValue(BaseModel):
    name: str
    frame: int | None
    before: float | None
    after: float | None
    changed: bool


class ClipAnswer(BaseModel):
    run: int
    frames: list[PNG]
    predicted: list[PNG]
    counterfactual: list[PNG]
    truth: list[PNG] | None
    given_frames: int = Field(serialization_alias="given")
    values: list[ClipValue]
    notes: list[str]
    milliseconds: float
    code: Code


class LinkAnswer(BaseModel):
    cause: str
    effect: str
    column: str
    latent: str
    text: str
    strength: float | None
    direction_identifiable: bool
    link_confidence: float | None
    direction_confidence: float | None
    test_explained: float | None
    test_accuracy: float | None
    trend: float | None


class ColumnAnswer(BaseModel):
    """The latent that goes with a column, see `models.heat_maps.Link`."""

    column: str
    latent: str
    text: str
    edge: str
    association: float | None
    sign: int


class FindingsAnswer(BaseModel):
    run: int
    links: list[LinkAnswer]
    columns: list[ColumnAnswer]
    threshold: float
    resamples: int


class HeatMapAnswer(BaseModel):
    run: int
    latent: str
    sign: int
    overlays: list[PNG]
    maps: list[PNG]
    pictures: list[PNG]
    code: Code


class TraverseAnswer(BaseModel):
    run: int
    latent: str
    dim: int
    value: float | None
    values: list[float]
    frames: list[PNG]
    factual: PNG
    reconstruction: PNG
    code: Code


class SampleAnswer(BaseModel):
    run: int
    pictures: list[PNG]
    code: Code
