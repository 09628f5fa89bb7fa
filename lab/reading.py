# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How the texts of queries are read: from left to right, and refused where they are not understood."""

import re
from typing import Final, NoReturn, TypeVar

_SPACE: Final = re.compile(r"\s*")
T = TypeVar("T")


class Refused(ValueError):  # noqa: N818 - it says what happened
    """A query that this grammar does not know; the text says which part."""


class Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        """Begin where the text begins."""
        self._text = text
        self._at = 0

    def end(self, found: T) -> T:
        """Return what was found, if that is all. Raises Refused where text is left."""
        self.skip()
        if self._at < len(self._text):
            self.refuse()
        return found

    def skip(self) -> None:
        """Pass over spaces."""
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what a pattern matches here; None where it does not."""
        self.skip()
        if match := pattern.match(self._text, self._at):
            self._at = match.end()
        return match

    def sign(self, signs: str) -> str:
        """Read one of these characters; '' where there is none."""
        self.skip()
        found = self._text[self._at : self._at + 1]
        if not found or found not in signs:
            return ""
        self._at += 1
        return found

    def expect(self, sign: str) -> None:
        """Read a character. Raises Refused where there is another."""
        if not self.sign(sign):
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise Refused, with what is left of the text."""
        msg = f"not known: {self._text[self._at :]!r} of {self._text!r}"
        raise Refused(msg)
