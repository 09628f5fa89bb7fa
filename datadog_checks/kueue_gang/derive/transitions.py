# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What is remembered from one picture to the next.

Nothing here is needed for a right answer in the end, since it is made anew from API times: a check that was restarted
gives the same states and ages. It only remembers what the API forgets: which pods it saw as a complete gang (the newest
creation among them tells), and when a gang last needed attention. Each is one time a gang; `STILL` stands for the time
of the last picture, so that a gang in which nothing changes costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A gang's identity: (engine, namespace, name).
Key = tuple[str, str, str]

STILL = float("inf")
#: Seconds for which a gang keeps its own series after it needed attention, so that monitors see it recover.
ATTENTION_AFTER = 900.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered at the time of a picture, `at`.

    `complete` is the creation of the newest member that held GPUs when a gang was last seen complete, `attention` when
    it last needed attention.
    """

    at: float = 0.0
    complete: Mapping[Key, float] = field(default_factory=dict)
    attention: Mapping[Key, float] = field(default_factory=dict)

    def last_attention(self, key: Key) -> float | None:
        """Return when a gang last needed attention, None where it never did."""
        time = self.attention.get(key)
        return self.at if time == STILL else time
