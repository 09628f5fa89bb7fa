# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What the facts mean. Pure: the same facts, options and time give the same picture, in any order of the input.

* `components`: the pods and objects that are tied to one another; what changes in one touches no other.
* `membership`: which pods are one gang, and how many it needs; `sizes`: where only the pods tell that; `gangs`: what a
  gang is made of and called.
* `members`: the class of each member pod.
* `permit`: which of the possible Permit waiters wait for certain; `traces`: which schedulers show them.
* `states`: the state of each gang and its clock.
* `gpus`: which GPUs are busy, idle or of no gang, and what the nodes have free.
* `taints`: which nodes take pods.
* `domains`: the domains of a topology over the nodes of one flavor; `topology`: those of all flavors; `placement`:
  where gangs lie in them, and whether that is what they asked for.
* `quota`: GPU quota that is reserved without pods, or that no node stands behind.
* `guard`: the gangs that no gang scheduler protects.
* `transitions`: what is remembered from one picture to the next.
* `drawing`: what is told of one component; `told`: of all of them; `picture`: all of it together; `deriver`: only what
  changed, anew.

The rules are those of the gang model (docs/model.md). Three laws stand over all: count pods, not promises; unknown is
not zero; never call a working GPU idle.
"""
