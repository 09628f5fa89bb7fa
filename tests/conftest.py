# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What all tests share."""

from hypothesis import settings

# Examples that talk to a server or run beside other tests take as long as they take; that is no property.
settings.register_profile("here", deadline=None)
settings.load_profile("here")
