"""Search spaces: texts of ranges and choices, and the defaults of models."""

from __future__ import annotations

import pytest

from intervae.errors import UsageError
from intervae.models import MODELS
from intervae.tuning import Choices, Range, default_search, parse_search

VAE = MODELS["vae"]


def test_ranges_and_choices_are_read_with_the_types_of_the_settings() -> None:
    search = {"learning_rate": "log:1e-4:1e-2", "latents": "2:8", "channels": "8,8|16,16,16"}
    assert parse_search(VAE, search) == {
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "latents": Range(2, 8, whole=True),
        "channels": Choices(("8,8", "16,16,16")),
    }
    # whole ends of a setting that is no whole number leave everything between them
    assert parse_search(VAE, {"scale": "1:2"}) == {"scale": Range(1, 2)}


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"learning_rat": "1:2"}, "did you mean 'learning_rate'"),
        ({"learning_rate": "log:0:1"}, "must be above 0"),
        ({"learning_rate": "1e-2:1e-4"}, "first number must be below the second"),
        ({"learning_rate": "0.1"}, "LOW:HIGH, log:LOW:HIGH or A|B|C"),
        ({"learning_rate": "nan:1"}, "first number must be below the second"),
        ({"latents": "1.5:4"}, "must be a whole number"),
        ({"latents": "2|two"}, "is not a number"),
        ({"likelihood": "bernoulli|poisson"}, "is not a choice"),
        ({"latents": "2|2"}, "the choices must differ"),
        ({"epochs": "1:5"}, "unequal cost"),
    ],
)
def test_bad_search_is_one_sentence(search: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_search(VAE, search)
    assert words in str(error.value)
    assert str(error.value).count("\n") == 0


@pytest.mark.parametrize("name", MODELS)
def test_default_search_of_every_model_can_be_read(name: str) -> None:
    model = MODELS[name]
    space = parse_search(model, default_search(model))
    assert ("learning_rate" in space) == hasattr(model.Settings, "learning_rate")


def test_a_model_without_a_declared_search_has_one_around_its_defaults() -> None:
    model = MODELS["deep-scm"]
    assert not model.search_space
    assert default_search(model) == {"learning_rate": "log:0.0001:0.01", "batch_size": "32|64|128"}
