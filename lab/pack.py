# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Pack recorded clusters for the tests: one archive a scenario.

    python -m lab.pack RECORDINGS [DESTINATION]

RECORDINGS holds a folder a scenario, as `lab.replay` describes them; DESTINATION is tests/captures by default. The same
input gives the same bytes: names are sorted, and owners, modes and times are constant. Discovery is the same in all
scenarios but those that bring their own, so it is packed once, from the first scenario that has it, as
`discovery.tar.xz`. Schedulers' logs stay out: they are large, and no test reads them.
"""

import argparse
import io
import lzma
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lab.replay import CAPTURES, DISCOVERY

#: The scenario whose discovery answers for all others, and the moment that holds it.
_COMMON: Final = Path("1-permit-wait", "t1", "objects")
_LEFT_OUT: Final = ".log"


def pack(recordings: Path, destination: Path) -> Iterator[Path]:
    """Write an archive a scenario, and discovery.tar.xz; yield each as it is written."""
    common = recordings / _COMMON
    shared = [common / f"{name}.json" for name in DISCOVERY]
    yield _write(destination / "discovery.tar.xz", ((path.name, path) for path in shared))
    for scenario in sorted(path for path in recordings.iterdir() if path.is_dir()):
        files = sorted(path for path in scenario.rglob("*") if path.is_file())
        kept = (
            (path.relative_to(scenario).as_posix(), path)
            for path in files
            if path.suffix != _LEFT_OUT and path not in shared
        )
        yield _write(destination / f"{scenario.name}.tar.xz", kept)


def _write(archive: Path, members: Iterable[tuple[str, Path]]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, path in members:
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(member, content)
    archive.write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return archive


def main() -> None:
    """Pack, and print each archive with its size."""
    parser = argparse.ArgumentParser(prog="python -m lab.pack", description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path)
    parser.add_argument("destination", type=Path, nargs="?", default=CAPTURES)
    options = parser.parse_args()
    total = 0
    for archive in pack(options.recordings, options.destination):
        size = archive.stat().st_size
        total += size
        print(f"{size:>10}  {archive.name}")
    print(f"{total:>10}  in all")


if __name__ == "__main__":
    main()
