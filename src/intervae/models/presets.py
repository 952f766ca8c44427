"""Presets: the settings of a model as a paper prints them, declared beside its `Settings`.

`create(name, data, preset="paper")` starts from them; settings given explicitly override them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from intervae.errors import UsageError, unknown

if TYPE_CHECKING:
    from intervae.models.base import Model


class Printed(NamedTuple):
    """The value of a setting and where it stands.

    Arguments:
        source: section or equation of the paper; "code: ..." where the paper is silent and the
            authors' code decides; "not printed: ..." where neither does.
    """

    value: Any
    source: str


@dataclass(frozen=True)
class Preset:
    """Settings of a paper.

    Arguments:
        paper: author and year.
        printed: setting -> value and source; settings left out have our defaults.
        remarks: misprints, readings, and what of the paper the preset does not follow.
    """

    paper: str
    printed: Mapping[str, Printed]
    remarks: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings without their sources."""
        return {name: entry.value for name, entry in self.printed.items()}

    def changed(self, **printed: Printed) -> Preset:
        """Return the preset with other or further settings."""
        return Preset(self.paper, {**self.printed, **printed}, self.remarks)


def resolve_preset(cls: type[Model], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with `preset`, if they name one, replaced by its settings."""
    own = {name: value for name, value in values.items() if name != "preset"}
    preset = values.get("preset")
    return own if preset is None else {**find_preset(cls, preset).settings, **own}


def find_preset(cls: type[Model], name: str) -> Preset:
    """Return a preset of a model; a UsageError names those that it has."""
    if not cls.presets:
        raise UsageError(f"{cls.name} has no presets, so preset={name!r} is unknown; leave it out.")
    if name not in cls.presets:
        raise unknown(f"preset of {cls.name}", name, cls.presets)
    return cls.presets[name]
