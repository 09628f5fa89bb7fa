# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""How the cluster is read: bytes from three kinds of servers, and an error that says what to do where there are none.

`connection` reaches a server, `api` lists the objects of the Kubernetes API that `resources` names, `kueue_metrics`
scrapes Kueue, `scheduler_metrics` reads the gang scheduler, `signals` asks exporters and Prometheus servers for what
GPUs and training jobs do. What a source cannot read is a `SourceError` of `errors`.
Nothing here knows what the data means.
"""
