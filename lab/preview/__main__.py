# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The dashboards of a scenario as a page of HTML.

    python -m lab.preview [--scenario NAME]... [--out FILE] [--at TIME]

One scenario gives one page; several give a folder with a page each and an index. Nothing is sent anywhere, and the
pages need no network.
"""
