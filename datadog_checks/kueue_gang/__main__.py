# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""`python -m datadog_checks.kueue_gang`: the commands, also in the Agent's own Python."""

import sys

from datadog_checks.kueue_gang.commands import main

if __name__ == "__main__":
    sys.exit(main())
