# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Records that many pods share: each is made once and referred to.

They are found by what they are made of, so that equal ones are recognised before any of them is read. A record is held
weakly: it goes with the last pod that has it.
"""

from collections import deque
from typing import Any, TypeVar
from weakref import WeakValueDictionary

_Record = TypeVar("_Record")


class Shared(WeakValueDictionary[Any, _Record]):
    """Records by what they are made of, for as long as a pod has them: jobs come and go, each with its own.

    The latest ones stay in any case. A pod that is not kept has none for long, and the next one is often its like.
    """

    LATEST = 256

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._latest: deque[_Record] = deque(maxlen=self.LATEST)

    def remember(self, key: object, record: _Record) -> _Record:
        """Share a record from now on; return it."""
        self[key] = record
        self._latest.append(record)
        return record
