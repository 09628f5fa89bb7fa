# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Instances as the Agent loads them: the model of one that it accepts, and the text on one that it refuses."""

from typing import Any

import pytest
from datadog_checks.base import AgentCheck, ConfigurationError

from datadog_checks.kueue_gang.config_models.instance import InstanceConfig


class Probe(AgentCheck):
    """An instance as the Agent loads it: with the models of this package, and the Agent's own texts on errors."""

    def __init__(self, instance: dict[str, Any]) -> None:
        super().__init__("kueue_gang", {}, [instance])
        self.load_configuration_models("datadog_checks.kueue_gang.config_models")


def load(**instance: Any) -> InstanceConfig:
    """Return the model of an instance that the Agent accepts."""
    return Probe(instance)._config_model_instance


def refusal(**instance: Any) -> str:
    """Return what the Agent says of an instance that it refuses."""
    with pytest.raises(ConfigurationError) as caught:
        Probe(instance)
    return str(caught.value)
