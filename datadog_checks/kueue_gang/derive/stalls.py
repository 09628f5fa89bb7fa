# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Gangs that run and do not get on, and what tells so."""

ALL_IDLE, SOME_IDLE, NO_PROGRESS, SLOW = STALLS = ("all_idle", "some_idle", "no_progress", "slow")
