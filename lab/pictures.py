# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The pictures of the README: what the commands print on a terminal, in colour. `lab.metadata` writes them.

The commands run on recorded clusters, so a picture changes only when they say something else. rich makes SVG of their
ANSI colours. The frame is our own, since that of rich loads fonts from the network: here a browser takes a font that it
has. Each piece of text states its width, so that columns stay columns in any font.

In the README the pictures stand inside a `div`: there GitHub shows them, and `ddev validate readmes`, which takes only
images that are in Datadog's own repository, does not look.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from datadog_checks.kueue_gang.commands import status
from lab import demo
from lab.recorded import scenario, side_by_side
from lab.replay import ReplayServer

ROOT: Final = Path(__file__).resolve().parent.parent
#: A gang that waits only because a node has no label, which no other tool tells: the recorded cluster, and the gang.
_CLUSTER, _GANG = "5-tas", "pretrain/no-rack-fits"
#: Columns of the terminal, and of a picture at least, so that letters are about as large in all of them.
_COLUMNS: Final = 120
_LEAST: Final = 80

_BLACK, _WHITE, _RED, _GREEN, _YELLOW = (13, 17, 23), (201, 209, 217), (255, 123, 114), (126, 231, 135), (227, 179, 65)
_BLUE, _MAGENTA, _CYAN = (121, 192, 255), (210, 168, 255), (86, 212, 221)
_THEME: Final = TerminalTheme(
    _BLACK, _WHITE, [_BLACK, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _WHITE]
)  # fmt: skip
#: What rich fills in: see `Console.export_svg`.
_FRAME: Final = """\
<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{
        font-family: system-ui, sans-serif;
        font-size: 18px;
        font-weight: bold;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
    <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def table() -> str:
    """Return the table of the demo, with its colours."""
    with ReplayServer(side_by_side()) as server:
        picture, _ = demo.observe(server)
    return status.table(picture, (), status.View(colour=True, width=_COLUMNS))


def gang() -> str:
    """Return what the command tells of one gang, with its colours."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS)}
    environment.pop("NO_COLOR", None)
    with ReplayServer(scenario(_CLUSTER)) as server:
        command = [sys.executable, "-m", "datadog_checks.kueue_gang", "status", "--url", server.url, _GANG]
        done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.rstrip()


def svg(name: str, title: str, ansi: str) -> str:
    """Return a picture of a terminal that shows a text with ANSI colours."""
    text = Text.from_ansi(ansi)
    lines = text.plain.splitlines()
    width = max(_LEAST, *map(len, lines))
    # Without a height a dumb terminal (TERM=dumb) would have the last word on the width as well.
    console = Console(
        file=StringIO(), width=width, height=len(lines), record=True, force_terminal=True, no_color=False
    )  # fmt: skip
    # rich clips each line but the last one, to what is not there then: that is an empty one.
    console.print(text, "", sep="\n", soft_wrap=True)
    made = console.export_svg(title=title, theme=_THEME, code_format=_FRAME, unique_id=name)
    return "".join(f"{line.rstrip()}\n" for line in made.splitlines())


def files(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each file with the text that it should have."""
    folder = root / "docs" / "images"
    yield folder / "demo.svg", svg("demo", "kueue-gang status", table())
    yield folder / "gang.svg", svg("gang", f"kueue-gang status {_GANG}", gang())
