# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is remembered from one picture to the next.

Nothing here is needed for a right answer in the end, since it is made anew from API times: a check that was restarted
gives the same states and ages. It only remembers what the API forgets: that it saw these very pods run, and that a gang
needed attention a moment ago.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A gang's identity: (engine, namespace, name).
Key = tuple[str, str, str]

#: Seconds for which a gang keeps its own series after it needed attention, so that monitors see it recover.
ATTENTION_AFTER = 900.0


@dataclass(frozen=True, slots=True)
class Memory:
    """`ran`: the pods (uids) of each gang when it last was complete. `attention`: when each gang last needed it."""

    ran: Mapping[Key, frozenset[str]] = field(default_factory=dict)
    attention: Mapping[Key, float] = field(default_factory=dict)

    def saw_run(self, key: Key, placed: frozenset[str]) -> bool:
        """Tell whether the check saw these same pods run as a complete gang."""
        return bool(placed) and placed <= self.ran.get(key, frozenset())

    def needs_attention(self, key: Key, now: float) -> bool:
        """Tell whether a gang needed attention within the last minutes."""
        last = self.attention.get(key)
        return last is not None and now - last <= ATTENTION_AFTER
