# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Colours: those of groups and notes, palettes of series, and what a value's conditional formats make of it.

The names are Datadog's; the tones are near to what the app paints, and readable on white.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

#: Heading of a group, and text on it.
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "white": ("#ffffff", "#1c2b34"),
    "gray": ("#585f6b", "#ffffff"),
    "blue": ("#dbeafe", "#1c2b34"),
    "pink": ("#fce1ee", "#1c2b34"),
    "orange": ("#fde8d3", "#1c2b34"),
    "yellow": ("#fdf3c8", "#1c2b34"),
    "green": ("#dcf3e0", "#1c2b34"),
    "purple": ("#ebe3f7", "#1c2b34"),
    "vivid_blue": ("#2f7de1", "#ffffff"),
    "vivid_purple": ("#7c4dce", "#ffffff"),
    "vivid_pink": ("#d63384", "#ffffff"),
    "vivid_orange": ("#d9630b", "#ffffff"),
    "vivid_yellow": ("#f2b600", "#2a2205"),
    "vivid_green": ("#2a8f47", "#ffffff"),
}
NOTES: Final[Mapping[str, str]] = {
    "white": "#ffffff",
    "gray": "#eef0f3",
    "blue": "#e5f0fd",
    "pink": "#fdeaf3",
    "orange": "#feefe0",
    "yellow": "#fdf6d9",
    "green": "#e6f6e9",
    "purple": "#f1ebfa",
    "transparent": "transparent",
}

RED, YELLOW, GREEN, GREY, TEXT = "#d3293d", "#e8a317", "#2a7e41", "#6c7684", "#1c2b34"
_WHITE: Final = "#ffffff"
#: Palette of a conditional format -> background, text.
FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "white_on_red": (RED, _WHITE),
    "white_on_yellow": (YELLOW, _WHITE),
    "white_on_green": (GREEN, _WHITE),
    "white_on_gray": (GREY, _WHITE),
    "black_on_light_red": ("#fbdadd", TEXT),
    "black_on_light_yellow": ("#fdf0cc", TEXT),
    "black_on_light_green": ("#d6f0dc", TEXT),
    "red_on_white": (_WHITE, RED),
    "yellow_on_white": (_WHITE, "#a66f00"),
    "green_on_white": (_WHITE, GREEN),
    "gray_on_white": (_WHITE, GREY),
    "red": (RED, _WHITE),
    "orange": ("#e2711d", _WHITE),
    "green": (GREEN, _WHITE),
    "blue": ("#2f7de1", _WHITE),
    "grey": (GREY, _WHITE),
}
#: Palettes whose colours stand beside them.
_CUSTOM: Final = ("custom_bg", "custom_text")

#: Palette of series -> its colours in their order; more series than colours begin anew.
SERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "dog_classic": (
        "#3b8fd9", "#7d5bc9", "#f0a33c", "#45b08c", "#d85a7f", "#8c9aa8", "#2b5d9b", "#c9a227", "#5fb7d4", "#a3547a",
        "#6aa84f", "#c46a3d",
    ),
    "warm": ("#f3c13a", "#ee8a2c", "#de5230", "#b3243f", "#f7d98b", "#7d1d3f"),
    "cool": ("#2a9d8f", "#3b8fd9", "#7d5bc9", "#74c69d", "#8ecae6", "#4a4e9c"),
    "purple": ("#7d5bc9", "#a98be0", "#5b3aa6", "#cdbbf0"),
    "blue": ("#2f7de1", "#7fb2f0", "#1b559f", "#b6d5f8"),
    "green": ("#2a8f47", "#7cc48d", "#1b5e30", "#b5dfbf"),
    "orange": ("#e2711d", "#f2a469", "#a94f0d", "#f8cfae"),
    "red": ("#d3293d", "#e9808b", "#97182a", "#f4b8be"),
    "grey": ("#8c9aa8", "#b9c2cc", "#5c6875", "#d8dee4"),
    "gray": ("#8c9aa8", "#b9c2cc", "#5c6875", "#d8dee4"),
    "yellow": ("#f2b600", "#f7d465", "#b38600", "#fae8ac"),
}  # fmt: skip
#: Kind of a marker -> its colour.
MARKERS: Final[Mapping[str, str]] = {
    "error": RED, "warning": YELLOW, "info": "#2f7de1", "ok": GREEN,
}  # fmt: skip

_COMPARATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}


class Paint(NamedTuple):
    """What a value looks like: CSS colours ('' where nothing is asked for), and whether its digits are hidden."""

    background: str = ""
    text: str = ""
    hidden: bool = False

    @property
    def style(self) -> str:
        """The same as CSS."""
        rules = (("background-color", self.background), ("color", self.text))
        return ";".join(f"{name}:{value}" for name, value in rules if value)


def painted(value: float | None, formats: Iterable[Mapping[str, Any]]) -> Paint:
    """Return what the first format that the value meets asks for. Raises ValueError for one that is not known."""
    for one in formats:
        if one["comparator"] not in _COMPARATORS or one["palette"] not in {*FORMATS, *_CUSTOM}:
            msg = f"not a conditional format that the preview knows: {one['comparator']} {one['palette']}"
            raise ValueError(msg)
        if value is not None and _COMPARATORS[one["comparator"]](value, one["value"]):
            own = one.get("custom_bg_color", ""), one.get("custom_fg_color", "")
            background, text = FORMATS.get(one["palette"], own)
            return Paint(background, text, hidden=bool(one.get("hide_value")))
    return Paint()


def palette(name: str) -> tuple[str, ...]:
    """Return the colours of a palette. Raises ValueError for one that is not known."""
    if name not in SERIES:
        msg = f"not a palette that the preview knows: {name} (known: {', '.join(SERIES)})"
        raise ValueError(msg)
    return SERIES[name]
