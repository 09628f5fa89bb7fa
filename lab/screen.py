# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A scenario played before one's eyes: the table of the gangs as it changes, and what has happened.

On a terminal the table stays in its place and time goes at a speed that one can follow; what comes before the fault is
skipped. Elsewhere a line is written whenever something happens, as fast as it can. Of all moments the one in which most
GPUs were idle, or most gangs were blocked, is kept for the end.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, Self, TextIO

from datadog_checks.base.stubs import aggregator

from datadog_checks.kueue_gang.commands import status, terminal
from lab.play import Player, clock, summary
from lab.timeline import Moment
from lab.told import Sent, metrics, painter, sent_to, step

_DIM, _GREEN, _RED, _YELLOW, _BOLD = "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m"
#: Seconds of the cluster in one, on a terminal.
_SPEED: Final = 120.0
#: So long before the fault the story begins, and so long after it a cluster that is to be served stops.
_BEFORE, _AFTER = 120.0, 900.0
#: Of moments that are as bad one is taken that is so much later than the first: then it is seen to last.
_LATER: Final = 900.0
#: Lines of what has happened, below the table.
_HAPPENED: Final = 6
_BAR: Final = 60


class Screen:
    """Plays a scenario on a stream. Use it as a context manager.

    `speed` 0 is as fast as it can. `until` is in seconds after the start. Where it `lingers`, the cluster is stopped a
    while after the fault, if nothing else is said, so that there is something to look at.
    """

    def __init__(
        self,
        name: str,
        stream: TextIO,
        *,
        speed: float | None = None,
        until: float | None = None,
        lingers: bool = False,
    ) -> None:
        """Prepare to play. Raises ScenarioError."""
        self.player = Player(name)
        self._stream = stream
        self._live = stream.isatty()
        self._colour = terminal.coloured(stream)
        self.paint = painter(colour=self._colour)
        self._speed = speed if speed is not None else _SPEED if self._live else 0.0
        fault = self.player.scenario.fault_at
        lasts = self.player.scenario.lasts
        self._until = until if until is not None else fault + _AFTER if lingers and fault is not None else lasts
        self._begins = 0.0 if fault is None else max(0.0, fault - _BEFORE)
        self.moments = 0
        self._happened: deque[str] = deque(maxlen=_HAPPENED)
        self._said = ""
        #: The most telling moment: its rank, when that was reached, when it was, its table, what was sent.
        self._best: tuple[tuple[float, float], float, float, str, Sent] | None = None

    def __enter__(self) -> Self:
        """Begin to serve."""
        self.player.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self.player.__exit__(*error)

    def show(self) -> None:
        """Play to the end, or until Ctrl-C."""
        told = next((n for n, (at, _) in enumerate(self.player.world.story) if at >= 0), len(self.player.world.story))
        due: float | None = None
        if not self._live:
            self._write(step(self.paint, self._title()))
        try:
            for moment in self.player.moments(self._until):
                at = moment.at - self.player.world.start
                story, told = self.player.world.story[told:], len(self.player.world.story)
                self._note(moment, at, story)
                if self._speed and at >= self._begins:
                    # Where this machine is too slow for it, time is not made up for by haste later.
                    due = max(due or 0.0, time.monotonic() - 1.0 if due else time.monotonic())
                    due += self.player.interval / self._speed
                    time.sleep(max(0.0, due - time.monotonic()))
        except KeyboardInterrupt:
            self._write("")

    def end(self, *, everything: bool) -> Iterator[str]:
        """Yield the lines that tell of the most telling moment."""
        if self._best is None:
            return
        _, _, at, table, sent = self._best
        if not self._live:
            yield ""
            yield step(self.paint, f"The gangs at {clock(at)}, as the command `kueue-gang status` shows them:")
            yield ""
            yield from table.splitlines()
        yield ""
        yield step(self.paint, f"At {clock(at)}, when it mattered most:")
        yield from metrics(sent, colour=self._colour, everything=everything)

    def go_on(self) -> None:
        """Let the cluster live for a second, in a second."""
        time.sleep(1.0)
        self.player.show(self.player.world.now + 1.0)

    # --- one moment --------------------------------------------------------------------------------------------------

    def _note(self, moment: Moment, at: float, story: list[tuple[float, str]]) -> None:
        picture = self.player.check.picture
        if picture is None:
            return
        self.moments += 1
        # A gang that starts is no trouble yet.
        idle = moment.total("gpus.idle") - moment.total("gpus.idle", "idle_reason:starting") / 2
        rank = idle, moment.total("gangs.blocked")
        worse = self._best is None or rank > self._best[0]
        first = at if worse or self._best is None else self._best[1]
        best = worse or (self._best is not None and rank == self._best[0] and at - first <= _LATER)
        table = status.table(picture, (), status.View(self._colour, width=terminal.width(self._stream)))
        if best:
            self._best = rank, first, at, table, sent_to(aggregator)
        lines = [f"{clock(when)}  {text}" for when, text in story if when >= 0]
        lines += [f"{clock(at)}  event sent: {event['msg_title']}" for event in moment.events]
        if self._live:
            self._happened.extend(lines)
            self._frame(moment, at, table)
            return
        if self.moments == 1:
            self._write(f"\n{table}\n")
        for line in lines:
            self._write(self.paint(_DIM, line))
        said = summary(moment)
        if said != self._said:
            self._said = said
            self._write(f"{clock(at)}  {said}")

    def _title(self) -> str:
        return f"{self.player.scenario.name}: {self.player.scenario.about}. The check reads it at {self.player.url}"

    def _frame(self, moment: Moment, at: float, table: str) -> None:
        pace = f"{self._speed:g} x" if self._speed else "as fast as it can"
        head = [
            step(self.paint, self._title()),
            f"  {clock(at)} of {clock(self.player.scenario.lasts)}, {pace}; Ctrl-C ends it",
            "  " + self._bar(moment),
            "",
        ]
        tail = ["", *(self.paint(_DIM, f"  {line}") for line in self._happened)]
        self._write(terminal.CLEAR + "\n".join([*head, table, *tail]))

    def _bar(self, moment: Moment) -> str:
        """Return the GPUs of the cluster as a bar: at work, idle, of nobody's gang, free."""
        uses = moment.by("gpus.allocated", "gpu_use")
        parts = [(_GREEN, uses.get("busy", 0.0)), (_RED, uses.get("idle", 0.0)), (_YELLOW, uses.get("other", 0.0))]
        whole = sum(amount for _, amount in parts) + moment.total("gpus.free")
        if not whole:
            return ""
        drawn = [(colour, round(_BAR * amount / whole)) for colour, amount in parts]
        letters = "".join(self.paint(colour, "█" * length) for colour, length in drawn)
        rest = "░" * max(0, _BAR - sum(length for _, length in drawn))
        busy, idle, other = (amount for _, amount in parts)
        return f"{letters}{rest} {busy:g} busy, {idle:g} idle, {other:g} other, {moment.total('gpus.free'):g} free"

    def _write(self, text: str) -> None:
        terminal.show(text, self._stream)
