# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""A training cluster that is only simulated: what happens in it, in virtual time, and the objects that tell of it.

Every part of a cluster that leaves a trace in what the check reads has a small double here, a module each: Kueue
(`kueue`, `topology`), the job controller (`jobs`), the schedulers with their Permit phase (`scheduler`), the kubelets
(`kubelet`). They act on the records of `state` at the times that `engine` gives them, and `objects` writes the records
down as a real API server was recorded to show them. `world` holds all of it and hands what changed to an `ApiServer`.
`scenario` reads the files that say what the cluster is and what goes wrong in it (`faults`).

Nothing here waits, and nothing is left to chance but by the seed of the scenario: the same file gives the same history.
"""
