# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The dashboards of a scenario as a page of HTML.

    python -m lab.preview [--scenario NAME]... [--out FILE] [--at TIME] [--check] [--pictures FOLDER [--whole]]

One scenario gives one page; several give a folder with a page each and an index. Nothing is sent anywhere, and the
pages need no network. --check and --pictures look at them in the Chromium of the system.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.preview import page, stories
from lab.simulation.values import seconds

_OUT: Final = Path("build") / "preview"
_ALL: Final = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages; return 0, or 1 where something was asked for in vain or a page has faults."""
    options = _parser().parse_args(arguments)
    try:
        wanted = options.scenario or [stories.FLEET]
        names = stories.names() if _ALL in wanted else list(dict.fromkeys(wanted))
        at = None if options.at is None else seconds(options.at, "--at")
        pages = _write(names, options.out, at)
    except (ValueError, LookupError) as error:
        print(f"error: {error}", *getattr(error, "__notes__", ()), file=sys.stderr)
        return 1
    return _look(pages, options) if options.check or options.pictures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.preview", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    told = f"may be repeated; `{_ALL}` for all (default: {stories.FLEET})"
    parser.add_argument("--scenario", action="append", metavar="NAME", help=told)
    parser.add_argument("--out", type=Path, help=f"the page, or the folder of several (default: in {_OUT})")
    parser.add_argument("--at", metavar="TIME", help="so long after the start of the scenario, such as 45m or 1h30m")
    parser.add_argument("--check", action="store_true", help="look at the pages in Chromium, and tell what is wrong")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write a picture of what each page shows first")
    parser.add_argument(
        "--whole", action="store_true", help="with --pictures: one of each dashboard from top to bottom, too"
    )
    return parser


def _write(names: Sequence[str], out: Path | None, at: float | None) -> dict[str, Path]:
    """Write a page for each scenario, and an index of several; return the pages by scenario."""
    several = len(names) > 1
    folder = (out or _OUT) if several else (out or _OUT / f"{names[0]}.html").parent
    folder.mkdir(parents=True, exist_ok=True)
    pages = {}
    entries = []
    for name in names:
        started = time.monotonic()
        path = folder / f"{name}.html" if several or out is None else out
        timeline = stories.told(name, at)
        links = [{"target": "index.html", "text": "all scenarios"}] if several else []
        path.write_text(page.html(f"{name} - preview", stories.about(name), stories.boards(timeline), links))
        entries.append({"target": path.name, "name": name, "about": stories.about(name)})
        pages[name] = path
        print(f"{path}: {len(timeline.moments)} runs of the check, {time.monotonic() - started:.0f} s", flush=True)
    if several:
        (folder / "index.html").write_text(page.index(entries))
        print(f"{folder / 'index.html'}: all of them")
    return pages


def _look(pages: dict[str, Path], options: argparse.Namespace) -> int:
    try:
        from lab.preview import pictures  # noqa: PLC0415 - playwright is needed only here
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is missing: pip install -e '.[pictures]'", file=sys.stderr)
        return 1
    found = []
    try:
        with pictures.browser() as running:
            for name, path in pages.items():
                found += pictures.faults(running, path, filled=name == stories.FLEET) if options.check else []
                folder = options.pictures
                for picture in pictures.taken(running, path, folder, name, whole=options.whole) if folder else ():
                    print(picture, flush=True)
    except pictures.NoBrowserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
