# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""From data to HTML: templates that escape what they are given, and Markdown that takes no HTML."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

HERE: Final = Path(__file__).resolve().parent
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
#: What Datadog asks of a text that is Markdown, in events.
_MARK: Final = "%%%"


class Shown(NamedTuple):
    """A widget as it is shown: HTML, whether it has no data, and the classes of its frame."""

    html: Markup
    empty: bool = False
    classes: str = ""
    style: str = ""


def filled(template: str, **values: Any) -> Markup:  # noqa: ANN401
    """Return a template with its values."""
    return Markup(_TEMPLATES.get_template(template).render(**values))  # noqa: S704 - the template has escaped them


def markdown(text: str) -> Markup:
    """Return Markdown as HTML; HTML in it is shown as text."""
    return Markup(_MARKDOWN.render(text.strip().removeprefix(_MARK).removesuffix(_MARK).strip()))  # noqa: S704


def drawing(figure: go.Figure, *, still: bool = False) -> Markup:
    """Return the place of a figure, with what the script in the page draws there; `still` ones do not react."""
    config = {"displayModeBar": False, "responsive": True, "staticPlot": still}
    described = json.loads(figure.to_json())
    # `</script>` in a name of an object must not end the script.
    body = json.dumps({**described, "config": config}, separators=(",", ":")).replace("<", "\\u003c")
    return filled("drawing.html", figure=Markup(body))  # noqa: S704
