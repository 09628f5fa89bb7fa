# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The proving ground: clusters to hold the check against. It is not part of the wheel."""
