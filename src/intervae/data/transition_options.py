"""Options of `with_transitions` from True, a mapping, or one text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from intervae.data.build_transitions import with_transitions
from intervae.errors import UsageError, unknown
from intervae.settings import parse_settings, plain_value

NAME_OPTIONS = ("factors", "cyclic", "ignore", "splits")  # values that stay texts


def transition_options(
    transitions: bool | str | Mapping[str, Any], seed: int = 0
) -> dict[str, Any] | None:
    """Return keyword arguments of `with_transitions`; None for no transitions.

    Arguments:
        transitions: True, a mapping, or one text such as "cyclic=azimuth;draws=1000".
        seed: default of the option `seed`.
    """
    parsed = transitions
    if isinstance(transitions, str) and transitions.strip():
        parsed = _parse_text(transitions.strip())
    if not isinstance(parsed, bool | Mapping):
        raise UsageError(
            f"transitions={transitions!r} must be true or options of with_transitions, such as "
            "cyclic=azimuth;draws=1000."
        )
    options = {} if isinstance(parsed, bool) else dict(parsed)
    for name in options:
        if name not in option_names():
            raise unknown("option of transitions", name, option_names())
    return None if parsed is False else {"seed": seed, **options}


def option_names() -> list[str]:
    """Return the names of the options of `with_transitions`."""
    parameters = inspect.signature(with_transitions).parameters
    return [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]


def _parse_text(text: str) -> bool | dict[str, Any]:
    """Parse "true", or "cyclic=azimuth;draws=1000"."""
    flag = plain_value(text)
    if isinstance(flag, bool):
        return flag
    entries = [entry for entry in text.split(";") if entry.strip()]
    if not all("=" in entry for entry in entries):
        raise UsageError(
            f"transitions={text!r} must be true, or options as key=value with ; between them, "
            "such as cyclic=azimuth;draws=1000."
        )
    texts = parse_settings(entries, "transitions:")
    if len(texts) < len(entries):
        raise UsageError(f"transitions: {text!r} gives an option twice; give each once.")
    return {
        key: value if key in NAME_OPTIONS else plain_value(value) for key, value in texts.items()
    }
