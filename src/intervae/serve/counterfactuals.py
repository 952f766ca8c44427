"""Pictures under do(): one or several, a sweep of one variable, several runs side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from intervae.causal.do import Change
from intervae.errors import IntervaeError, QueryError, unknown
from intervae.metrics.image_similarity import pixel_mae
from intervae.models.capabilities import Counterfactual, HasGraph
from intervae.serve import answers
from intervae.serve.describe import can, settable_variables
from intervae.serve.inputs import InputPictures, read_do, read_pictures
from intervae.serve.pictures import as_floats, heat_png, signed_png, to_png, to_pngs
from intervae.serve.repeat_code import cli_do, extra_arguments, model_lines, python_do, repeat
from intervae.serve.schemas import Code, CompareRequest, InterventionRequest, SweepRequest
from intervae.serve.values import (
    Values,
    measure_values,
    reading_notes,
    true_counterfactual,
    value_answers,
)

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun

Do = Mapping[str, float | Change]


def intervene(run: ServedRun, request: InterventionRequest) -> answers.InterventionAnswer:
    """Answer POST do."""
    start = time.perf_counter()
    pictures, do = read_pictures(run, request.pictures), read_do(run, request.do)
    after = counterfactual(run, pictures, do)
    values = measure_values(run, pictures, do, after)
    truth = true_counterfactual(run, pictures, do)
    results = [
        _answer(run, pictures, i, after, truth.images, truth.error, values, truth.values)
        for i in range(len(after))
    ]
    warnings = range_warnings(run, do, values)
    hard = [name for name, value in do.items() if not callable(value)]
    names = [variable.name for variable, _, _ in settable_variables(run)]
    graph = run.model.graph if isinstance(run.model, HasGraph) else None
    reached = set() if graph is None else {d for name in do for d in graph.descendants(name)}
    return answers.InterventionAnswer(
        run=run.number,
        answers=results,
        set=list(do),
        changed=[name for name in names if name in reached and name not in do],
        cut=[] if graph is None else [(c, name) for name in hard for c in graph.parents(name)],
        notes=[
            f"{name}={value:.4g} {text}; the image extrapolates."
            for name, (value, text) in warnings.items()
        ]
        + reading_notes(run, do, values, bool(warnings)),
        warnings={name: text for name, (_, text) in warnings.items()},
        milliseconds=1000 * (time.perf_counter() - start),
        code=do_code(run, request.pictures, pictures, do),
    )


def counterfactual(run: ServedRun, pictures: InputPictures, do: Mapping[str, Any]) -> torch.Tensor:
    """Return the model's counterfactuals (B, C, H, W) of pictures."""
    if not can(run.model, Counterfactual) or run.model.spec.frames is not None:
        raise QueryError(f"{run.model.name} answers no do() on pictures; see its capabilities.")
    return run.model.counterfactual(pictures.images, do, **pictures.options).cpu()


def _answer(
    run: ServedRun,
    pictures: InputPictures,
    i: int,
    after: torch.Tensor,
    truth: np.ndarray | None,
    truth_error: str | None,
    values: Values,
    true_values: Values,
) -> answers.CounterfactualAnswer:
    """Return the answer for picture i."""
    factual = pictures.images[i]
    difference, largest, errors = None, None, None
    if truth is not None:
        difference, largest = signed_png(after[i], truth[i])
        errors = answers.PixelErrors(
            pixel_mae=mean_error(after[i], truth[i]),
            identity_pixel_mae=mean_error(factual, truth[i]),
        )
    change, change_max = signed_png(after[i], factual)
    return answers.CounterfactualAnswer(
        factual=to_png(factual),
        counterfactual=to_png(after[i]),
        truth=None if truth is None else to_png(truth[i]),
        truth_error=truth_error,
        difference=difference,
        difference_max=largest,
        change=change,
        change_max=change_max,
        errors=errors,
        values=value_answers(run, i, values, true_values),
    )


def mean_error(image: Any, truth: Any) -> float:
    """Return the mean |image - truth| of (C, H, W), pixel values in [0, 1]."""
    return float(pixel_mae(as_floats(image)[None], as_floats(truth)[None]).mean())


def range_warnings(run: ServedRun, do: Do, values: Values) -> dict[str, tuple[float, str]]:
    """Return name -> (value, why it is outside the training data) of what do() sets."""
    warnings = {}
    for variable, _, known in settable_variables(run):
        value = do.get(variable.name)
        if value is None or not known:
            continue
        targets = values.after.get(variable.name, np.zeros(0)) if callable(value) else [value]
        for target in map(float, targets):
            if variable.range_warning(target):
                warnings[variable.name] = (target, variable.range_warning(target))
                break
    return warnings


def do_code(run: ServedRun, requested: Sequence[Any], pictures: InputPictures, do: Do) -> Code:
    extra = extra_arguments(pictures.options)
    query = f"pictures = model.counterfactual(images, do={python_do(do)}{extra})"
    command = f"intervene {{run}} {{picture}}{cli_do(do)}" if do else None
    return repeat(run, requested, query, command)


# ---- sweep -------------------------------------------------------------------------------------
def sweep(run: ServedRun, request: SweepRequest) -> answers.SweepAnswer:
    """Answer POST sweep: one picture with a variable set to each of several values."""
    start = time.perf_counter()
    known = {variable.name: variable for variable, _, _ in settable_variables(run)}
    if request.variable not in known:
        raise unknown("variable", request.variable, known, QueryError)
    variable = known[request.variable]
    numbers = request.values
    if numbers is None and variable.kind != "continuous":
        numbers = [float(code) for code in range(round(variable.high) + 1)][:64]
    elif numbers is None:
        numbers = np.linspace(variable.low, variable.high, request.count).tolist()
    others = {k: v for k, v in read_do(run, request.do).items() if k != variable.name}
    single = read_pictures(run, [request.picture])
    pictures = single.repeated(len(numbers))
    do = {**others, variable.name: np.array(numbers)}
    after = counterfactual(run, pictures, do)
    truth = true_counterfactual(run, pictures, do)
    errors = None
    if truth.images is not None:
        errors = pixel_mae(as_floats(after), as_floats(truth.images)).tolist()
    values = measure_values(run, pictures, do)
    query = (
        f"values = {[round(v, 6) for v in numbers]}\n"
        f"pictures = [model.counterfactual(images, do={{**{python_do(others)}, {variable.name!r}: "
        f"v}}{extra_arguments(single.options)}) for v in values]"
    )
    return answers.SweepAnswer(
        run=run.number,
        variable=variable.name,
        values=numbers,
        texts=[variable.format_value(v) if variable.categories else f"{v:.4g}" for v in numbers],
        frames=to_pngs(after),
        truth=None if truth.images is None else to_pngs(truth.images),
        pixel_mae=errors,
        measured={name: column.tolist() for name, column in values.after.items()},
        milliseconds=1000 * (time.perf_counter() - start),
        code=repeat(run, [request.picture], query, None),
    )


# ---- several runs ------------------------------------------------------------------------------
class Compared(NamedTuple):
    """One run's answer to POST compare; without `image` and `line` it is an error."""

    answer: answers.ComparedAnswer
    image: np.ndarray | None = None  # (C, H, W)
    line: str = ""  # Python that gives the picture


def compare_one(run: ServedRun, first: ServedRun, request: CompareRequest) -> Compared:
    """Return one run's answer to POST compare; errors are answers.

    A picture of the test split is that of the first run, so that all runs answer the same.
    """
    try:
        pictures = read_pictures(first, [request.picture])
        if run.model.spec.image_shape != first.model.spec.image_shape:
            raise QueryError(
                f"{run.description.name} was trained on pictures of another shape than "
                f"{first.description.name}."
            )
        if run is not first and pictures.rows is not None:
            labels = run.model.needs_labels or run.model.counterfactual_takes_labels
            if labels and run.model.spec.names != first.model.spec.names:
                raise QueryError(f"{run.description.name} has other variables.")
            options = {"labels": pictures.rows.labels} if labels else {}
            pictures = InputPictures(pictures.images, pictures.rows, options)
        do = read_do(run, request.do)
        after = counterfactual(run, pictures, do)
        values = measure_values(run, pictures, do)
        truth = true_counterfactual(first, pictures, do)
    except IntervaeError as error:
        return Compared(answers.ComparedAnswer(run=run.number, error=str(error)))
    answer = answers.ComparedAnswer(
        run=run.number,
        counterfactual=to_png(after[0]),
        pixel_mae=None if truth.images is None else mean_error(after[0], truth.images[0]),
        values=value_answers(run, 0, values, truth.values),
    )
    model = "model" if run.folder is None else f"intervae.load({str(run.folder)!r})"
    line = f"{model}.counterfactual(images, do{extra_arguments(pictures.options)})"
    return Compared(answer, as_floats(after[0]), line)


def join_compared(
    first: ServedRun, request: CompareRequest, results: Sequence[Compared]
) -> answers.CompareAnswer:
    """Join the answers of several runs: their mean, and their standard deviation as a map."""
    pictures, truth = read_pictures(first, [request.picture]), None
    try:
        do = read_do(first, request.do)
        truth = true_counterfactual(first, pictures, do).images
    except IntervaeError:  # the answer of the first run says why
        do = {}
    images = [each.image for each in results if each.image is not None]
    mean, std = None, None
    if len(images) > 1:
        stack = np.stack(images)  # (runs, C, H, W)
        mean, std = stack.mean(0), stack.std(0, ddof=1).mean(0)
    return answers.CompareAnswer(
        answers=[each.answer for each in results],
        factual=to_png(pictures.images[0]),
        truth=None if truth is None else to_png(truth[0]),
        mean=None if mean is None else to_png(mean),
        std=None if std is None else heat_png(std),
        std_max=None if std is None else float(std.max()),
        std_mean=None if std is None else float(std.mean()),
        code=_compare_code(first, request, do, results),
    )


def _compare_code(
    first: ServedRun, request: CompareRequest, do: Do, results: Sequence[Compared]
) -> Code:
    pictures = [f"    {each.line}," for each in results if each.line]
    query = "\n".join([f"do = {python_do(do)}", "pictures = [", *pictures, "]"])
    code = repeat(first, [request.picture], query, None).python
    if first.folder is not None:  # each line loads its own model
        code = code.replace("\n".join(model_lines(first)) + "\n", "import intervae\n\n", 1)
    return Code(python=code, cli=None)
