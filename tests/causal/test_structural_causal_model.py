"""The structural causal model of variables of mixed kinds: likelihood, do(), draws."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import functional_call, stack_module_state, vmap

from intervae.causal.graph import CausalGraph
from intervae.causal.structural_causal_model import StructuralCausalModel
from intervae.data import Variable
from intervae.errors import DataError, QueryError
from normal_draws import draw_float32 as draw

# size -> smile, size + smile -> colour, colour -> weight -> grade; light on its own
VARIABLES = (
    Variable("grade", "categorical", high=3.0, ordered=True),
    Variable("weight"),
    Variable("light"),
    Variable("colour", "categorical", categories=("red", "green", "blue")),
    Variable("smile", "binary", categories=("no", "yes"), low=0.0),
    Variable("size"),
)
NAMES = tuple(variable.name for variable in VARIABLES)
EDGES = [
    ("size", "smile"),
    ("size", "colour"),
    ("smile", "colour"),
    ("colour", "weight"),
    ("weight", "grade"),
]
GRAPH = CausalGraph.from_edges(NAMES, EDGES)
COLUMN = {name: i for i, name in enumerate(NAMES)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_model(seed: int = 0) -> StructuralCausalModel:
    """Return a model with random mechanisms, which depend on their parents strongly."""
    torch.manual_seed(seed)
    model = StructuralCausalModel(GRAPH, VARIABLES, hidden=16)
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter += 0.5 * draw(*parameter.shape, seed=100 * seed + i)
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> StructuralCausalModel:
    return make_model()


@pytest.fixture(scope="module")
def values(model) -> Tensor:
    return model.sample(400, generator=seeded(1))


def changed(before: Tensor, after: Tensor) -> set[str]:
    """Return the variables with a value that differs in any bit."""
    return {name for name, i in COLUMN.items() if not torch.equal(before[:, i], after[:, i])}


# ---- do() ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_do_changes_descendants_only(model, values, name):
    i = COLUMN[name]
    target = {"smile": -values[:, i], "colour": (values[:, i] + 1) % 3}.get(
        name, (values[:, i] + 1) % 4 if name == "grade" else values[:, i] + 1
    )
    after = model.counterfactual(values, {name: target}, seeded())
    assert torch.equal(after[:, i], target)
    descendants = set(GRAPH.descendants(name))
    assert changed(values, after) <= {name, *descendants}
    assert {name, *GRAPH.children(name)} <= changed(values, after)


def test_an_empty_do_and_a_do_of_the_own_values_change_no_bit(model, values):
    assert torch.equal(model.counterfactual(values, {}), values)
    own = {name: values[:, i] for name, i in COLUMN.items()}
    for name in NAMES:
        assert torch.equal(model.counterfactual(values, {name: own[name]}), values)
    assert torch.equal(model.counterfactual(values, own), values)


def test_abduction_and_prediction_give_back_the_values(model, values):
    """Without the factual values, so that every mechanism is computed."""
    again = model.predict(model.abduct(values, seeded()))
    torch.testing.assert_close(again, values, rtol=1e-5, atol=2e-5)
    for name in ("grade", "colour", "smile"):
        assert torch.equal(again[:, COLUMN[name]], values[:, COLUMN[name]])


def test_noises_of_samples_are_recovered_by_abduction(model):
    noises = model.draw_noise(400, seeded(3))
    abducted = model.abduct(model.predict(noises), seeded())
    for name in ("size", "light", "weight"):
        torch.testing.assert_close(abducted[name], noises[name], rtol=0, atol=1e-4)


def test_several_soft_and_hard_actions_act_together(model, values):
    do = {"weight": lambda v: 2 * v + 1, "size": 0.5, "light": lambda v: v - 1}
    after = model.counterfactual(values, do, seeded())
    noises = model.abduct(values, seeded())
    without = model.predict(noises, model.actions({"size": 0.5}), values)
    assert (after[:, COLUMN["size"]] == 0.5).all()
    torch.testing.assert_close(
        after[:, COLUMN["weight"]], 2 * without[:, COLUMN["weight"]] + 1, rtol=1e-6, atol=1e-6
    )
    assert torch.equal(after[:, COLUMN["light"]], values[:, COLUMN["light"]] - 1)
    assert torch.equal(after, model.counterfactual(values, dict(reversed(do.items())), seeded()))


def test_categories_are_set_by_name_or_value(model, values):
    for word, value in (("red", 0.0), ("Blue", 2.0)):
        by_name = model.counterfactual(values, {"colour": word}, seeded())
        assert (by_name[:, COLUMN["colour"]] == value).all()
        assert torch.equal(by_name, model.counterfactual(values, {"colour": value}, seeded()))
    for word, value in (("no", -1.0), ("yes", 1.0)):
        assert (model.sample(5, {"smile": word})[:, COLUMN["smile"]] == value).all()


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ({"colour": 3}, "0 to 2"),
        ({"colour": 0.5}, "0 to 2"),
        ({"smile": 0}, "-1 or 1"),
        ({"colour": lambda v: v + 1}, "0 to 2"),
        ({"colour": "pink"}, "pink"),
        ({"hat": 1}, "hat"),
        ({"size": float("nan")}, "finite"),
    ],
)
def test_a_wrong_do_is_refused(model, values, do, message):
    with pytest.raises(QueryError, match=message):
        model.counterfactual(values, do)


def test_a_row_with_a_missing_value_has_no_counterfactual(model, values):
    holes = values.clone()
    holes[3, 1] = float("nan")
    with pytest.raises(QueryError, match="missing"):
        model.counterfactual(holes, {"size": 1.0})


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (CausalGraph.empty(("size", "image")), "image"),
        (CausalGraph.from_edges("ab", [("a", "b"), ("b", "a")]), "cycle"),
    ],
)
def test_a_graph_over_other_variables_or_with_a_cycle_is_refused(graph, message):
    names = ("a", "b") if "a" in graph.names else ("size", "weight")
    with pytest.raises(DataError, match=message):
        StructuralCausalModel(graph, [Variable(name) for name in names])


def test_the_graph_may_name_the_variables_in_another_order(model, values):
    torch.manual_seed(0)
    other = StructuralCausalModel(GRAPH.subgraph(NAMES[::-1]), VARIABLES, hidden=16)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.log_prob(values), model.log_prob(values))


# ---- draws --------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_draws(model, values):
    samples = [model.sample(50, {"size": 0.1}, seeded(seed)) for seed in (4, 4, 5)]
    answers = [model.counterfactual(values, {"size": -2.0}, seeded(seed)) for seed in (4, 4, 5)]
    for draws in (samples, answers):
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])


def test_sampling_under_do_leaves_the_causes_as_they_are(model):
    before, after = (model.sample(300, do, seeded()) for do in ({}, {"colour": "green"}))
    assert {"colour", "weight"} <= changed(before, after) <= {"colour", "weight", "grade"}


def test_samples_have_the_modelled_density(model):
    """E_p[q / (p + q)] = E_q[p / (p + q)] if samples and densities are of the same p and q."""
    other = make_model()
    with torch.no_grad():
        for i, parameter in enumerate(other.parameters()):
            parameter += 0.05 * draw(*parameter.shape, seed=1000 + i)
    sides = []
    for own, another in ((model, other), (other, model)):
        drawn = own.sample(100_000, generator=seeded(2))
        sides.append(torch.sigmoid((another.log_prob(drawn) - own.log_prob(drawn)).sum(1)).mean())
    assert sides[0].item() == pytest.approx(sides[1].item(), abs=0.003)
    assert 0.2 < sides[0] < 0.4  # 0 for models without overlap, 0.5 for equal ones


# ---- likelihood of rows with missing values -----------------------------------------------------
def test_a_mask_gives_the_log_prob_of_the_remaining_terms(model, values):
    mask = torch.rand(values.shape, generator=seeded()) < 0.6
    full = model.log_prob(values)
    masked = model.log_prob(values, mask)
    for name, i in COLUMN.items():
        columns = [i, *(COLUMN[parent] for parent in GRAPH.parents(name))]
        known = mask[:, columns].all(1)
        assert torch.equal(model.scored(mask)[:, i], known)
        torch.testing.assert_close(masked[known, i], full[known, i], rtol=1e-6, atol=1e-6)
        assert not masked[~known, i].any()
    holes = torch.where(mask, values, torch.nan)
    assert torch.equal(model.log_prob(holes), masked)
    assert torch.equal(model.log_prob(holes, mask), masked)


def test_missing_values_leave_gradients_finite(values):
    model = make_model().requires_grad_()
    holes = torch.where(torch.rand(values.shape, generator=seeded()) < 0.5, values, torch.nan)
    model.log_prob(holes).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_vmap_over_models_equals_a_loop(model, values):
    models = [make_model(seed) for seed in range(3)]
    tensors, _ = stack_module_state(models)
    mapped = vmap(lambda state: functional_call(model, state, (values,)))(tensors)
    looped = torch.stack([each.log_prob(values) for each in models])
    torch.testing.assert_close(mapped, looped, rtol=1e-4, atol=1e-4)


def test_nothing_but_do_reads_numbers_on_the_host(model):
    """Fake tensors have no numbers, so reading one is an error."""
    actions = {"size": lambda v: v + 1, "colour": torch.zeros_like}
    with FakeTensorMode(allow_non_fake_inputs=True):
        values = torch.empty(7, len(NAMES))
        assert model.log_prob(values).shape == values.shape
        assert model.predict(model.abduct(values), actions, values).shape == values.shape
        assert model.predict(model.draw_noise(7), actions).shape == values.shape
        with pytest.raises(DataDependentOutputException):
            model.counterfactual(values, {})


# ---- a known conditional distribution -----------------------------------------------------------
MORPHO = (
    Variable("digit", "categorical", categories=tuple("0123456789")),
    Variable("thickness"),
    Variable("intensity"),
)


def true_intensity(thickness: Tensor, noise: Tensor) -> Tensor:
    return 64 + 191 * torch.sigmoid(2 * (thickness - 2.5) + 0.5 * noise)


def draw_attributes(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Digit, thickness (a Gamma(10, rate 5) is a sum of exponentials) and noise, (n,) each."""
    generator = seeded(seed)
    uniform = torch.rand(n, 10, generator=generator).clamp(min=1e-7)
    digits = torch.randint(10, (n,), generator=generator).float()
    return digits, 0.5 - uniform.log().sum(1) / 5, torch.randn(n, generator=generator)


@pytest.fixture(scope="module")
def fitted() -> tuple[StructuralCausalModel, Tensor, Tensor]:
    """Model after 400 steps on 8,000 rows, and the means and scales (3,) of the columns."""
    torch.manual_seed(0)
    digit, thickness, noise = draw_attributes(8000, 0)
    rows = torch.stack([digit, thickness, true_intensity(thickness, noise)], dim=1)
    mean, std = rows.mean(0), rows.std(0)
    mean[0], std[0] = 0.0, 1.0
    rows = (rows - mean) / std
    graph = CausalGraph.from_edges([v.name for v in MORPHO], [("thickness", "intensity")])
    model = StructuralCausalModel(graph, MORPHO)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 400)
    generator = seeded(1)
    for _ in range(400):
        batch = rows[torch.randint(len(rows), (1024,), generator=generator)]
        optimiser.zero_grad()
        (-model.log_prob(batch).sum(1).mean()).backward()
        optimiser.step()
        schedule.step()
    return model.requires_grad_(False), mean, std


def test_fitted_flow_has_the_true_conditional_quantiles(fitted):
    model, mean, std = fitted
    levels = torch.tensor([-1.645, -0.674, 0.0, 0.674, 1.645])  # 5, 25, 50, 75 and 95 %
    for thickness in (1.5, 2.0, 2.5, 3.0, 4.0):
        parents = ((torch.tensor(thickness) - mean[1]) / std[1]).expand(5, 1)
        quantiles = model.mechanism("intensity").predict(levels, parents) * std[2] + mean[2]
        expected = true_intensity(torch.tensor(thickness), levels)
        torch.testing.assert_close(quantiles, expected, rtol=0, atol=3.0)  # of 191


def test_fitted_root_has_the_true_quantiles(fitted):
    model, mean, std = fitted
    drawn = model.sample(50_000, generator=seeded(3))[:, 1] * std[1] + mean[1]
    _, expected, _ = draw_attributes(50_000, 4)
    levels = torch.tensor([0.02, 0.1, 0.5, 0.9, 0.98])
    torch.testing.assert_close(drawn.quantile(levels), expected.quantile(levels), rtol=0, atol=0.06)


def test_fitted_counterfactual_of_thickness_is_the_closed_form(fitted):
    model, mean, std = fitted
    digit, thickness, noise = draw_attributes(4000, 7)
    rows = torch.stack([digit, thickness, true_intensity(thickness, noise)], dim=1)
    rows = (rows - mean) / std
    _, target, _ = draw_attributes(4000, 8)
    do = {"thickness": (target - mean[1]) / std[1]}
    after = model.counterfactual(rows, do) * std + mean
    error = (after[:, 2] - true_intensity(target, noise)).abs()
    nothing = (true_intensity(thickness, noise) - true_intensity(target, noise)).abs()
    assert error.mean() < 1.0  # doing nothing is off by 50
    assert nothing.mean() > 40
    assert torch.equal(after[:, 0], digit)
