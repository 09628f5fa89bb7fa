# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Plainer ways to read the same cluster, each in a process of its own.

    python -m bench.baselines CASE URL

prints what it took as JSON. The cases:

* `typed`: (a) the Kubernetes client with its typed models, in pages of 500; custom resources as dicts, for which it
  has no models.
* `raw`: (b) each list whole, as bytes from the same client, and decoded with `json`: how the official integrations
  read.
* `scan_pages`, `scan_stream`: (c) the scan limit. The bytes of all lists, in pages of 500 or as streaming lists,
  decoded object by object with orjson; nothing is looked at, nothing is kept. A check that reads with orjson cannot
  cost less.

None of them keeps anything of a list once it has been read, so what they take in memory is what reading takes.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson
import urllib3

from bench.generate import KINDS, Kind
from bench.measure import Measured, Meter
from bench.objects import QUEUE_LABEL

PAGE: Final = 500
_READ: Final = 1 << 18
_TOKEN: Final = re.compile(rb'"continue":"([^"]+)"')


def selector(kind: Kind) -> str:
    """Return the label selector with which the check lists a kind, empty for most."""
    return QUEUE_LABEL if kind.plural == "jobs" else ""


def typed(url: str) -> Measured:
    """Read all with typed models, page by page."""
    client = _Client(url)
    objects = 0
    with Meter() as meter:
        for kind in KINDS.values():
            token = ""
            while True:
                page = client.list(kind, limit=PAGE, _continue=token)
                items, metadata = (
                    (page["items"], page["metadata"]) if kind.custom else (page.items, page.metadata.to_dict())
                )
                objects += len(items)
                token = metadata.get("continue") or metadata.get("_continue") or ""
                if not token:
                    break
    return meter.measured(objects)


def raw(url: str) -> Measured:
    """Read each list whole, as dicts."""
    client = _Client(url)
    objects = 0
    with Meter() as meter:
        for kind in KINDS.values():
            answer = client.list(kind, **({} if kind.custom else {"_preload_content": False}))
            objects += len((answer if kind.custom else json.loads(answer.data))["items"])
            del answer
    return meter.measured(objects)


def scan_pages(url: str) -> Measured:
    """Decode each object of paged lists."""
    pool = urllib3.PoolManager()
    objects = 0
    with Meter() as meter:
        for kind in KINDS.values():
            for page in _pages(pool, url, kind):
                for item in split(page):
                    orjson.loads(item)
                    objects += 1
    return meter.measured(objects)


def scan_stream(url: str) -> Measured:
    """Decode each object of streaming lists."""
    pool = urllib3.PoolManager()
    objects = 0
    with Meter() as meter:
        for kind in KINDS.values():
            for line in _stream(pool, url, kind):
                event = orjson.loads(line)
                if event["type"] == "BOOKMARK":
                    break
                objects += 1
    return meter.measured(objects)


def split(page: bytes) -> Iterator[memoryview]:
    """Yield the objects of a page of a list without decoding it.

    An API server writes compact JSON, and each object of a list begins alike: with its metadata, or with apiVersion
    and kind. No list inside of an object of the kinds here has items that begin so, and in a string the quotes would
    be escaped.
    """
    start = page.index(b'"items":[') + len(b'"items":[')
    end = page.rindex(b"]")
    if start == end:
        return
    first = b'"metadata":{'
    separator = b"}," + page[start : page.index(first, start) + len(first)]
    view = memoryview(page)
    while (following := page.find(separator, start, end)) >= 0:
        yield view[start : following + 1]
        start = following + len(b"},")
    yield view[start:end]


def _pages(pool: urllib3.PoolManager, url: str, kind: Kind) -> Iterator[bytes]:
    query: dict[str, str] = {"limit": str(PAGE), "labelSelector": selector(kind)}
    while True:
        page = pool.request("GET", url + kind.path, fields=query).data
        yield page
        # Before the items of a built-in kind, and behind those of a custom resource.
        outside = page[page.rindex(b"]") :] if kind.custom else page[: page.index(b'"items":[')]
        token = _TOKEN.search(outside)
        if not token:
            return
        query["continue"] = token[1].decode()


def _stream(pool: urllib3.PoolManager, url: str, kind: Kind) -> Iterator[bytes]:
    """Yield the lines of a streaming list; the watch that follows it is closed."""
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": selector(kind),
    }
    response = pool.request("GET", url + kind.path, fields=query, preload_content=False)
    rest = b""
    try:
        for chunk in response.read_chunked(_READ):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    finally:
        response.close()


class _Client:
    """The lists of the Kubernetes client, one method for all kinds."""

    def __init__(self, url: str) -> None:
        # Here and not above: the scan needs none of it, and its peak is counted over its imports.
        from kubernetes import client  # noqa: PLC0415

        api = client.ApiClient(client.Configuration(host=url))
        core, batch = client.CoreV1Api(api), client.BatchV1Api(api)
        self._custom = client.CustomObjectsApi(api)
        self._lists: dict[str, Callable[..., Any]] = {
            "pods": core.list_pod_for_all_namespaces,
            "nodes": core.list_node,
            "jobs": batch.list_job_for_all_namespaces,
        }

    def list(self, kind: Kind, **options: Any) -> Any:  # noqa: ANN401 - the client has no types
        """Return a list: a model, a response, or a dict for custom resources."""
        if kind.custom:
            group, version = kind.api_version.split("/")
            return self._custom.list_cluster_custom_object(group, version, kind.plural, **options)
        return self._lists[kind.plural](label_selector=selector(kind), **options)


CASES: Final[Mapping[str, Callable[[str], Measured]]] = {
    "typed": typed,
    "raw": raw,
    "scan_pages": scan_pages,
    "scan_stream": scan_stream,
}


def main() -> None:
    """Run one case."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines", description="Read a cluster in a plain way.")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("url", help="of the API server")
    options = parser.parse_args()
    print(json.dumps(CASES[options.case](options.url)._asdict()))


if __name__ == "__main__":
    main()
