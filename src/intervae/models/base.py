"""What every model can do: loss, encode, decode, sample, fit, save; and the one clear error for what it cannot."""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.data.base import Batch, Dataset, Spec, Split
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.phases import Phase, Terms
from intervae.settings import build_settings

QUERIES = ("encode", "decode", "sample", "graph", "measure", "counterfactual", "act", "attribute", "extrapolate", "log_weights")
INITIALISING = threading.Lock()  # layers draw from the global generator, which runs in other threads must not touch meanwhile
QUERY_BATCH = 256  # samples a query handles at once, so that memory stays bounded


class Model(nn.Module, ABC):
    """Base of all models.

    A subclass gives `name`, a frozen dataclass `Settings`, and the methods `build`, `phases`, `loss`, `encode`, `decode`, `sample`.
    Latents are always (B, n, k): n named variables (`latent_names`) of k dims each.

    Arguments:
        spec: shapes and variables of the data, `data.spec`.
        seed: draws the initial weights without touching the global generator.
        settings: the fields of `Settings`; unknown ones are refused.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line for lists and model cards
    Settings: ClassVar[type]
    takes_clips: ClassVar[bool] = False  # whether a sample may be several frames
    latents_are_variables: ClassVar[bool] = True  # False for codes at places, of which metrics of single variables say nothing
    newer: ClassVar[frozenset[str]] = frozenset()  # tensors that runs of earlier versions lack, which then keep the values they are built with
    learns: ClassVar[bool] = True  # False where no weight is found by gradient steps: fitted in closed form, or not at all
    given_graph: CausalGraph | None = None  # one that the person knows and the model takes as it is

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if spec.frames is not None and not self.takes_clips:
            raise DataError(f"{self.name} takes single images, not clips.")
        super().__init__()
        if "graph" in settings:
            refuse_graph(type(self))
        self.spec = spec
        self.settings: Any = build_settings(self.Settings, settings)
        self.initialise(seed)

    def initialise(self, seed: int) -> None:
        """(Re)draw every weight from `seed`, on the CPU; the same seed gives the same weights on every machine."""
        self.trained = False
        with INITIALISING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reset the generators of the GPUs
            self.build()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster convolutions on CPUs and GPUs alike
        self.eval()  # questions may be asked at once; training switches to its own mode

    @abstractmethod
    def build(self) -> None:
        """Create the networks and buffers from `self.spec` and `self.settings`."""

    @abstractmethod
    def phases(self) -> list[Phase]:
        """How the model is trained."""

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Named terms of the main objective, each a mean over the batch; `loss` is their weighted sum."""

    @property
    @abstractmethod
    def latent_names(self) -> tuple[str, ...]:
        """Names of the n latent variables."""

    @abstractmethod
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the latents' posterior means (B, n, k)."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, k) to images (B, C, H, W) in [0, 1]."""

    @abstractmethod
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` images (n, C, H, W) from the model, under an intervention where the model knows causes."""

    @property
    def needs_labels(self) -> bool:
        """Whether encode() cannot do without labels."""
        return False

    def reconstruct(self, images: Any, labels: Any = None) -> Tensor:
        return self.decode(self.encode(images, labels))

    def check(self, data: Dataset) -> None:
        """Refuse, before a run is started, data that this model cannot be trained on."""

    def doubts(self, data: Dataset) -> list[str]:
        """What a person should know of these settings on this data before training starts, a sentence each."""
        return []

    def states_prepared(self) -> list[dict[str, Any]]:
        """Of a phase that only prepares: the states on the way, each as `state_to_log` would tell it."""
        return []

    def state_to_log(self) -> dict[str, Any]:
        """JSON-able state worth a line per epoch, such as the adjacency while it is learned."""
        return {}

    # ---- what only some models can do -------------------------------------------------------------------------------
    @property
    def graph(self) -> Any:
        self._refuse("graph")

    @property
    def undirected_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges of `graph` as (cause, effect) that the model had to give a direction, though no data could tell it."""
        return ()

    def measure(self, images: Any, labels: Any = None) -> Tensor:
        self._refuse("measure", ", as its latents are not the labels, but encode() tells what they are in a picture")

    def counterfactual(self, images: Any, do: Any, labels: Any = None) -> Tensor:
        self._refuse("counterfactual")

    def act(self, images: Any, action: Any) -> Tensor:
        self._refuse("act")

    def attribute(self, before: Any, after: Any) -> Any:
        self._refuse("attribute")

    def act_repeatedly(self, images: Any, action: Any, times: int) -> Tensor:
        self._refuse("act_repeatedly")

    def explain(self, before: Any, after: Any) -> Any:
        self._refuse("explain")

    def mechanism(self, *asked: Any, **more: Any) -> Any:
        self._refuse("mechanism")

    def extrapolate(self, frames: Any, steps: int) -> Tensor:
        self._refuse("extrapolate")

    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """log p(x, z) - log q(z | x) for `samples` draws of z from q(z | x), (samples, B), in nats: what likelihoods are bounded by.

        A subclass draws sample after sample from `generator`, a CPU one: two calls for K samples then draw what one call for 2 K does.
        """
        self._refuse("log_weights")

    def refuse_do(self, do: Any) -> None:
        """For models whose `sample` takes no intervention."""
        if do:
            from intervae.models.causal import CausalModel

            able = _able(lambda cls: issubclass(cls, CausalModel) or answers(cls, "graph"))
            raise QueryError(f"{self.name} knows no causes, so sample() takes no do; models that do: {able}.")

    def sampling_generator(self, n: int, seed: int | None) -> torch.Generator:
        """A CPU generator for `sample(n)`, after refusing to draw nothing."""
        if n < 1:
            raise QueryError(f"sample({n}) asks for no pictures; ask for one at least.")
        generator = torch.Generator()
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return generator

    def _refuse(self, query: str, why: str = "") -> NoReturn:
        raise QueryError(f"{self.name} cannot answer {query}(){why}; models that can: {_able(lambda cls: answers(cls, query))}.")

    # ---- training and files -----------------------------------------------------------------------------------------
    def fit(self, data: Dataset, *, seed: int = 0, out: str | Path | None = None, **options: Any) -> Any:
        """Train on `data`; see `intervae.training.fit` for the options. An untrained model first draws its weights from `seed`."""
        from intervae.training import fit  # training knows models, not the other way round; this one door is for convenience

        return fit(self, data, seed=seed, out=out, **options)

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors, graph.json and a model card."""
        from intervae.models.storage import save_model

        save_model(self, Path(folder))

    # ---- input ------------------------------------------------------------------------------------------------------
    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def as_images(self, images: Any, *, any_length: bool = False) -> Tensor:
        """Check what a person passes as images and bring it to the device as floats in [0, 1], (B, C, H, W).

        Of a model of clips (B, T, C, H, W), T the number of frames of its data, or any from 1 on with `any_length`; (T, C, H, W) is one clip.
        """
        given = tensor = as_tensor(images, "images")
        shape = self.spec.image_shape if self.spec.frames is None else (self.spec.frames, *self.spec.image_shape)
        if tensor.ndim == len(shape):
            tensor = tensor[None]
        frames_may_differ = any_length and self.spec.frames is not None and tensor.ndim == 5 and tensor.shape[1] > 0
        if tuple(tensor.shape[1:]) != ((tensor.shape[1], *shape[1:]) if frames_may_differ else shape):
            raise self._wrong_shape(tuple(given.shape))
        if not len(tensor):
            raise QueryError("no images were given; give one at least.")
        if tensor.dtype == torch.uint8:
            return tensor.to(self.device).float() / 255
        tensor = tensor.to(self.device, torch.float32)
        if not torch.isfinite(tensor).all():
            raise QueryError("the images hold NaN or infinite pixels; clean them first.")
        if tensor.min() < 0 or tensor.max() > 1:
            raise QueryError(
                f"float images must lie in [0, 1], these reach from {tensor.min():.3g} to {tensor.max():.3g}; divide by 255, or pass uint8."
            )
        return tensor

    def _wrong_shape(self, given: tuple[int, ...]) -> QueryError:
        """The error for pictures of another shape than the model was made for."""
        shape, frames = self.spec.image_shape, self.spec.frames
        if frames is None:
            start = f"{self.name} was made for images of shape {shape} (channels, height, width), "
            if len(given) == 5:
                able = _able(lambda cls: cls.takes_clips)
                return QueryError(f"{start}but shape {given} is that of clips; give one frame of each, such as clips[:, 0], or ask {able}.")
            return QueryError(f"{start}not {given}; resize or transpose them.")
        start = f"{self.name} was made for clips of shape {(frames, *shape)} (frames, channels, height, width), not {given}; "
        if len(given) in (4, 5) and given[-3:] == shape:
            return QueryError(f"{start}encode takes {frames} frames as its data has, reconstruct, counterfactual and extrapolate any number.")
        return QueryError(start + ("a clip has frames: give several images." if given == shape else "resize or transpose them."))

    def as_latents(self, latents: Any) -> Tensor:
        """Check latents (B, n, k) and bring them to the device."""
        tensor = as_tensor(latents, "latents").to(self.device, torch.float32)
        if tensor.ndim != 3 or tensor.shape[1] != len(self.latent_names) or not torch.isfinite(tensor).all():
            raise QueryError(f"latents must be finite and ({len(self.latent_names)} variables) x dims for each image, not {tuple(tensor.shape)}.")
        return tensor

    def as_labels(self, labels: Any, n: int) -> Tensor:
        """Check labels (B, n variables) in their own units and bring them to the device."""
        tensor = as_tensor(labels, "labels").to(self.device, torch.float32)
        tensor = tensor[None] if tensor.ndim == 1 else tensor
        if tuple(tensor.shape) != (n, len(self.spec.variables)):
            raise QueryError(
                f"labels must be ({n}, {len(self.spec.variables)}), one column for each of {', '.join(self.spec.names)}, not {tuple(tensor.shape)}."
            )
        if not torch.isfinite(tensor).all():
            raise QueryError("the labels hold NaN or infinite values; clean them first.")
        return tensor


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor of a tensor, an array or nested lists of numbers; `what` names it in the error."""
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array = np.ascontiguousarray(value)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        raise QueryError(f"the {what} are not an array of numbers (they are a {type(value).__name__}); give a tensor or a numpy array.") from None


def need_labels(name: str, spec: Spec) -> None:
    """Refuse, for the model called `name`, data without labels and labels that are categories without an order."""
    if not spec.variables:
        raise DataError(f"{name} learns from labels, but this data has none; give a labels.csv or another model.")
    for variable in spec.variables:
        if variable.kind == "categorical":
            raise DataError(
                f"{name} takes continuous and binary variables, but {variable.name!r} is categorical; "
                "leave it out with variables= (--variables), or recode it."
            )


def refuse_graph(cls: type[Model]) -> None:
    """Refuse a known graph for a model that has no use for one."""

    def takes_graph(cls: type[Model]) -> bool:
        return "graph" in inspect.signature(cls).parameters

    if not takes_graph(cls):
        raise UsageError(f"{cls.name} takes no graph (graph=, --graph); models that do: {_able(takes_graph)}.")


def ask(model: Model, query: str, split: Split) -> Tensor:
    """What `query` (encode, reconstruct, measure) answers about the pictures of a split, chunk by chunk, on the CPU.

    Labels go with them only where encode() cannot do without: a model that can must not see them where it is judged, as its latents would then
    tell labels that were not read off the pictures.
    """
    return torch.cat([getattr(model, query)(part.images, **({"labels": part.labels} if model.needs_labels else {})).cpu() for part in split.chunks()])


def answers(cls: type[Model], query: str) -> bool:
    """Whether a model class answers a query, that is, replaces the refusal of the base class."""
    return getattr(cls, query) is not getattr(Model, query)


def _able(can: Callable[[type[Model]], bool]) -> str:
    """The names of the models that can do something."""
    from intervae.models import MODELS  # the list of models is only known once they are all defined

    return ", ".join(name for name, cls in MODELS.items() if can(cls)) or "none yet"


def in_batches(function: Any, *tensors: Tensor) -> Tensor:
    """Apply `function` to QUERY_BATCH rows at a time and join the results."""
    chunks = zip(*(t.split(QUERY_BATCH) for t in tensors), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks])


def repeat_rows(values: Tensor, rows: int) -> Tensor:
    """(N, ...) to (rows, ...): the first of them, or all of them over and over, for a bank that has the same size for every data set."""
    return values[torch.arange(rows, device=values.device) % len(values)]
