# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A Datadog Agent check that shows what a GPU training cluster wastes, and why."""

from datadog_checks.kueue_gang.__about__ import __version__
from datadog_checks.kueue_gang.check import KueueGangCheck

__all__ = ["KueueGangCheck", "__version__"]
