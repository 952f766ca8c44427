"""What a declared table or figure of a paper is, and the states that it may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["as printed", "ours", "ours, on other data", "missing", "diagram"]
STATES: dict[State, str] = {
    "as printed": "the paper's data, objective, settings and optimiser",
    "ours": "the paper's data, or data made as it describes, with our settings",
    "ours, on other data": "our settings on data of our own making, or on other files",
    "missing": "not made, for the reason given",
    "diagram": "an illustration or a list of symbols; nothing to measure",
}
DIAGRAM: State = "diagram"
OTHER: State = "ours, on other data"


@dataclass(frozen=True)
class Published:
    """A table or figure of a paper.

    Arguments:
        label: its number, or its place where it has none.
        shows: what it shows.
        experiments: names of the experiments that make ours.
        links: other files that show it, from the root of the repository.
        why: how ours differs, or why there is none.
    """

    label: str
    shows: str
    state: State
    experiments: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    why: str = ""


NOT_IN_TEXT = "not in the text that we have"
