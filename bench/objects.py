# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""Objects as an API server encodes them, as templates with places to fill in.

What an object costs a reader is its bytes: half of a pod is managedFields, volumes, environment and statuses that
nobody asks for, and a bench of small objects would flatter whoever decodes them. So each kind of object is written
down whole, once, in the order in which the server writes it: objects of built-in kinds in the order of their Go
structs, custom resources sorted by key. managedFields are computed from what each manager owns (`owned`), as the
server does.

A place is `@name@` inside a string, or the string `#name#` where a number or another piece of JSON belongs. A template
is encoded once; an object of 10 KB is then one formatting operation, which makes 100,000 of them a matter of seconds.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import orjson

Json = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
BLOCK_LABEL: Final = "cloud.provider.com/topology-block"
RACK_LABEL: Final = "cloud.provider.com/topology-rack"
HOST_LABEL: Final = "kubernetes.io/hostname"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
FLAVOR: Final = "h100"
TOPOLOGY: Final = "dc-topology"

_PLACE: Final = re.compile(r'"#(\w+)#"|@(\w+)@')


class Template:
    """An object with places. `custom` tells a custom resource, whose keys are sorted."""

    def __init__(self, obj: Json, *, custom: bool = False) -> None:
        """Encode it."""
        text = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS if custom else 0).decode()
        self._format = _PLACE.sub(lambda place: f"%({place[1] or place[2]})s", text.replace("%", "%%"))

    def fill(self, values: Mapping[str, object]) -> bytes:
        """Return the object with its places filled. Raises KeyError where a value is missing."""
        return (self._format % values).encode()


# --- managedFields ---------------------------------------------------------------------------------------------------

#: Lists whose items are owned one by one, and the key by which an item is known.
_ITEM_KEYS: Final = {
    "addresses": "type", "conditions": "type", "containers": "name", "env": "name", "flavorsReservation": "name",
    "flavorsUsage": "name", "initContainers": "name", "ownerReferences": "uid", "podIPs": "ip",
    "podSetAssignments": "name", "podSets": "name", "resources": "name", "volumeMounts": "mountPath", "volumes": "name",
}  # fmt: skip
#: Fields that are owned as a whole.
_ATOMIC: Final = frozenset(
    {"fieldRef", "nodeSelector", "secretKeyRef", "configMap", "projected", "securityContext", "matchLabels", "images"}
)  # fmt: skip
#: Metadata that nobody owns.
_UNOWNED: Final = frozenset({"creationTimestamp", "generation", "name", "namespace", "resourceVersion", "uid"})


def owned(value: object, key: str = "") -> Json:
    """Return the FieldsV1 of a value: what its manager owns."""
    if isinstance(value, dict) and key not in _ATOMIC:
        fields = {f"f:{name}": owned(item, name) for name, item in sorted(value.items())}
        return {".": {}, **fields} if key and fields else fields
    if isinstance(value, list) and key == "finalizers":
        return {".": {}, **{f'v:"{item}"': {} for item in value}}
    if isinstance(value, list) and key in _ITEM_KEYS:
        merge = _ITEM_KEYS[key]
        items = {f'k:{{"{merge}":"{item[merge]}"}}': item for item in value}
        # An owner reference is owned as a whole.
        return {".": {}, **{name: {} if merge == "uid" else {".": {}, **owned(item)} for name, item in items.items()}}
    return {}


def _manager(name: str, api_version: str, time: str, value: Json, *, status: bool = False, apply: bool = False) -> Json:
    """Return an entry of managedFields, in the order of its Go struct."""
    entry: Json = {
        "manager": name,
        "operation": "Apply" if apply else "Update",
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        # An owner of all of a part owns the part; of metadata, spec and status it owns some.
        "fieldsV1": {f"f:{part}": _without_dot(owned(fields, part)) for part, fields in value.items()},
    }
    return {**entry, "subresource": "status"} if status else entry


def _without_dot(fields: Json) -> Json:
    return {name: field for name, field in fields.items() if name != "."}


def _ownable(metadata: Json) -> Json:
    return {name: value for name, value in metadata.items() if name not in _UNOWNED}


# --- pods ------------------------------------------------------------------------------------------------------------

_IMAGE: Final = "registry.example/ml-platform/trainer:2026.11.3-cuda12.8"
_MOUNTS: Final = (("dshm", "/dev/shm"), ("datasets", "/mnt/datasets"), ("checkpoints", "/mnt/checkpoints"))  # noqa: S108 - where a pod has it
_SETTINGS: Final = {
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_2,mlx5_3",
    "NCCL_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "8",
    "MASTER_ADDR": "@job@-0.@job@.@namespace@.svc.cluster.local",
    "MASTER_PORT": "29500",
    "CHECKPOINT_URI": "s3://training-checkpoints/@namespace@/@job@",
}
_TOKEN: Final = "kube-api-access-@suffix@"  # noqa: S105 - the name of a volume
_TOKEN_VOLUME: Final[Json] = {
    "name": _TOKEN,
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
        "defaultMode": 420,
    },
}
_TOKEN_MOUNT: Final[Json] = {
    "name": _TOKEN,
    "readOnly": True,
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
}
_TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for trouble in ("not-ready", "unreachable")
]


def _resources(*, gpus: bool) -> Json:
    cpu: Json = {"cpu": "12" if gpus else "500m", "memory": "96Gi" if gpus else "2Gi"}
    return {"limits": {GPU: "@gpus@"}, "requests": {**cpu, GPU: "@gpus@"}} if gpus else {"requests": cpu}


def _container(name: str, image: str, resources: Json, *, indexed: bool) -> Json:
    index = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_LABEL}']"}
    env: list[Json] = [{"name": setting, "value": value} for setting, value in _SETTINGS.items()]
    env += [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": index}}] if indexed else []
    return {
        "name": name,
        "image": image,
        "env": env,
        "resources": resources,
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in _MOUNTS],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _asked(*, gpus: bool, indexed: bool, scheduler: str) -> Json:
    """Return the pod spec that a user writes into a job."""
    shipper = _container(
        "log-shipper", "registry.example/ml-platform/shipper:0.9.4", _resources(gpus=False), indexed=False
    )
    shipper |= {"env": shipper["env"][-1:], "volumeMounts": shipper["volumeMounts"][-1:], "restartPolicy": "Always"}
    spec: Json = {
        "volumes": [
            {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {"name": "datasets", "persistentVolumeClaim": {"claimName": "datasets-@namespace@", "readOnly": True}},
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints-@namespace@"}},
        ],
        "initContainers": [shipper],
        "containers": [_container("train", _IMAGE, _resources(gpus=gpus), indexed=indexed)],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "dnsPolicy": "ClusterFirst",
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "securityContext": {},
        "schedulerName": scheduler,
    }
    if not gpus:
        del spec["nodeSelector"], spec["initContainers"]
    return spec


def _bound(spec: Json, *, node: bool, hostname: bool) -> Json:
    """Return the spec of a pod: what was asked for, with what admission and scheduler have added."""
    mounted = {**spec, "volumes": [*spec["volumes"], _TOKEN_VOLUME]}
    for containers in ("initContainers", "containers"):
        if containers in spec:
            mounted[containers] = [
                {**container, "volumeMounts": [*container["volumeMounts"], _TOKEN_MOUNT]}
                for container in spec[containers]
            ]
    added: Json = {
        "serviceAccountName": "default",
        "serviceAccount": "default",
        **({"nodeName": "@node@"} if node else {}),
        "securityContext": {},
        **({"hostname": "@job@-@index@"} if hostname else {}),
        "schedulerName": spec["schedulerName"],
        "tolerations": _TOLERATIONS,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    return {**{key: value for key, value in mounted.items() if key not in added}, **added}


def _condition(
    kind: str, status: str, time: str, *, reason: str = "", message: str = "", observed: bool = True
) -> Json:
    """Return a pod's condition."""
    return {
        "type": kind,
        **({"observedGeneration": 1} if observed else {}),
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": time,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def _container_status(container: Json, *, done: bool) -> Json:
    container_id = "containerd://@digest@"
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": "@started@", "finishedAt": "@ended@"}
    state: Json = {"running": {"startedAt": "@started@"}}
    if done:
        state = {"terminated": {**ended, "containerID": container_id}}
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": not done,
        "restartCount": 0,
        "image": container["image"],
        "imageID": f"{container['image'].partition(':')[0]}@sha256:{'6f3c1e5d0b1a4c7e' * 4}",
        "containerID": container_id,
        "started": not done,
        "resources": container["resources"],
        "volumeMounts": [
            {"name": mount["name"], "mountPath": mount["mountPath"],
             **({"readOnly": True, "recursiveReadOnly": "Disabled"} if "readOnly" in mount else {})}
            for mount in container["volumeMounts"]
        ],
    }  # fmt: skip


def _status(state: str, spec: Json) -> Json:
    """Return a pod's status; `state` is running, done, unschedulable or waiting (in Permit)."""
    if state == "waiting":
        return {"phase": "Pending", "nominatedNodeName": "@node@", "qosClass": "Burstable"}
    if state == "unschedulable":
        failed = _condition("PodScheduled", "False", "@failed@", reason="Unschedulable", message="@message@")
        return {"phase": "Pending", "conditions": [failed], "qosClass": "Burstable"}
    done = state == "done"
    ready: Json = (
        {"status": "False", "time": "@ended@", "reason": "PodCompleted"}
        if done
        else {"status": "True", "time": "@ready_at@"}
    )
    sandbox = ("False", "@ended@") if done else ("True", "@ready_at@")
    conditions = [
        _condition("PodReadyToStartContainers", *sandbox),
        _condition("Initialized", "True", "@started@"),
        _condition("ContainersReady", **ready),
        _condition("Ready", **ready),
        _condition("PodScheduled", "True", "@started@", observed=False),
    ]
    init = [_container_status(container, done=False) for container in spec.get("initContainers", ())]
    return {
        "observedGeneration": 1,
        "phase": "Succeeded" if done else "Running",
        "conditions": conditions,
        "hostIP": "@host_ip@",
        "hostIPs": [{"ip": "@host_ip@"}],
        "podIP": "@ip@",
        "podIPs": [{"ip": "@ip@"}],
        "startTime": "@started@",
        **({"initContainerStatuses": init} if init else {}),
        "containerStatuses": [_container_status(container, done=done) for container in spec["containers"]],
        "qosClass": "Burstable",
    }


_COMMON_LABELS: Final = {
    "app.kubernetes.io/managed-by": "ml-platform",
    "app.kubernetes.io/part-of": "training",
    "cost-center": "@cost@",
    "team": "@namespace@",
}
_COMMON_ANNOTATIONS: Final = {
    "ml-platform.example/experiment": "https://experiments.example/@namespace@/@job@",
    "ml-platform.example/submitted-by": "pipeline-@cost@@example.com",
}
_JOB_LABELS: Final = {
    "batch.kubernetes.io/controller-uid": "@job_uid@",
    "batch.kubernetes.io/job-name": "@job@",
    "controller-uid": "@job_uid@",
    "job-name": "@job@",
}
_KUEUE_LABELS: Final = {
    "kueue.x-k8s.io/cluster-queue-name": "@cluster_queue@",
    "kueue.x-k8s.io/local-queue-name": "@queue@",
    "kueue.x-k8s.io/podset": "main",
}


@cache
def pod(engine: str, state: str) -> Template:
    """Return the template of a pod.

    `engine` is coscheduling or kueue for a member of a gang, gpu for a pod with a GPU and cpu for one without, both of
    a ReplicaSet. `state` is running, done, unschedulable or waiting.
    """
    member = engine in {"coscheduling", "kueue"}
    scheduler = "scheduler-plugins-scheduler" if engine == "coscheduling" else "default-scheduler"
    asked = _asked(gpus=engine != "cpu", indexed=member, scheduler=scheduler)
    spec = _bound(asked, node=state in {"running", "done"}, hostname=member)
    status = _status(state, spec)
    labels = {**_COMMON_LABELS, "pod-template-hash": "@hash@"}
    annotations = dict(_COMMON_ANNOTATIONS)
    if member:
        labels = {**_COMMON_LABELS, **_JOB_LABELS, INDEX_LABEL: "@index@"}
        labels |= {POD_GROUP_LABEL: "@job@"} if engine == "coscheduling" else _KUEUE_LABELS
        annotations |= {INDEX_LABEL: "@index@"}
        annotations |= {"kueue.x-k8s.io/workload": "@workload@"} if engine == "kueue" else {}
    owner = ("batch/v1", "Job") if member else ("apps/v1", "ReplicaSet")
    metadata: Json = {
        "name": "@name@",
        "generateName": "@generate@",
        "namespace": "@namespace@",
        "uid": "@uid@",
        "resourceVersion": "@version@",
        "generation": 1,
        "creationTimestamp": "@created@",
        "labels": dict(sorted(labels.items())),
        "annotations": dict(sorted(annotations.items())),
        "ownerReferences": [
            {"apiVersion": owner[0], "kind": owner[1], "name": "@job@", "uid": "@job_uid@", "controller": True,
             "blockOwnerDeletion": True}
        ],
        **({"finalizers": ["batch.kubernetes.io/job-tracking"]} if member else {}),
    }  # fmt: skip
    writer, time = ("kubelet", "@ready_at@") if "containerStatuses" in status else ("kube-scheduler", "@failed@")
    posted = {key: value for key, value in status.items() if key not in {"qosClass", "phase"} or writer == "kubelet"}
    metadata["managedFields"] = [
        _manager("kube-controller-manager", "v1", "@created@", {"metadata": _ownable(metadata), "spec": asked}),
        _manager(writer, "v1", time, {"status": posted}, status=True),
    ]
    return Template({"metadata": metadata, "spec": spec, "status": status})


# --- nodes -----------------------------------------------------------------------------------------------------------

_IMAGES: Final = (
    "cuda-samples", "dcgm-exporter", "device-plugin", "driver-manager", "feature-discovery", "ingress-controller",
    "kube-proxy", "kube-state-metrics", "mig-manager", "network-operator", "node-exporter", "pause", "pytorch",
    "rdma-cni", "shipper", "storage-csi", "tensorflow", "trainer", "triton-server", "validator",
)  # fmt: skip
#: What the feature discovery of the GPU vendor and of the node writes, beside the labels of the cloud.
_GPU_LABELS: Final = {
    "nvidia.com/cuda.driver-version.full": "570.124.06",
    "nvidia.com/cuda.driver-version.major": "570",
    "nvidia.com/cuda.runtime-version.full": "12.8",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.machine": "HGX-H100",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "single",
}
_NODE_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "@ready@", "@ready_reason@", "kubelet is posting ready status"),
)


def node(*, gpus: bool, cordoned: bool = False) -> Template:
    """Return the template of a node, with eight GPUs or none."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        BLOCK_LABEL: "@block@",
        RACK_LABEL: "@rack@",
        "feature.node.kubernetes.io/cpu-model.family": "6",
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-1021-generic",
        "feature.node.kubernetes.io/pci-15b3.present": "true",
        "feature.node.kubernetes.io/rdma.available": "true",
        "kubernetes.io/arch": "amd64",
        HOST_LABEL: "@name@",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8xlarge" if gpus else "std.16xlarge",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": "zone-@block@",
        **(_GPU_LABELS if gpus else {}),
    }
    resources: Json = {"cpu": "192", "ephemeral-storage": "1000Gi", "hugepages-2Mi": "0", "memory": "2Ti"}
    resources |= {GPU: "8"} if gpus else {}
    resources |= {"pods": "110"}
    status: Json = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            {"type": kind, "status": status, "lastHeartbeatTime": "@beat@", "lastTransitionTime": "@created@",
             "reason": reason, "message": message}
            for kind, status, reason, message in _NODE_CONDITIONS
        ],
        "addresses": [{"type": "InternalIP", "address": "@ip@"}, {"type": "Hostname", "address": "@name@"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": "@machine@",
            "systemUUID": "@uid@",
            "bootID": "@uid@",
            "kernelVersion": "6.8.0-1021-generic",
            "osImage": "Ubuntu 24.04.2 LTS",
            "containerRuntimeVersion": "containerd://2.1.3",
            "kubeletVersion": "v1.36.2",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [_image(image, release) for image in _IMAGES for release in (1, 2)],
    }  # fmt: skip
    annotations = {
        "csi.volume.kubernetes.io/nodeid": '{"block.csi.example.com":"@machine@","files.csi.example.com":"@machine@"}',
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    # The kubelet does not own the taint of cordoning; the controller manager writes both.
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "@created@"}
    spec: Json = {
        "podCIDR": "@cidr@",
        "podCIDRs": ["@cidr@"],
        "providerID": "cloud:///zone-@block@/@machine@",
        **({"taints": [taint], "unschedulable": True} if cordoned else {}),
    }
    metadata: Json = {
        "name": "@name@",
        "uid": "@uid@",
        "resourceVersion": "@version@",
        "creationTimestamp": "@created@",
        "labels": dict(sorted(labels.items())),
        "annotations": annotations,
    }
    metadata["managedFields"] = [
        _manager("kube-controller-manager", "v1", "@created@", {"spec": spec}),
        _manager("kubelet", "v1", "@created@", {"metadata": _ownable(metadata)}),
        _manager("kubelet", "v1", "@beat@", {"status": status}, status=True),
    ]
    return Template({"metadata": metadata, "spec": spec, "status": status})


def _image(name: str, release: int) -> Json:
    repository = f"registry.example/platform/{name}"
    return {
        "names": [f"{repository}@sha256:{name.encode().hex():0<64.64}", f"{repository}:v{release}.14.{len(name)}"],
        "sizeBytes": 48_000_000 * release * len(name),
    }


# --- jobs and Kueue --------------------------------------------------------------------------------------------------


@cache
def job(engine: str, *, suspended: bool = False) -> Template:
    """Return the template of a batch Job of `#size#` Indexed pods."""
    scheduler = "scheduler-plugins-scheduler" if engine == "coscheduling" else "default-scheduler"
    queued = engine == "kueue"
    labels = {**_COMMON_LABELS, **_JOB_LABELS, **(_KUEUE_LABELS if queued else {POD_GROUP_LABEL: "@job@"})}
    spec: Json = {
        "parallelism": "#size#",
        "completions": "#size#",
        "backoffLimit": 0,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "@job_uid@"}},
        "manualSelector": False,
        "template": {
            "metadata": {
                "labels": dict(sorted(labels.items())),
                "annotations": {**({"kueue.x-k8s.io/workload": "@workload@"} if queued else {}), **_COMMON_ANNOTATIONS},
            },
            "spec": _asked(gpus=True, indexed=False, scheduler=scheduler),
        },
        "completionMode": "Indexed",
        "suspend": suspended,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    change = ("True", "JobSuspended", "Job suspended") if suspended else ("False", "JobResumed", "Job resumed")
    condition = {
        "type": "Suspended", "status": change[0], "lastProbeTime": "@created@", "lastTransitionTime": "@created@",
        "reason": change[1], "message": change[2],
    }  # fmt: skip
    status: Json = {
        **({"conditions": [condition]} if queued else {}),
        **({} if suspended else {"startTime": "@created@", "active": "#size#"}),
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "ready": "#ready#",
    }
    metadata: Json = {
        "name": "@job@",
        "namespace": "@namespace@",
        "uid": "@job_uid@",
        "resourceVersion": "@version@",
        "generation": 1,
        "creationTimestamp": "@created@",
        "labels": {**_COMMON_LABELS, **({QUEUE_LABEL: "@queue@"} if queued else {})},
        "annotations": _COMMON_ANNOTATIONS,
    }
    metadata["managedFields"] = [
        _manager("pipeline", "batch/v1", "@created@", {"metadata": _ownable(metadata), "spec": spec}),
        _manager("kube-controller-manager", "batch/v1", "@created@", {"status": status}, status=True),
    ]
    return Template({"metadata": metadata, "spec": spec, "status": status})


_NO_QUOTA: Final = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, "
    "16 more needed"
)
#: State of a Workload -> its conditions: type, status, reason, message.
_ADMITTED: Final = (
    ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue @cluster_queue@"),
    ("Admitted", "True", "Admitted", "The workload is admitted"),
)
_WORKLOAD_CONDITIONS: Final[Mapping[str, Sequence[tuple[str, str, str, str]]]] = {
    "running": (
        ("PodsReady", "True", "Started", "All pods reached readiness and the workload is running"),
        *_ADMITTED,
    ),
    "partial": (("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"), *_ADMITTED),
    "queued": (
        ("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"),
        ("QuotaReserved", "False", "Pending", _NO_QUOTA),
    ),
    "finished": (
        ("Finished", "True", "Succeeded", "Reached expected number of succeeded pods"),
        ("PodsReady", "True", "Started", "All pods reached readiness and the workload is running"),
        *_ADMITTED,
    ),
}  # fmt: skip


@cache
def workload(state: str) -> Template:
    """Return the template of a Workload: running, partial, queued or finished. Its places hold the nodes' names."""
    admission: Json = {
        "clusterQueue": "@cluster_queue@",
        "podSetAssignments": [
            {
                "count": "#size#",
                "flavors": {"cpu": FLAVOR, "memory": FLAVOR, GPU: FLAVOR},
                "name": "main",
                "resourceUsage": {"cpu": "@cpus@", "memory": "@memory@Gi", GPU: "@all_gpus@"},
                "topologyAssignment": {
                    "levels": [HOST_LABEL],
                    "slices": [
                        {
                            "domainCount": "#domains#",
                            "podCounts": {"individual": "#counts#"},
                            "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": "#roots#"}}],
                        }
                    ],
                },
            }
        ],
    }
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "@created@",
         "observedGeneration": 1}
        for kind, status, reason, message in _WORKLOAD_CONDITIONS[state]
    ]  # fmt: skip
    status: Json = {"conditions": conditions}
    status |= {} if state == "queued" else {"admission": admission}
    labels = {**_COMMON_LABELS, **_JOB_LABELS}
    spec: Json = {
        "active": True,
        "podSets": [
            {
                "count": "#size#",
                "name": "main",
                "template": {
                    "metadata": {"labels": labels, "annotations": _COMMON_ANNOTATIONS},
                    "spec": _asked(gpus=True, indexed=False, scheduler="default-scheduler"),
                },
                "topologyRequest": {"podIndexLabel": INDEX_LABEL, "preferred": RACK_LABEL},
            }
        ],
        "priority": 0,
        "queueName": "@queue@",
    }
    metadata: Json = {
        "name": "@workload@",
        "namespace": "@namespace@",
        "uid": "@workload_uid@",
        "resourceVersion": "@version@",
        "generation": 1,
        "creationTimestamp": "@created@",
        "labels": {"kueue.x-k8s.io/job-uid": "@job_uid@"},
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": [
            {"apiVersion": "batch/v1", "blockOwnerDeletion": True, "controller": True, "kind": "Job", "name": "@job@",
             "uid": "@job_uid@"}
        ],
    }  # fmt: skip
    metadata["managedFields"] = [
        _manager("kueue-admission", KUEUE, "@created@", {"status": status}, status=True, apply=True),
        _manager("kueue", KUEUE, "@created@", {"metadata": _ownable(metadata), "spec": spec}),
    ]
    return _custom(KUEUE, "Workload", metadata, spec=spec, status=status)


def cluster_queue() -> Template:
    """Return the template of a ClusterQueue."""
    usage = [{"name": FLAVOR, "resources": [{"name": GPU, "total": "@used@", "borrowed": "0"}]}]
    quota = [{"name": "cpu", "nominalQuota": "100k"}, {"name": "memory", "nominalQuota": "800Ti"}]
    quota += [{"name": GPU, "nominalQuota": "@quota@"}]
    spec: Json = {
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "namespaceSelector": {},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"}, "reclaimWithinCohort": "Never", "withinClusterQueue": "Never",
        },
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [
            {"coveredResources": ["cpu", "memory", GPU], "flavors": [{"name": FLAVOR, "resources": quota}]}
        ],
        "stopPolicy": "None",
    }  # fmt: skip
    return _custom(KUEUE, "ClusterQueue", _plain(), spec=spec, status=_queue_status(usage))


def local_queue() -> Template:
    """Return the template of a LocalQueue."""
    usage = [{"name": FLAVOR, "resources": [{"name": GPU, "total": "@used@"}]}]
    spec: Json = {"clusterQueue": "@cluster_queue@", "stopPolicy": "None"}
    return _custom(KUEUE, "LocalQueue", _plain(namespaced=True), spec=spec, status=_queue_status(usage))


def _queue_status(usage: Sequence[Json]) -> Json:
    return {
        "admittedWorkloads": "#admitted#",
        "conditions": [
            {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads",
             "lastTransitionTime": "@created@", "observedGeneration": 1}
        ],
        "flavorsReservation": list(usage),
        "flavorsUsage": list(usage),
        "pendingWorkloads": "#pending#",
        "reservingWorkloads": "#admitted#",
    }  # fmt: skip


def resource_flavor() -> Template:
    """Return the template of the ResourceFlavor."""
    spec = {"nodeLabels": {"nvidia.com/gpu.present": "true"}, "topologyName": TOPOLOGY}
    return _custom(KUEUE, "ResourceFlavor", _plain(), spec=spec)


def topology() -> Template:
    """Return the template of the Topology."""
    levels = [{"nodeLabel": label} for label in (BLOCK_LABEL, RACK_LABEL, HOST_LABEL)]
    return _custom(KUEUE, "Topology", _plain(), spec={"levels": levels})


@cache
def pod_group() -> Template:
    """Return the template of a Coscheduling PodGroup."""
    spec: Json = {"minMember": "#size#", "scheduleTimeoutSeconds": 60}
    status: Json = {"occupiedBy": "@namespace@/@name@", "phase": "@phase@", "running": "#ready#"}
    return _custom("scheduling.x-k8s.io/v1alpha1", "PodGroup", _plain(namespaced=True), spec=spec, status=status)


def _plain(*, namespaced: bool = False) -> Json:
    """Return the metadata of an object that `kubectl` made."""
    return {
        "name": "@name@",
        **({"namespace": "@namespace@"} if namespaced else {}),
        "uid": "@uid@",
        "resourceVersion": "@version@",
        "generation": 1,
        "creationTimestamp": "@created@",
    }


def _custom(api_version: str, kind: str, metadata: Json, **parts: Json) -> Template:
    if "managedFields" not in metadata:
        metadata["managedFields"] = [_manager("kubectl-create", api_version, "@created@", {"spec": parts["spec"]})]
        if "status" in parts:
            written = _manager("controller", api_version, "@created@", {"status": parts["status"]}, status=True)
            metadata["managedFields"].append(written)
    return Template({"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}, custom=True)
