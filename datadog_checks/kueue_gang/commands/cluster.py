# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Which cluster a command reads, and the words for what goes wrong there.

What the user named goes before what is there: a folder or a URL of the command line, then a kubeconfig that is named by
an option or by KUBECONFIG, then the service account of the pod that this runs in, then ~/.kube/config. An error gives
advice in terms of what the user can change, so each of them has words of its own.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from datadog_checks.kueue_gang.sources.connection import Connection, KubeConnection, UrlConnection
from datadog_checks.kueue_gang.sources.errors import KUBE_API_URL, KUBE_CONFIG, Target, harmless
from datadog_checks.kueue_gang.sources.folder import FolderConnection


def connect(options: argparse.Namespace) -> Connection:
    """Return the connection that the options of a command ask for."""
    if options.folder:
        return FolderConnection(options.folder)
    later = "try it again" if options.watch is None else "it is tried again"
    if options.url:
        target = replace(_URL, wrong=f"is {harmless(options.url)} the Kubernetes API? Check --url", later=later)
        return UrlConnection(options.url, {}, timeout=options.timeout, target=target)
    path = _config_path(options, os.environ)
    target = replace(_kubeconfig(path, options.context) if path else _POD, later=later)
    return KubeConnection(
        config_path=os.path.expanduser(path) if path else None,  # noqa: PTH111 - KUBECONFIG may name several files
        context=options.context,
        timeout=options.timeout,
        target=target,
    )


def _config_path(options: argparse.Namespace, environment: Mapping[str, str]) -> str | None:
    """Return the kubeconfig to use, None for the service account of the pod: what was named goes before what is there.

    KUBECONFIG may name several files.
    """
    named: str | None = options.kubeconfig or environment.get("KUBECONFIG")
    in_cluster = "KUBERNETES_SERVICE_HOST" in environment and not options.context
    return named or (None if in_cluster else "~/.kube/config")


_URL: Final = replace(
    KUBE_API_URL,
    credential="--url sends no credential: use --kubeconfig, or the URL of `kubectl proxy`",
    tls="--url trusts the certificate authorities of this machine: use --kubeconfig, or the URL of `kubectl proxy`",
    timeout="--timeout",
)
_POD: Final = replace(
    KUBE_CONFIG,
    credential="check the token of the pod's service account",
    tls="check the certificate authority of the pod's service account",
    timeout="--timeout",
    absent="check the pod's service account, or use --kubeconfig or --url",
)


def _kubeconfig(path: str, context: str | None) -> Target:
    """Return the words for the API server of a kubeconfig."""
    chosen = f"context {context} of {path}" if context else path
    return replace(
        KUBE_CONFIG,
        credential=f"check the user in {chosen}, or choose another with --kubeconfig or --context",
        tls=f"check the certificate authority in {chosen}",
        wrong=f"is this the Kubernetes API? Check the server in {chosen}",
        timeout="--timeout",
        absent=f"check {chosen}, or choose another with --kubeconfig, --context or --url",
    )
