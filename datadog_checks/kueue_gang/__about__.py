# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The version of the package, in the one place that the build and the Agent read it from."""

__version__ = "0.1.0"
