# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Dashboards without an account: their own queries over what the check sent, as one page of HTML.

    make preview

A scenario is played through the real check (lab.play). The dashboards of assets/dashboards are then drawn widget by
widget from their own JSON, over that timeline. The rules of the app that matter are kept: the grid, spans, units,
conditional formats, orders and limits. What a dashboard asks for and the preview does not know is an error, so that
nothing is left out in silence.

It cannot show how the app itself looks today, only what it would be told: tones and sizes are near to it, no more.
"""
