"""Runs that are served: loaded in the background, each answering one query at a time.

This file imports neither torch nor a model before a run is loaded, so that the page is there
before they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from intervae.errors import IntervaeError
from intervae.serve.schemas import RunAnswer

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.models.base import Model

T = TypeVar("T")
QUEUE = 32  # queries that wait for one model; more are refused


class BusyError(Exception):
    """A run that is still loading, or whose queue is full; the client should try again."""


class FailedRunError(Exception):
    """A run that could not be loaded."""


class ServedRun:
    """One run: its model, its data, and a queue of queries.

    Arguments:
        number: in the addresses of the API.
        folder: of the run, as the user wrote it; None for a model in memory.
        model, data: a model in memory, and the data set whose test pictures are shown.
    """

    def __init__(
        self,
        number: int,
        folder: Path | None,
        *,
        model: Model | None = None,
        data: Dataset | None = None,
    ) -> None:
        self.number, self.folder = number, folder
        self.model: Any = model
        self.data: Any = data
        self.data_error: str | None = None
        self.config: dict[str, Any] = {}
        name = (folder.name or folder.resolve().name) if folder is not None else "model"
        self.description = RunAnswer(
            id=number, name=name, folder=str(folder or ""), state="loading"
        )
        self.cache: dict[str, Any] = {}  # answers that take seconds, such as findings
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"served-{number}")
        self._slow_executor = ThreadPoolExecutor(1, thread_name_prefix=f"slow-{number}")
        self._waiting = 0

    @property
    def state(self) -> str:
        return self.description.state

    # ---- loading -------------------------------------------------------------------------------
    def load(self, device: str = "cpu") -> None:
        """Load the model and its data; what fails is written into the description."""
        from intervae.serve.describe import describe_run

        try:
            if self.folder is not None:
                self._load_folder(self.folder, device)
            self.description = describe_run(self)
            self._executor.submit(self._warm_up)
        except IntervaeError as error:
            self._fail(str(error))
        except Exception as error:  # a damaged run must not stop the others
            self._fail(f"{self.folder} could not be loaded ({type(error).__name__}: {error}).")

    def _load_folder(self, folder: Path, device: str) -> None:
        from intervae.evaluation.run_data import load_run_data
        from intervae.files import read_json
        from intervae.models import load

        self.model = load(folder, device)
        self.config = read_json(folder / "config.json", "the run's settings")
        try:
            self.data = load_run_data(folder, self.config, self.model)
        except (IntervaeError, OSError) as error:  # the model still answers uploads
            self.data_error = str(error)

    def _fail(self, sentence: str) -> None:
        self.description = self.description.model_copy(
            update={"state": "failed", "error": " ".join(sentence.split())}
        )

    # ---- queries -------------------------------------------------------------------------------
    def check_ready(self) -> None:
        if self.state == "loading":
            raise BusyError(f"{self.description.name} is still being loaded; try again.")
        if self.state == "failed":
            raise FailedRunError(self.description.error or "the run could not be loaded.")

    def _warm_up(self) -> None:
        """Import the queries and compile what the first one would wait for."""
        from intervae.serve import counterfactuals, latents  # noqa: F401
        from intervae.serve.schemas import Picture, SweepRequest

        names = [variable.name for variable in self.description.variables]
        if "do" in self.description.capabilities and names and self.data is not None:
            request = SweepRequest(picture=Picture(index=0), variable=names[0], count=2)
            with contextlib.suppress(IntervaeError):  # asked again, it is an answer
                counterfactuals.sweep(self, request)

    async def ask(self, query: Callable[[], T], *, slow: bool = False) -> T:
        """Run a query after those that wait; raise a BusyError if they are too many.

        Arguments:
            slow: whether it takes seconds; it then holds up other slow ones only.
        """
        self.check_ready()
        if self._waiting >= QUEUE:
            raise BusyError(f"{self.description.name} has {QUEUE} queries to answer; try again.")
        self._waiting += 1
        try:
            executor = self._slow_executor if slow else self._executor
            return await asyncio.get_running_loop().run_in_executor(executor, query)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        for executor in (self._executor, self._slow_executor):
            executor.shutdown(wait=False, cancel_futures=True)


class ServedRuns:
    """All runs of a page, in the order of the command line."""

    def __init__(self, runs: Sequence[ServedRun], device: str = "cpu") -> None:
        self.runs, self.device = list(runs), device
        self._loader: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self.runs)

    def start_loading(self) -> None:
        """Load all runs in a thread, once."""
        if self._loader is None:
            self._loader = threading.Thread(target=self.load_all, name="load-runs", daemon=True)
            self._loader.start()

    def load_all(self) -> None:
        for run in self.runs:
            if run.state == "loading":
                run.load(self.device)

    @property
    def loading(self) -> int:
        return sum(run.state == "loading" for run in self.runs)

    def close(self) -> None:
        for run in self.runs:
            run.close()


def open_folders(folders: Sequence[Path], device: str = "cpu") -> ServedRuns:
    """Return the runs of folders, not loaded yet."""
    return ServedRuns([ServedRun(i, folder) for i, folder in enumerate(folders)], device)
