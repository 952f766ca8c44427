import itertools

import numpy as np
import pytest
import torch

from intervae.causal.do import abduct, act, parse_do, predict
from intervae.causal.graph import CausalGraph
from intervae.errors import QueryError

# a -> b -> d, a -> c, and e on its own
GRAPH = CausalGraph.from_edges("abcde", [("a", "b"), ("b", "d"), ("a", "c")])
NOISE = {name: np.array([1.0, 2.0, 3.0]) * 10**power for power, name in enumerate("abcde")}


def mechanism(name: str, values: dict) -> np.ndarray:
    """Twice the sum of the parents."""
    return 2 * sum((values[parent] for parent in GRAPH.parents(name)), start=np.zeros(3))


def equation(name: str, values: dict) -> np.ndarray:
    return mechanism(name, values) + NOISE[name]


def factual() -> dict:
    values: dict = {}
    for name in GRAPH.topological_order:
        values[name] = equation(name, values)
    return values


def counterfactual(do: dict, values: dict | None = None) -> dict:
    return predict(GRAPH, equation, act(do, GRAPH.names), values or factual())


# ---- abduct -------------------------------------------------------------------------------------
def test_abduction_recovers_the_noises():
    noises = abduct(factual(), mechanism)
    assert noises.keys() == NOISE.keys()
    assert all(np.array_equal(noises[name], NOISE[name]) for name in NOISE)


def test_the_three_steps_without_do_give_back_the_values():
    noises = abduct(factual(), mechanism)
    again = predict(GRAPH, lambda name, values: mechanism(name, values) + noises[name], act({}, ()))
    assert all(np.array_equal(again[name], value) for name, value in factual().items())


# ---- predict ------------------------------------------------------------------------------------
def test_hard_intervention_reaches_the_descendants_with_their_own_noise():
    after = counterfactual({"b": 7.0})
    assert after["b"].tolist() == [7.0, 7.0, 7.0]
    assert after["d"].tolist() == [14.0 + noise for noise in NOISE["d"]]


def test_a_hard_intervention_cuts_the_variable_from_its_causes():
    after = counterfactual({"a": 5.0, "b": 7.0})
    assert after["b"].tolist() == [7.0, 7.0, 7.0]
    assert after["c"].tolist() == [10.0 + noise for noise in NOISE["c"]]


def test_a_non_descendant_stays_the_same_object():
    before = factual()
    after = counterfactual({"b": 7.0}, before)
    assert all(after[name] is before[name] for name in "ace")
    assert all(after[name] is not before[name] for name in "bd")
    assert all(
        np.array_equal(before[name], value) for name, value in factual().items()
    )  # and the input dict is untouched


def test_an_empty_do_changes_nothing():
    before = factual()
    for do in (None, {}):
        after = predict(GRAPH, equation, act(do, GRAPH.names), before)
        assert after is not before
        assert all(after[name] is before[name] for name in GRAPH.names)


def test_soft_intervention_changes_the_value_the_variable_would_have_had():
    after = counterfactual({"b": lambda v: v + 5})
    assert np.array_equal(after["b"], factual()["b"] + 5)
    assert np.array_equal(after["d"], factual()["d"] + 10)
    both = counterfactual(
        {"a": 0.0, "b": lambda v: v + 5}
    )  # b is recomputed under a = 0 first, then shifted
    assert np.array_equal(both["b"], NOISE["b"] + 5)


def test_order_of_the_dict_does_not_matter():
    do = {"a": 4.0, "d": lambda v: v * 2, "b": np.array([1.0, 2.0, 3.0]), "e": -1.0}
    results = [counterfactual(dict(order)) for order in itertools.permutations(do.items())]
    for result in results[1:]:
        assert all(np.array_equal(result[name], results[0][name]) for name in GRAPH.names)
    assert results[0]["d"].tolist() == [
        2 * (2 * b + noise) for b, noise in zip([1.0, 2.0, 3.0], NOISE["d"], strict=True)
    ]


def test_only_descendants_are_recomputed_and_once():
    computed = []

    def recompute(name, values):
        computed.append(name)
        return equation(name, values)

    predict(GRAPH, recompute, act({"a": 0.0}, GRAPH.names), factual())
    assert sorted(computed) == ["b", "c", "d"]
    computed.clear()
    predict(GRAPH, recompute, act({"e": 0.0}, GRAPH.names), factual())
    assert computed == []


# ---- act ----------------------------------------------------------------------------------------
def test_one_value_per_sample():
    for values in (
        [1.0, 2.0, 3.0],
        np.array([1, 2, 3]),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
    ):
        assert counterfactual({"b": values})["b"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_wrong_number_of_values_is_refused(count):
    with pytest.raises(QueryError, match=rf"do\(b=...\) has {count} values for 3 samples"):
        counterfactual({"b": np.zeros(count)})


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(QueryError, match=r"'ligth'.*did you mean 'light'\?.*Known: light, shadow"):
        act({"ligth": 1.0}, ["shadow", "light"])
    with pytest.raises(QueryError, match="known: light, shadow"):
        act({"zzz": 1.0}, ["shadow", "light"])


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [1.0, float("nan"), 2.0], torch.tensor(float("nan")), None],
)
def test_a_value_that_is_not_finite_is_refused_at_once(value):
    with pytest.raises(QueryError, match="not finite"):
        act({"b": value}, GRAPH.names)


@pytest.mark.parametrize("value", ["bright", {"a": 1}, 1 + 2j, [[1.0], [2.0, 3.0]]])
def test_a_value_that_is_no_number_is_refused_at_once(value):
    with pytest.raises(QueryError, match="not a number"):
        act({"b": value}, GRAPH.names)


def test_a_table_of_values_is_refused():
    with pytest.raises(QueryError, match=r"shape \(3, 1\)"):
        act({"b": np.zeros((3, 1))}, GRAPH.names)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v: v[:2], r"returned shape \(2,\) for \(3,\) values"),
        (lambda v: v * np.nan, "not finite"),
        (lambda v: None, "not finite"),
        (lambda v: "much", "not a number"),
        (lambda v: v[:, None], r"shape \(3, 1\)"),
    ],
)
def test_the_result_of_a_callable_is_checked(function, message):
    with pytest.raises(QueryError, match=f"'b'.*{message}"):
        counterfactual({"b": function})


def test_a_callable_may_return_one_number_or_a_tensor_for_an_array():
    assert counterfactual({"b": lambda v: 3})["b"].tolist() == [3.0, 3.0, 3.0]
    after = counterfactual({"b": lambda v: torch.as_tensor(v) + 1})["b"]
    assert isinstance(after, np.ndarray)
    assert np.array_equal(after, factual()["b"] + 1)


def test_a_callable_that_works_in_place_does_not_touch_the_factual_value():
    def in_place(values):
        values += 5
        return values

    before = factual()
    after = counterfactual({"b": in_place}, before)
    assert np.array_equal(after["b"], factual()["b"] + 5)
    assert np.array_equal(before["b"], factual()["b"])
    tensor = torch.zeros(3)
    assert act({"b": in_place}, "b")["b"](tensor).tolist() == [5.0, 5.0, 5.0]
    assert tensor.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "value",
    [2.5, np.full(3, 2.5), torch.full((3,), 2.5), lambda v: 2.5, lambda v: v.double() * 0 + 2.5],
)
def test_tensors_stay_tensors_of_their_dtype(dtype, value):
    after = act({"b": value}, "b")["b"](torch.zeros(3, dtype=dtype))
    assert after.dtype == dtype
    assert after.tolist() == [2.5, 2.5, 2.5]


@pytest.mark.parametrize("value", [2.5, np.full(3, 2.5), lambda v: 2.5, lambda v: v + 2.5])
def test_arrays_keep_a_floating_dtype_and_integers_become_floats(value):
    change = act({"b": value}, "b")["b"]
    assert change(np.zeros(3, dtype=np.float32)).dtype == np.float32
    assert change(np.zeros(3, dtype=np.int64)).tolist() == [2.5, 2.5, 2.5]
    assert change(torch.zeros(3, dtype=torch.int64)).tolist() == [2.5, 2.5, 2.5]


def test_gradients_flow_through_a_soft_intervention():
    current = torch.ones(3, requires_grad=True)
    act({"b": lambda v: 3 * v}, "b")["b"](current).sum().backward()
    assert current.grad.tolist() == [3.0, 3.0, 3.0]


def test_the_result_of_a_hard_intervention_can_be_written_to():
    target = np.array([1.0, 2.0, 3.0])
    after = act({"b": target}, "b")["b"](np.zeros(3))
    after[0] = 9
    assert target.tolist() == [1.0, 2.0, 3.0]
    spread = act({"b": 1.0}, "b")["b"](torch.zeros(3))
    spread[0] = 9  # not three views of one number
    assert spread.tolist() == [9.0, 1.0, 1.0]


# ---- categories ---------------------------------------------------------------------------------
CATEGORIES = {"b": ("Left", "right"), "e": ("1", "2"), "a": ()}


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("b", "Left", 0),
        ("b", " right ", 1),
        ("b", "RIGHT", 1),
        ("b", "1", 1),
        ("b", "0.5", 0.5),
        ("e", "1", 0),
        ("e", "2", 1),
    ],
)
def test_a_category_stands_for_its_code_and_a_number_for_itself(name, text, code):
    assert act({name: text}, GRAPH.names, CATEGORIES)[name](np.zeros(3)).tolist() == [code] * 3
    assert parse_do([f"{name}={text}"], CATEGORIES) == {name: code}


def test_categories_that_differ_only_in_case_are_matched_exactly():
    cases = {"b": ("m", "M")}
    assert parse_do(["b=M"], cases) == {"b": 1}
    assert parse_do(["b=m"], cases) == {"b": 0}


def test_an_unknown_category_lists_the_known_ones():
    for call in (
        lambda: act({"b": "rigth"}, GRAPH.names, CATEGORIES),
        lambda: parse_do(["b=rigth"], CATEGORIES),
    ):
        with pytest.raises(
            QueryError,
            match=r"category of 'b' in do\(\) 'rigth'; did you mean 'right'\? Known: Left, right",
        ):
            call()
    for call in (
        lambda: act({"a": "much"}, GRAPH.names, CATEGORIES),
        lambda: parse_do(["a=much"], CATEGORIES),
    ):
        with pytest.raises(QueryError, match=r"'much'.* is not a number"):
            call()


# ---- the command line ---------------------------------------------------------------------------
def test_parse_do():
    assert parse_do(["light=40", " pendulum = -1e1 "]) == {"light": 40.0, "pendulum": -10.0}
    assert parse_do([]) == {}


def test_plus_and_times_change_a_value_and_minus_sets_one():
    do = parse_do(["a=+1", "b=+-3", "c=*1.5", "d=-3", "e=* -2"])
    after = counterfactual(do)
    before = factual()
    np.testing.assert_array_equal(after["a"], before["a"] + 1)
    np.testing.assert_array_equal(after["b"], before["b"] + 2 - 3)  # its cause a moved it by 2
    np.testing.assert_array_equal(after["c"], (before["c"] + 2) * 1.5)
    np.testing.assert_array_equal(after["d"], [-3, -3, -3])
    np.testing.assert_array_equal(after["e"], -2 * before["e"])
    assert [str(do[name]) for name in "abc"] == ["+1", "+-3", "*1.5"]
    in_python = counterfactual({"a": "+1", "b": "+-3", "c": "*1.5", "d": "-3", "e": "* -2"})
    for name in "abcde":
        np.testing.assert_array_equal(in_python[name], after[name])


def test_categories_are_not_added_or_multiplied():
    for text in ("+1", "*2", "+left"):
        with pytest.raises(QueryError, match=r"'b' has categories.*one of Left, right"):
            parse_do([f"b={text}"], CATEGORIES)
    assert parse_do(["b=+1"], {"b": ("-1", "+1")}) == {"b": 1.0}
    for text in ("+", "*much", "+nan"):
        with pytest.raises(QueryError, match=r"--do 'a=.*(not a number|finite)"):
            parse_do([f"a={text}"])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["light=+much"], "not a number"),
        (["light=+1", "light=2"], "'light' twice"),
        (["light"], "name=value"),
        (["=3"], "name=value"),
        (["light="], "not a number"),
        (["light=bright"], "'bright' is not a number"),
        (["light=4=5"], "not a number"),
        (["light=nan"], "finite"),
        (["light=-inf"], "finite"),
        (["light=1", "light=2"], "'light' twice"),
    ],
)
def test_parse_do_says_what_is_wrong(texts, message):
    with pytest.raises(QueryError, match=message):
        parse_do(texts)
