"""`Model`, the base of all models: loss, encode, decode, sample, fit, save."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.data import Batch, Dataset, Spec
from intervae.errors import DataError, QueryError, UsageError
from intervae.files import as_path
from intervae.memory import is_out_of_memory
from intervae.models.checks import QUERIES, check_accepts_graph, missing_query, models_that
from intervae.models.description import model_html, model_repr
from intervae.models.inputs import InputChecks
from intervae.models.phases import Phase, Terms
from intervae.models.presets import Preset
from intervae.notes import Note
from intervae.settings import build_settings, check_seed, check_whole

MAX_SAMPLES = 10_000_000
# Layers draw from torch's global generator, which runs in other threads share.
INITIALISING = threading.Lock()


class Model(InputChecks, nn.Module, ABC):
    """Base of all models.

    A subclass defines `name`, `title`, a frozen dataclass `Settings`, and the methods `build`,
    `phases`, `loss`, `latent_names`, `encode`, `decode` and `sample`. Latents are always
    (B, n, k): n named variables (`latent_names`) of k dims each. A further query, such as
    `counterfactual`, exists on exactly the models that answer it (see `capabilities.py`).

    Arguments:
        spec: shapes and variables of the data, `data.spec`.
        seed: seed of the initial weights; the global generator is not touched.
        settings: fields of `Settings`; an unknown one raises a UsageError.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line for lists and model cards
    Settings: ClassVar[type]
    presets: ClassVar[Mapping[str, Preset]] = {}  # settings as a paper prints them
    takes_clips: ClassVar[bool] = False  # whether a sample may be several frames
    # False for codes at image places, to which metrics of single variables do not apply
    latents_are_variables: ClassVar[bool] = True
    # tensors that a run of an earlier version may lack; they then keep their initial values
    optional_tensors: ClassVar[frozenset[str]] = frozenset()
    # whether rows with missing labels (NaN) can be trained on; their loss must then be finite
    accepts_missing_labels: ClassVar[bool] = False
    # whether counterfactual() keeps the residuals of each image if its labels are passed
    counterfactual_takes_labels: ClassVar[bool] = False
    # setting -> range or choices, as `intervae tune --search` takes them; {}: from the defaults
    search_space: ClassVar[Mapping[str, str]] = {}
    known_graph: CausalGraph | None = None  # a graph passed by the caller, used as it is
    preset: str | None = None  # name of the preset that `create` started from

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not isinstance(spec, Spec):
            raise UsageError(
                f"{type(self).__name__} takes the spec of a data set (data.spec), not a "
                f"{type(spec).__name__}."
            )
        check_seed(seed)
        if spec.frames is not None and not self.takes_clips:
            raise DataError(f"{self.name} takes single images, not clips.")
        super().__init__()
        if "graph" in settings:
            check_accepts_graph(type(self))
        self.spec = spec
        self.settings: Any = build_settings(self.Settings, settings)
        try:
            self.initialise(seed)
        except (MemoryError, RuntimeError, TypeError) as error:
            if not is_out_of_memory(error):
                raise
            raise UsageError(
                f"{self.name} with these settings does not fit into memory; choose a smaller "
                "network or smaller images."
            ) from None

    def initialise(self, seed: int) -> None:
        """Draw every weight from `seed`, on the CPU, so that it is the same on every machine."""
        self.trained = self.started = False
        with INITIALISING, torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also reset the generators of the GPUs
            torch.default_generator.manual_seed(seed)
            self.build()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()  # the mode of queries; training sets its own

    def train(self, mode: bool = True) -> Model:
        """Set the mode of training, from which on queries are allowed, or that of queries."""
        self.started = self.started or mode
        return super().train(mode)

    def check_trained(self) -> None:
        """Raise a QueryError for a query about pictures to a model that was never trained."""
        if not (self.trained or self.started):
            raise QueryError(
                f"this {self.name} is not trained, so its answer would be noise; call fit(data) "
                "first, or load a run with intervae.load."
            )

    # ---- what a subclass defines --------------------------------------------------------------
    @abstractmethod
    def build(self) -> None:
        """Create the networks and buffers from `self.spec` and `self.settings`."""

    @abstractmethod
    def phases(self) -> list[Phase]:
        """Return the phases of training, in order."""

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the named terms of the main objective, each a mean over the batch.

        The entry `loss` is their weighted sum.
        """

    @property
    @abstractmethod
    def latent_names(self) -> tuple[str, ...]:
        """Names of the n latent variables."""

    @abstractmethod
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Encode images (B, C, H, W) to the posterior means of the latents (B, n, k)."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Decode latents (B, n, k) to images (B, C, H, W) in [0, 1]."""

    @abstractmethod
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Draw `n` images (n, C, H, W), under an intervention `do` if the model is causal."""

    # ---- what a subclass may define -----------------------------------------------------------
    @property
    def needs_labels(self) -> bool:
        """Whether encode() requires labels."""
        return False

    @property
    def undirected_edges(self) -> tuple[tuple[str, str], ...]:
        """Edges of `graph` as (cause, effect) whose direction the data cannot decide."""
        return ()

    def check(self, data: Dataset) -> None:
        """Raise a DataError for data that this model cannot be trained on, before a run starts."""

    def notes(self, data: Dataset) -> list[Note]:
        """Return notes on these settings for this data, printed before training starts."""
        return []

    def figures(self, data: Dataset) -> dict[str, Callable[[Path], None]]:
        """Return the model's own figures: file name -> function that draws it at a path."""
        return {}

    def state_to_log(self) -> dict[str, Any]:
        """Return JSON-able state to log in every epoch, such as a learned adjacency."""
        return {}

    def logged_states(self) -> list[dict[str, Any]]:
        """Return the states of a phase without players, each as in `state_to_log`."""
        return []

    # ---- queries ------------------------------------------------------------------------------
    def reconstruct(self, images: Any, labels: Any = None) -> Tensor:
        """Encode and decode images (B, C, H, W)."""
        return self.decode(self.encode(images, labels))

    def __getattr__(self, name: str) -> Any:
        """Raise, for a query that the class lacks, the error that names the models that have it."""
        if name in QUERIES:
            if any(name in vars(base) for base in type(self).__mro__):
                return object.__getattribute__(self, name)  # a property that failed: its own error
            raise missing_query(type(self), name)
        return super().__getattr__(name)

    def check_no_do(self, do: Any) -> None:
        """Raise a QueryError for an intervention, in models whose `sample` takes none."""
        if do:
            able = models_that(lambda cls: hasattr(cls, "graph"))
            raise QueryError(
                f"{self.name} knows no causes, so sample() takes no do; models that do: {able}."
            )

    def sampling_generator(self, n: int, seed: int | None) -> torch.Generator:
        """Return a CPU generator for `sample(n)`; raise a QueryError for n < 1 or untrained."""
        self.check_trained()
        if isinstance(n, int) and n < 1:
            raise QueryError(f"sample({n}) draws no images; ask for one at least.")
        check_whole(1, QueryError, n=n)
        if n > MAX_SAMPLES:
            raise QueryError(f"sample({n}) is more than {MAX_SAMPLES} at once; ask for fewer.")
        if seed is not None:
            check_seed(seed, QueryError)
        generator = torch.Generator()
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return generator

    # ---- training and files -------------------------------------------------------------------
    def fit(
        self, data: Dataset, *, seed: int = 0, out: str | Path | None = None, **options: Any
    ) -> Any:
        """Train on `data`; see `intervae.training.fit` for the options.

        An untrained model first draws its weights from `seed`.
        """
        from intervae.training import fit  # the one import against the order of the layers

        return fit(self, data, seed=seed, out=out, **options)

    def serve(self, data: Dataset | None = None, *, port: int | None = None) -> Any:
        """Start a page that asks this model what if; a notebook shows it. Needs `[serve]`.

        Arguments:
            data: whose test pictures the page shows; without it, only uploads.
            port: that port or an error; by default the first free one from 8765.

        Returns:
            The page, with `address` and `stop()`.
        """
        from intervae.serve.launch import serve_model  # against the order of the layers, as in fit

        return serve_model(self, data, port=port)

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors, graph.json and a model card."""
        from intervae.models.storage import save_model

        save_model(self, as_path(folder, "folder"))

    # ---- display ------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return model_repr(self)

    def _repr_html_(self) -> str:
        return model_html(self)
