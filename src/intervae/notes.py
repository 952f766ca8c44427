"""`Note`: a message that is not an error, with a kind that code can match."""

from __future__ import annotations

from typing import NamedTuple


class Note(NamedTuple):
    """A message that is not an error, such as a hint on settings.

    Arguments:
        kind: a short fixed word that code may branch on, such as "few-steps".
        subject: the variable, file or setting that the note is about, or "".
        text: one sentence to print.
        reason: the part of the text that gives the reason, where code shows it alone.
    """

    kind: str
    subject: str
    text: str
    reason: str = ""
