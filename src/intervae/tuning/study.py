"""The trials of a search: asked of Optuna, trained in run folders, stored in SQLite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intervae.data import Dataset
from intervae.errors import DataError, RunError, TrainingError, UsageError, unknown
from intervae.files import as_path, only_writer
from intervae.memory import is_out_of_memory
from intervae.models import MODELS, create
from intervae.models.checks import check_data
from intervae.settings import check_seed, check_whole
from intervae.training import fit
from intervae.tuning.objective import SearchObjective, without_test
from intervae.tuning.results import Search, Trial, setting_text, trial_folder, write_search
from intervae.tuning.space import Choices, Space, check_values, default_search, parse_search

if TYPE_CHECKING:
    import optuna

NAME = "intervae"  # of the study in study.db
RANDOM_TRIALS = 8  # before the sampler learns from the trials
MISSING = "a search needs optuna; install it with pip install 'intervae[tune]'."


def tune(
    model: str,
    data: Dataset,
    *,
    budget: int,
    out: str | Path,
    search: Mapping[str, str] | None = None,
    metric: str = "",
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    preset: str | None = None,
    command: str = "",
    notify: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Search:
    """Search settings of a model by `budget` trainings; the test split is never read.

    The same call goes on where an earlier one ended: finished trials stay, and a trial that was
    interrupted is resumed. Its trials are those of an uninterrupted search.

    Arguments:
        model: a registered name.
        budget: number of trials, those of earlier calls included.
        out: folder of study.db (SQLite), trials.json, search.png and one run folder per trial.
        search: setting -> `LOW:HIGH`, `log:LOW:HIGH` or `A|B|C`; by default the model's own.
        metric: a metric, measured on the validation split; by default the validation loss.
        overwrite: replace a search in `out`; its run folders are trained again.
        preset: settings to start from, as in `create`; the fixed and the searched ones override it.
        command: the start of `Search.command`, `intervae train MODEL --data ...`.
        notify: called with a line of text after each trial.
        settings: settings of the model and of its training that stay fixed.
    """
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    check_data(data)
    check_whole(1, budget=budget)
    folder, seed, objective = as_path(out, "out"), check_seed(seed), SearchObjective(metric)
    space = parse_search(MODELS[model], search or default_search(MODELS[model]))
    if not space:
        raise UsageError(f"{model} has no default search; name settings with --search NAME=...")
    if twice := sorted(space.keys() & settings.keys()):
        raise UsageError(f"{twice[0]} is both fixed and searched; give only one of the two.")
    model_settings = check_values(MODELS[model], settings)[0]
    objective.check(create(model, data, preset=preset, **model_settings))
    runner = _Runner(model, without_test(data), objective, seed, device, settings, preset)
    command = command or f"intervae train {model} --data {data.name}"
    command += f" --preset {preset}" if preset is not None else ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made ({error.strerror}); choose another.") from None
    with only_writer(folder):
        study = _open_study(folder, overwrite)
        _check_same_search(study, folder, _description(runner, space, data))
        while (trial := _next_trial(study, space, seed, budget)) is not None:
            result = _run_trial(study, trial, folder, runner)
            if result.value is not None:  # so that they are there after Ctrl-C
                write_search(study, folder, f"{command} --seed {seed}", settings)
            value = f"failed: {result.reason}" if result.value is None else f"{result.value:.6g}"
            words = ", ".join(f"{k}={setting_text(v)}" for k, v in result.settings.items())
            notify(f"trial {result.number + 1} of {budget}: {words}: {value}")
        return write_search(study, folder, f"{command} --seed {seed}", settings)


@dataclass(frozen=True)
class _Runner:
    """What all trials share."""

    model: str
    data: Dataset
    objective: SearchObjective
    seed: int
    device: str
    fixed: Mapping[str, Any]
    preset: str | None = None

    def run(self, settings: Mapping[str, Any], folder: Path) -> tuple[float, bool]:
        """Train one trial, or resume it, and return its number and whether higher is better."""
        model_settings, options = check_values(MODELS[self.model], {**self.fixed, **settings})
        net = create(self.model, self.data, seed=self.seed, preset=self.preset, **model_settings)
        resume = (folder / "config.json").is_file()
        result = fit(
            net,
            self.data,
            seed=self.seed,
            out=folder,
            device=self.device,
            resume=resume,
            **{"tensorboard": False, **options},
        )
        return self.objective.measure(net, self.data, result.history)


# ---- the study -----------------------------------------------------------------------------------
def _open_study(folder: Path, overwrite: bool) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise UsageError(MISSING) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / "study.db"
    if overwrite:
        path.unlink(missing_ok=True)
        for config in folder.glob("trial-*/config.json"):
            shutil.rmtree(config.parent)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
        return optuna.create_study(storage=storage, study_name=NAME, load_if_exists=True)
    except Exception as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise RunError(
            f"{path} is not a search of intervae or is damaged ({reason}); start again with "
            "overwrite=True (--overwrite), or choose another out= (--out)."
        ) from None


def _description(runner: _Runner, space: Space, data: Dataset) -> dict[str, Any]:
    """Return what must be equal for a search to go on, as JSON has it."""
    fixed = {name: str(value) for name, value in sorted(runner.fixed.items())}
    description = {
        "model": runner.model,
        "data": data.name,
        "source": dict(data.source),
        "search": {name: asdict(domain) for name, domain in space.items()},
        "objective": runner.objective.name,
        "seed": runner.seed,
        "settings": fixed,
        "preset": runner.preset,
    }
    return dict(json.loads(json.dumps(description, default=str)))


def _check_same_search(study: optuna.Study, folder: Path, description: dict[str, Any]) -> None:
    """Store the description of a new search; raise a RunError for another one in the folder."""
    stored = study.user_attrs.get("search")
    if stored is None:
        study.set_user_attr("search", description)
        return
    changed = [name for name, value in description.items() if stored.get(name) != value]
    if changed:
        raise RunError(
            f"{folder} holds a search with another {changed[0]}; give the same command to go on, "
            "start again with overwrite=True (--overwrite), or choose another out= (--out)."
        )


def _next_trial(
    study: optuna.Study, space: Space, seed: int, budget: int
) -> optuna.trial.FrozenTrial | None:
    """Return the interrupted trial if there is one, else a new one; None after the budget.

    The sampler of each trial is seeded by its position, so that a search in several parts draws
    the settings of an uninterrupted one.
    """
    import optuna

    distributions = {name: _distribution(domain) for name, domain in space.items()}
    complete = 0
    for trial in study.get_trials(deepcopy=False):
        if trial.state != optuna.trial.TrialState.RUNNING:
            complete += trial.params.keys() == space.keys()
        elif trial.params.keys() == space.keys():
            return trial
        else:  # killed while its settings were drawn
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if complete >= budget:
        return None
    study.sampler = optuna.samplers.TPESampler(
        seed=int(np.random.SeedSequence([seed, complete]).generate_state(1)[0]),
        n_startup_trials=RANDOM_TRIALS,
    )
    number = study.ask(distributions).number
    return study.get_trials(deepcopy=False)[number]


def _distribution(domain: Any) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.values)
    if domain.whole:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)


def _run_trial(
    study: optuna.Study, trial: optuna.trial.FrozenTrial, folder: Path, runner: _Runner
) -> Trial:
    """Run a trial and store its number; Ctrl-C leaves it to the next call."""
    import optuna

    place = trial_folder(folder, trial.number)
    try:
        value, higher = runner.run(trial.params, place)
    except (TrainingError, UsageError, DataError, MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | RuntimeError) and not is_out_of_memory(error):
            raise
        reason = "not enough memory" if is_out_of_memory(error) else str(error)
        study.set_user_attr(f"reason {trial.number}", reason)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return Trial(trial.number, trial.params, place, None, reason)
    study.set_user_attr("higher_is_better", higher)
    study.tell(trial.number, -value if higher else value)
    return Trial(trial.number, trial.params, place, value)
