"""The options of `load_data` on the command line, for every command that loads data."""

from __future__ import annotations

from typing import Any

from intervae.errors import UsageError


def read_data_options(
    size: int | None,
    variables: str | None,
    kinds: list[str] | None,
    group: str | None,
    options: list[str] | None,
) -> dict[str, Any]:
    """Return the keyword arguments of `load_data` for --size, --variables, --kind and so on."""
    from intervae.settings import parse_settings, plain_value

    texts = parse_settings(options or [], "--data-option")
    for key in texts:
        if key in ("size", "variables", "kinds", "group"):
            option = "--kind" if key == "kinds" else f"--{key}"
            raise UsageError(f"--data-option {key}=... has its own option, {option}.")
    return {
        "size": size,
        "variables": [name.strip() for name in variables.split(",")] if variables else None,
        "kinds": parse_settings(kinds or [], "--kind") or None,
        "group": group,
        **{key: plain_value(text) for key, text in texts.items()},
    }
