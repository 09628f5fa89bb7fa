# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How much the check costs on a large cluster, against plainer ways to read it: `python -m bench.run`, `make bench`."""
