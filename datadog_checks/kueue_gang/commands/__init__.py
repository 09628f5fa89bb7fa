# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The commands: the same reading and the same rules as the check, told to a person.

They need nothing beyond what the Agent bundles, so that they also run in the Agent's own Python.
"""

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from datadog_checks.kueue_gang.__about__ import __version__
from datadog_checks.kueue_gang.commands import status
from datadog_checks.kueue_gang.commands.terminal import CannotWriteError, plain
from datadog_checks.kueue_gang.sources.errors import SourceError, harmless

_EXAMPLES = """\
examples:
  kueue-gang status                                the cluster of your kubeconfig, or the one that this runs in
  kueue-gang status -n team-a,team-b --watch       the gangs of two namespaces, every 5 seconds
  kueue-gang status --url http://localhost:8001    through `kubectl proxy`
"""
_SOURCES = """\
Without a source: the kubeconfig of KUBECONFIG, else the service account of the pod that this runs in, else
~/.kube/config.
"""
#: Longest time that an option may give, in seconds.
_DAY = 86400


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, or 1 where nothing could be read. Exits with 2 for a usage error."""
    _silence()
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        # argparse itself would show the usage without that of the command.
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.context and (options.url or options.folder):
        options.parser.error("--context chooses in a kubeconfig: give it without --url and --from")
    if options.gang and options.namespace:
        options.parser.error("-n chooses gangs of the table: give it without NAMESPACE/GANG")
    if sys.stdout is None:
        print("error: standard output is closed", file=sys.stderr)
        return 1
    try:
        return int(options.run(options))
    except (SourceError, status.NoGangError) as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return 1
    except CannotWriteError as error:
        print(f"error: {error}", file=sys.stderr)
        # What is left in the buffer must not fail again at exit.
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is left in the buffer must not fail at exit.
        sys.stdout = None
        return 0


def _silence() -> None:
    """Let no library log to the terminal: what goes wrong is told by the command, once and with its advice."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kueue-gang",
        description="What a GPU training cluster wastes, and why.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kueue-gang {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "status",
        help="the gangs of a cluster: state, members, GPUs held and idle, age",
        description="Show every gang with its state, members, GPUs held and idle, and age, and the cluster's GPUs.",
        epilog=f"{_SOURCES}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "gang", nargs="?", type=_gang, metavar="NAMESPACE/GANG", help="one gang from near: members, laggard, what helps"
    )
    where = command.add_argument_group("source")
    one = where.add_mutually_exclusive_group()
    one.add_argument("--kubeconfig", type=_given, metavar="FILE", help="kubeconfig to use")
    one.add_argument("--url", type=_url, help="plain URL of an API server, such as that of `kubectl proxy`")
    one.add_argument(
        "--from", dest="folder", type=_folder, metavar="DIR", help="folder of recorded lists (pods.json, ...)"
    )
    where.add_argument("--context", type=_given, help="context of the kubeconfig")
    where.add_argument(
        "--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="for each request (default 10)"
    )
    what = command.add_argument_group("what is shown")
    what.add_argument(
        "-n",
        "--namespace",
        type=_names,
        action="extend",
        default=[],
        help="only this one; globs; several with commas, or by repeating it",
    )
    what.add_argument("--cpu", action="store_true", help="also gangs that ask for no GPU")
    how = command.add_argument_group("how it is shown")
    how.add_argument("--json", action="store_true", help="as JSON")
    how.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=5.0,
        metavar="SECONDS",
        help="again every 5 (or so many) seconds, until Ctrl-C",
    )
    command.set_defaults(run=status.run, parser=command)
    return parser


# --- types of options; what they raise is told with the usage ---------------------------------------------------------


def _given(text: str) -> str:
    if not text.strip():
        msg = "it is empty: give a value, or leave the option out"
        raise argparse.ArgumentTypeError(msg)
    return text


def _folder(text: str) -> Path:
    return Path(_given(text))


def _names(text: str) -> list[str]:
    return [_given(name).strip() for name in text.split(",")]


def _gang(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        msg = f"{text!r} is no gang: give NAMESPACE/GANG, as the table shows them"
        raise argparse.ArgumentTypeError(msg)
    return namespace, name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _DAY:
        msg = f"{text!r} is no time: give seconds, more than 0 and at most {_DAY}"
        raise argparse.ArgumentTypeError(msg)
    return seconds


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        # Brackets that do not match, or a port that is none.
        fits = False
    if not fits or parts.query or parts.fragment or " " in text:
        msg = f"{harmless(text)!r} is no URL: give http(s)://HOST[:PORT][/PATH], such as http://localhost:8001"
        raise argparse.ArgumentTypeError(msg)
    return text
