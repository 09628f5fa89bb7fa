# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the commands share to write to a terminal: colours, widths, ages.

Colour is used on a terminal; NO_COLOR and FORCE_COLOR say otherwise. What is piped is as wide as it needs to be, and
what goes to a terminal fits into it. Texts that others wrote, such as those of conditions, may hold anything: they are
shown as `plain`, so that they neither break a line nor steer the terminal.
"""

import os
import re
import shutil
from collections.abc import Callable
from typing import TextIO

_RESET = "\x1b[0m"
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
BOLD, DIM, RED, GREEN, YELLOW = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
CLEAR = "\x1b[H\x1b[2J"
COLOURS = {
    **dict.fromkeys(("partial", "degraded", "stopping", "orphan"), RED),
    **dict.fromkeys(("waiting", "rejected", "pending", "starting"), YELLOW),
    **dict.fromkeys(("running", "finishing"), GREEN),
    "queued": DIM,
}
_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def coloured(stream: TextIO) -> bool:
    """Tell whether a stream takes colour."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    return forced != "0" if forced else stream.isatty()


def width(stream: TextIO) -> int | None:
    """Return how many characters a line of a stream may have; None where it may have any number."""
    told = os.environ.get("COLUMNS", "")
    if stream.isatty() or (told.isdecimal() and int(told)):
        return shutil.get_terminal_size().columns
    return None


def painter(colour: bool) -> Callable[[str, str], str]:  # noqa: FBT001
    """Return what puts a text between a colour code and the end of it, or leaves it as it is."""
    return (lambda code, text: f"{code}{text}{_RESET}") if colour else (lambda _code, text: text)


class CannotWriteError(Exception):
    """What is to be shown cannot be written."""


def show(text: str, stream: TextIO) -> None:
    """Write a text and a newline; what the stream's encoding does not have is written in other characters.

    Raises:
        CannotWriteError: the disk is full, or the like.
        BrokenPipeError: nobody reads any more.

    """
    try:
        print(_encodable(text, stream.encoding or "utf-8"), file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        msg = f"standard output cannot be written: {error.strerror or error}"
        raise CannotWriteError(msg) from None


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        # Where a text was cut its width stays what it was.
        text = re.sub(f"[^\n]{{0,2}}{_ELLIPSIS}", "...", text) if not _has(encoding, _ELLIPSIS) else text
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _has(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def plain(text: str) -> str:
    """Return a text that others wrote in one line, without what would steer a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text)


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + _ELLIPSIS


def age(seconds: float | None) -> str:
    """Return an age as people say it: 42s, 13m, 5h10m, 3d."""
    if seconds is None:
        return "-"
    whole = int(max(0.0, seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d"
