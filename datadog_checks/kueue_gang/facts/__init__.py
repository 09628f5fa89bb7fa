# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What was read from the cluster: small frozen records, and the pure functions that make them from API JSON.

A reducer takes one decoded object and returns its fact, or None where the check has no use for the object. What is
not in the fact is forgotten at once: a pod of 10 KB becomes a record of a few hundred bytes. A reducer never guesses.
Where a field that it needs has the wrong type or an impossible value it raises `BadObjectError`; the source counts the
object, names the reason in a debug line, and goes on with the next one.

This package knows the Kubernetes API and the standard library, and nothing else.
"""

from datadog_checks.kueue_gang.facts.fields import BadObjectError

__all__ = ["BadObjectError"]
