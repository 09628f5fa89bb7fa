# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A page in Chromium: what is wrong with it, and pictures of it.

Playwright drives the Chromium of the system (Debian's package `chromium`, or the one that CHROMIUM names), so that no
browser is downloaded. The page is a file and must need nothing else: every other request is refused, and told.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, Route, sync_playwright

_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: The widths (pixels) at which a page must be readable: the narrowest one, and that of the pictures.
NARROW, WIDE = 1024, 1440
_HEIGHT: Final = 900
_PATIENCE: Final = 60_000

#: Asks a page that is drawn what is wrong with it; the texts are what a developer reads.
_FAULTS: Final = """
({ strict, filled }) => {
  const faults = [], wide = document.scrollingElement.scrollWidth;
  if (wide > window.innerWidth) faults.push(`it is ${wide} pixels wide, and the window ${window.innerWidth}`);
  for (const widget of document.querySelectorAll(".widget")) {
    const name = `${widget.closest(".dashboard").id}: ${widget.dataset.title || widget.innerText.slice(0, 40)}`;
    if (widget.dataset.empty === "true") {
      if (filled && widget.dataset.foreign === "false") faults.push(`${name}: empty`);
    }
    else for (const canvas of widget.querySelectorAll(".canvas"))
      if (!canvas.querySelector(".trace path, .points path, .slice path")) faults.push(`${name}: nothing is drawn`);
    const table = widget.querySelector(".table");
    if (table && table.scrollWidth > table.clientWidth + 1) faults.push(`${name}: the table is cut at the right`);
    // In the app, too, a narrow window cuts texts: they scroll.
    const title = widget.querySelector("h3");
    if (!strict) continue;
    if (title && title.scrollHeight > title.clientHeight + 2) faults.push(`${name}: the title is cut`);
    const note = widget.matches(".note") && widget.querySelector(".body");
    if (note && note.scrollHeight > note.clientHeight + 2) faults.push(`${name}: the note is cut`);
  }
  return faults;
}
"""


class NoBrowserError(Exception):
    """There is no Chromium; the text says how to get one."""


def browser_path(environment: Mapping[str, str] = os.environ) -> str:
    """Return where Chromium is. Raises NoBrowserError."""
    named = environment.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        msg = "no Chromium was found: install it (apt-get install chromium), or name it in CHROMIUM"
        raise NoBrowserError(msg)
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser without a window. Raises NoBrowserError."""
    path = browser_path()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(running: Browser, path: Path, width: int, *, bare: bool = False) -> Iterator[tuple[Page, list[str]]]:
    """Open a page of a width in pixels; yield it drawn, and what went wrong: scripts that failed, requests it made.

    `bare` leaves out the line that tells which scenario is shown.
    """
    troubles: list[str] = []

    def refuse(route: Route) -> None:
        troubles.append(f"it asks for {route.request.url}")
        route.abort()

    page = running.new_page(viewport={"width": width, "height": _HEIGHT})
    try:
        page.route(
            lambda url: not url.startswith("file:") or Path(url.removeprefix("file://")) != path.resolve(), refuse
        )
        page.on("pageerror", lambda error: troubles.append(f"a script failed: {error}"))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("body[data-drawn]", timeout=_PATIENCE)
        if bare:
            page.evaluate("document.body.classList.add('bare')")
        yield page, troubles
    finally:
        page.close()


def faults(running: Browser, path: Path, *, filled: bool, widths: Sequence[int] = (NARROW, WIDE)) -> list[str]:
    """Return what is wrong with a page at each of these widths (pixels): [] where it is as it should be.

    With `filled` a widget without data is a fault, unless its metrics are not this check's.
    """
    found: list[str] = []
    for width in widths:
        with opened(running, path, width) as (page, troubles):
            told: list[Any] = page.evaluate(_FAULTS, {"strict": width >= WIDE, "filled": filled})
            found += [f"{path.name} at {width}: {fault}" for fault in (*troubles, *told)]
    return found


def taken(running: Browser, path: Path, folder: Path, name: str, *, whole: bool) -> Iterator[Path]:
    """Write pictures (PNG) of a page into a folder, without the line that tells the scenario; yield where they are.

    `NAME.png` is what stands first. With `whole` each dashboard follows from top to bottom, as `NAME-DASHBOARD.png`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with opened(running, path, WIDE, bare=True) as (page, _):
        first = folder / f"{name}.png"
        page.screenshot(path=first, clip={"x": 0, "y": 0, "width": WIDE, "height": _HEIGHT})
        yield first
        for board in page.locator(".dashboard").all() if whole else ():
            picture = folder / f"{name}-{board.get_attribute('id')}.png"
            board.screenshot(path=picture)
            yield picture
