"""Settings from Python values and from command-line texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from intervae.errors import UsageError
from intervae.models import MODELS
from intervae.settings import build_settings, parse_settings, split_settings


@dataclass(frozen=True)
class Cake:
    eggs: int = 3
    sugar: float = 0.5
    shape: Literal["round", "square"] = "round"
    layers: tuple[int, ...] = (1, 2)
    baked: bool = False
    candles: int | None = 4
    name: str = "cake"


@dataclass(frozen=True)
class Oven:
    heat: float = 180.0
    fan: bool = True


def test_texts_become_the_types_of_the_fields() -> None:
    texts = {
        "eggs": "2",
        "sugar": "1e-3",
        "shape": "square",
        "layers": "8, 16,32",
        "baked": "yes",
        "candles": "7",
        "name": "5",
    }
    assert build_settings(Cake, texts) == Cake(2, 0.001, "square", (8, 16, 32), True, 7, "5")


def test_python_values_keep_their_meaning_and_json_lists_become_tuples() -> None:
    cake = build_settings(Cake, {"eggs": 2.0, "layers": [4, 5], "sugar": 1, "candles": None})
    assert cake == Cake(eggs=2, layers=(4, 5), sugar=1.0, candles=None)
    assert isinstance(cake.eggs, int)
    assert isinstance(cake.sugar, float)


@pytest.mark.parametrize("text", ["none", "None", None])
def test_an_optional_setting_can_be_switched_off(text: Any) -> None:
    assert build_settings(Cake, {"candles": text}).candles is None


@pytest.mark.parametrize("text", ["(8,16)", "[8, 16]", "8,16"])
def test_lists_may_have_brackets(text: str) -> None:
    assert build_settings(Cake, {"layers": text}).layers == (8, 16)


@pytest.mark.parametrize("text", ["", "()", "[ ]", []])
def test_lists_may_be_empty(text: Any) -> None:
    assert build_settings(Cake, {"layers": text}).layers == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("ON", True),
        ("1", True),
        (True, True),
        ("no", False),
        ("off", False),
        ("0", False),
    ],
)
def test_truth_values(text: Any, value: bool) -> None:
    assert build_settings(Cake, {"baked": text}).baked is value


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"egs": 2}, ["egs", "eggs"]),
        ({"eggs": "many"}, ["eggs", "many", "number"]),
        ({"eggs": 2.5}, ["eggs", "2.5", "whole"]),
        ({"eggs": True}, ["eggs", "True", "number"]),
        ({"eggs": None}, ["eggs", "None", "number"]),
        ({"sugar": "nan"}, ["sugar", "finite"]),
        ({"sugar": float("inf")}, ["sugar", "finite"]),
        ({"sugar": 10**400}, ["sugar", "number"]),
        ({"shape": "oval"}, ["shape", "oval", "round", "square"]),
        ({"layers": 8}, ["layers", "8", "comma"]),
        ({"layers": "8,x"}, ["layers", "x", "number"]),
        ({"layers": "8,"}, ["layers", "number"]),
        ({"layers": 0}, ["layers", "0", "comma"]),
        ({"baked": "maybe"}, ["baked", "maybe", "true or false"]),
        ({"name": 5}, ["name", "5", "text"]),
    ],
)
def test_an_error_has_the_name_the_value_and_a_remedy(
    values: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        build_settings(Cake, values)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_flat_settings_are_split_among_dataclasses() -> None:
    assert split_settings({"heat": 200, "eggs": 1, "fan": False}, Cake, Oven) == [
        {"eggs": 1},
        {"heat": 200, "fan": False},
    ]
    with pytest.raises(UsageError, match=r"heet.*did you mean 'heat'"):
        split_settings({"heet": 200}, Cake, Oven)


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        ("beta-vae", {"beta": -1.0}),
        ("beta-vae", {"capacity": -1.0}),
        ("beta-vae", {"capacity_steps": 0}),
        ("ladder-vae", {"warm_up": -1}),
        ("ladder-vae", {"importance_samples": 0}),
        ("dc-ign", {"bins": 0}),
        ("dc-ign", {"invariance_strength": -0.5}),
        ("info-gan", {"noise": -1}),
        ("info-gan", {"code_hidden": 0}),
        ("causal-gan", {"penalty_weight": -1.0}),
        ("causal-gan", {"anti_labeler_steps": 0.0}),
        ("causal-gan", {"momentum": 1.0}),
        ("ica", {"tolerance": 0.0}),
        ("ica", {"iterations": 0}),
    ],
)
def test_only_the_wrong_setting_is_named(model: str, wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=rf"^{name}={value} must be [^=]+\.$"):
        build_settings(MODELS[model].Settings, wrong)


def test_key_value_texts() -> None:
    assert parse_settings(["dims=2", " network = mlp ", "note=a=b"]) == {
        "dims": "2",
        "network": "mlp",
        "note": "a=b",
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["dims", "=2", " =2"])
def test_a_text_without_key_or_equals_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        parse_settings([text])
