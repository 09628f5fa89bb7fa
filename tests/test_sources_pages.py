# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Cutting a page of a list into its items: for any list the items are those that decoding the whole page gives."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadog_checks.kueue_gang.sources.pages import list_items, list_metadata
from lab.replay import CAPTURES, Recording, moments

#: Texts that look like the places where a page is cut.
TRAPS = st.sampled_from(
    ['},{"metadata":{', '"items":[', '],"kind":"PodList","metadata":{}}', "]}", "\\", '"', "\u2028", "a"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TRAPS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "items", "apiVersion", "spec", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(["metadata", "apiVersion", "kind", "spec", "status"]), VALUES, max_size=4)


def head_first(items: list[object], metadata: dict[str, str]) -> bytes:
    """Return a list as the API server writes one of a core type."""
    return orjson.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})


def head_last(items: list[object], metadata: dict[str, str]) -> bytes:
    """Return a list as the API server writes one of a custom resource."""
    return orjson.dumps({"apiVersion": "x/v1", "items": items, "kind": "WorkloadList", "metadata": metadata})


def pretty(items: list[object], metadata: dict[str, str]) -> bytes:
    """Return a list as a person would write it."""
    return json.dumps({"metadata": metadata, "items": items}, indent=2).encode()


@pytest.mark.parametrize("form", [head_first, head_last, pretty])
@settings(max_examples=400, deadline=None)
@given(items=st.lists(OBJECTS, max_size=6))
def test_items_of_any_list(form, items):
    """The items are the ones of the page, in their order, whatever stands inside of them and in which form it comes."""
    body = form(items, {"resourceVersion": "12", "continue": "abc"})
    assert list(list_items(body)) == items
    assert list_metadata(body)["resourceVersion"] == "12"
    assert list_metadata(body)["continue"] == "abc"


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"items":[', b'{"items":5}', b"{}", b"<html>", b'{"items":[{]}']
)
def test_no_list(body):
    """What is no JSON object with a list of items is refused, never an empty list."""
    with pytest.raises(ValueError, match=r"JSON|char"):
        list(list_items(body))


def test_a_list_without_items_is_empty():
    """Go writes a slice that was never made as null."""
    assert list(list_items(b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":null}')) == []


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_a_page_that_was_cut_is_refused(cut):
    """Half a page gives an error, not half of its items as if they were all."""
    body = head_first([{"metadata": {"name": f"p{n}"}} for n in range(50)], {"resourceVersion": "1"})
    with pytest.raises(ValueError, match=r"JSON|char"):
        list(list_items(body[: int(len(body) * cut)]))


def test_recorded_lists():
    """Every recorded list of a real API server is cut into exactly its items."""
    for archive in sorted(CAPTURES.glob("*.tar.xz")):
        if archive.name in {"discovery.tar.xz", "watch.tar.xz"}:
            continue
        for name, body in Recording.open(archive, moments(archive)[0]).lists.items():
            assert list(list_items(body)) == (orjson.loads(body)["items"] or []), name
