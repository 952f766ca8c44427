"""Requests and answers of the page's API; a `PNG` is base64 of a PNG file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_FILE = 8 * 2**20  # bytes of an uploaded file
MAX_BASE64 = 4 * (MAX_FILE // 3 + 1)
MAX_PICTURES, MAX_FRAMES, MAX_RUNS = 16, 64, 16

PNG = str
Name = Annotated[str, Field(max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e12, le=1e12)]
Base64 = Annotated[str, Field(min_length=4, max_length=MAX_BASE64)]
Index = Annotated[int, Field(ge=0, le=2**31)]


class RequestBody(BaseModel):
    """A request: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


# ---- parts of requests -------------------------------------------------------------------------
class Picture(RequestBody):
    """A picture of the test split by its index, or a file (PNG, JPEG, WebP, BMP) as base64."""

    index: Index | None = None
    png: Base64 | None = None

    @model_validator(mode="after")
    def check_one(self) -> Picture:
        if (self.index is None) == (self.png is None):
            raise ValueError("a picture has either an index or a png")
        return self


class Soft(RequestBody):
    """A change of the present value: `add` or `multiply`."""

    add: Number | None = None
    multiply: Number | None = None

    @model_validator(mode="after")
    def check_one(self) -> Soft:
        if (self.add is None) == (self.multiply is None):
            raise ValueError("a soft do() has either add or multiply")
        return self


DoEntry = Number | Name | Soft  # a value, a category, a change
DoRequest = Annotated[dict[Name, DoEntry], Field(max_length=64)]
Pictures = Annotated[list[Picture], Field(min_length=1, max_length=MAX_PICTURES)]
SweepValues = Annotated[list[Number], Field(min_length=1, max_length=MAX_FRAMES)]
Count = Annotated[int, Field(ge=1, le=MAX_FRAMES)]


# ---- requests ----------------------------------------------------------------------------------
class UploadRequest(RequestBody):
    file: Base64


class InterventionRequest(RequestBody):
    pictures: Pictures
    do: DoRequest = {}


class SweepRequest(RequestBody):
    picture: Picture
    do: DoRequest = {}
    variable: Name
    values: SweepValues | None = None
    count: Count = 13


class CompareRequest(RequestBody):
    runs: Annotated[list[Index], Field(min_length=1, max_length=MAX_RUNS)]
    picture: Picture
    do: DoRequest = {}


class ActRequest(RequestBody):
    picture: Picture
    action: Name
    times: Annotated[int, Field(ge=1, le=8)] = 1


class AttributeRequest(RequestBody):
    before: Picture | None = None
    after: Picture | None = None
    pair: Index | None = None

    @model_validator(mode="after")
    def check_pair(self) -> AttributeRequest:
        pictures = (self.before is not None, self.after is not None)
        if pictures not in ((True, True), (False, False)) or (self.pair is None) != pictures[0]:
            raise ValueError("give before and after, or the number of a pair")
        return self


class ClipRequest(RequestBody):
    picture: Picture
    do: DoRequest = {}
    steps: Annotated[int, Field(ge=0, le=16)] = 0


class HeatMapRequest(RequestBody):
    pictures: Pictures
    latent: Name
    sign: Literal[1, -1] = 1


class TraverseRequest(RequestBody):
    picture: Picture
    latent: Name
    dim: Annotated[int, Field(ge=0, le=10**6)] = 0
    values: SweepValues | None = None
    count: Count = 9


class SampleRequest(RequestBody):
    count: Count = 8
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    do: DoRequest = {}


# ---- what a run is -----------------------------------------------------------------------------
class ErrorAnswer(BaseModel):
    error: str


class StatusAnswer(BaseModel):
    version: str
    runs: int
    loading: int


class ImageAnswer(BaseModel):
    channels: int
    height: int
    width: int
    frames: int | None


class VariableAnswer(BaseModel):
    name: str
    kind: str
    unit: str
    low: float | None
    high: float | None
    mean: float | None
    std: float | None
    categories: list[str]
    codes: list[int]
    label: bool
    known_range: bool


class LatentAnswer(BaseModel):
    name: str
    dims: int
    low: float | None
    high: float | None


class NodeAnswer(BaseModel):
    name: str
    x: float
    y: float
    width: float
    height: float


class EdgeAnswer(BaseModel):
    cause: str
    effect: str
    weight: float | None
    label: str
    directed: bool
    kind: str
    path: str


class GraphAnswer(BaseModel):
    width: float
    height: float
    nodes: list[NodeAnswer]
    edges: list[EdgeAnswer]
    compared: bool


class TestPicturesAnswer(BaseModel):
    __test__ = False  # not a class of tests
    count: int
    error: str | None
    data: str


class RunAnswer(BaseModel):
    id: int
    name: str
    folder: str
    state: Literal["loading", "ready", "failed"]
    error: str | None = None
    model: str | None = None
    title: str | None = None
    seed: int | None = None
    image: ImageAnswer | None = None
    capabilities: list[str] = []
    variables: list[VariableAnswer] = []
    latents: list[LatentAnswer] = []
    graph: GraphAnswer | None = None
    actions: list[str] = []
    pictures: TestPicturesAnswer | None = None
    pairs: int = 0
    simulator: str | None = None
    notes: list[str] = []


class RunsAnswer(BaseModel):
    version: str
    runs: list[RunAnswer]
    results: int


class ThumbnailAnswer(BaseModel):
    index: int
    png: PNG
    frames: int | None
    values: dict[str, float | None]


class PicturesAnswer(BaseModel):
    count: int
    start: int
    error: str | None
    pictures: list[ThumbnailAnswer]


class PairAnswer(BaseModel):
    pair: int
    before: PNG
    after: PNG
    before_index: int
    after_index: int
    action: str | None


class PairsAnswer(BaseModel):
    count: int
    start: int
    pairs: list[PairAnswer]


class UploadAnswer(BaseModel):
    png: PNG
    notes: list[str]


class Code(BaseModel):
    """Lines that repeat the view."""

    python: str
    cli: str | None


class ResultAnswer(BaseModel):
    """A table of results; the rows are those of its file."""

    id: int
    name: str
    title: str
    date: str
    rows: int
    figures: int


class ResultsAnswer(BaseModel):
    results: list[ResultAnswer]


class FigureAnswer(BaseModel):
    id: int
    name: str
    png: PNG | None = None  # in an export only


class TableAnswer(BaseModel):
    id: int
    name: str
    title: str
    command: str
    revision: str
    hardware: str
    date: str
    rows: list[dict[str, Any]]
    figures: list[FigureAnswer]
