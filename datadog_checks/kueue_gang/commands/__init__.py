# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The commands: the same reading and the same rules as the check, told to a person.

They need nothing beyond what the Agent bundles, so that they also run in the Agent's own Python.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from datadog_checks.kueue_gang.__about__ import __version__
from datadog_checks.kueue_gang.commands import status
from datadog_checks.kueue_gang.sources.errors import SourceError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, or 1 where nothing could be read."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except SourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is left in the buffer must not fail at exit.
        sys.stdout = None
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kueue-gang", description="What a GPU training cluster wastes, and why.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"kueue-gang {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "status",
        help="the gangs of a cluster: state, members, GPUs held and idle, age",
        description="Show every gang with its state, members, GPUs held and idle, and age, and the cluster's GPUs.",
        epilog="Without a source: the pod's service account in a cluster, else KUBECONFIG or ~/.kube/config.",
    )
    where = command.add_argument_group("source")
    one = where.add_mutually_exclusive_group()
    one.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to use")
    one.add_argument("--url", help="plain URL of an API server, such as that of `kubectl proxy`")
    one.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR", help="folder of recorded lists (pods.json, ...)"
    )
    where.add_argument("--context", help="context of the kubeconfig")
    where.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="for each request (default 10)")
    what = command.add_argument_group("what is shown")
    what.add_argument("-n", "--namespace", action="append", default=[], help="only this one; globs; may be repeated")
    what.add_argument("--cpu", action="store_true", help="also gangs that ask for no GPU")
    how = command.add_argument_group("how it is shown")
    how.add_argument("--json", action="store_true", help="as JSON")
    how.add_argument(
        "--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="again every 5 (or so many) seconds"
    )
    command.set_defaults(run=status.run)
    return parser
