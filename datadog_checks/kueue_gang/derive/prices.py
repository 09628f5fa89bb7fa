# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What a GPU costs, by the option `gpu_hourly_price`.

A price belongs to a GPU resource, or to the nodes that have a label. The first label of the option that the node has
decides, then the resource. A GPU without a price costs nothing that could be told. Prices are kept as whole millionths
of the currency, so that sums over thousands of GPUs that come and go stay exact.
"""

from collections.abc import Mapping

from datadog_checks.kueue_gang.facts.nodes import Node

#: Of one unit of the currency.
MILLIONTHS = 1_000_000
#: The price by label of a node that cannot be looked at, where there are such prices.
_UNKNOWN = -1


class Prices:
    """The prices of the option, in millionths for a GPU and an hour."""

    def __init__(self, prices: tuple[tuple[str, float], ...]) -> None:
        """Take (GPU resource or node `label=value`, price of a GPU for an hour)."""
        self._labels: dict[tuple[str, str], int] = {}
        self._resources: dict[str, int] = {}
        for name, price in prices:
            label, equals, value = name.partition("=")
            if equals:
                self._labels.setdefault((label, value), round(price * MILLIONTHS))
            else:
                self._resources.setdefault(name, round(price * MILLIONTHS))

    def look_of(self, node: Node | None) -> int | None:
        """Return the price that a label of a node gives, None where none does: then the resource decides."""
        if not self._labels:
            return None
        if node is None or node.labels is None:
            return _UNKNOWN
        labels = node.labels
        return next((price for (key, value), price in self._labels.items() if labels.get(key) == value), None)

    def on(self, nodes: Mapping[str, Node] | None, name: str) -> int | None:
        """Return `look_of` a node that is known by name; `nodes` is None where nobody can look at them."""
        return self.look_of(nodes.get(name) if nodes else None) if self._labels else None

    def of(self, resource: str, look: int | None) -> int | None:
        """Return the price of a GPU, given what `look_of` says of its node; None where it has none."""
        if look is not None:
            return None if look == _UNKNOWN else look
        return self._resources.get(resource)
