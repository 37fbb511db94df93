"""Kubernetes objects for tests: a ready node, a pod made by a builder of `tests.builders`, and kube-scheduler's configuration.

Plain functions from values to dicts; `tests.e2e.live_cluster` sends them to the API server.
"""

from collections.abc import Mapping
from typing import Any

from tests.builders import PodBuilder

JsonObject = dict[str, Any]

GPU = "nvidia.com/gpu"
MANAGED_RESOURCES = (GPU, "linkwise.dev/gpu-memory", "aliyun.com/gpu-mem")


def node_object(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, resources: Mapping[str, str] | None = None) -> JsonObject:
    """Return a Node that is ready to take pods but for the taint that the API server gives every new one.

    ``resources`` adds to, or replaces, 128 CPUs, 1 TiB, 110 pods and ``gpus`` whole GPUs.
    """
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", **({GPU: str(gpus)} if gpus else {}), **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made ready by the test"}],
        },
    }


def pod_object(builder: PodBuilder, scheduler: str = "linkwise", **spec: Any) -> JsonObject:
    """Return the builder's pod as a user would create it: with an image, without uid and status. ``spec`` adds to, or replaces, fields of its spec."""
    item = builder.build()
    item["metadata"].pop("uid")
    item.pop("status")
    for container in [*item["spec"]["containers"], *item["spec"]["initContainers"]]:
        container.setdefault("image", "registry.example/none")
    item["spec"] |= {"schedulerName": scheduler, "terminationGracePeriodSeconds": 1, **spec}
    return item


def scheduler_configuration(extender_url: str | None, *, plugins_off: tuple[str, ...] = (), **extender: Any) -> JsonObject:
    """Return a KubeSchedulerConfiguration with the profiles `default-scheduler` and `linkwise`, and one extender where a URL is given.

    ``extender`` replaces fields of the extender, None removes one (``bindVerb=None``: kube-scheduler binds itself). ``plugins_off`` names
    score plugins to disable in the profile `linkwise` beside the usual three. The shipped configuration is manifests/scheduler-config.yaml;
    `ControlPlane.start_scheduler` takes that one as well.
    """
    off = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", *plugins_off)
    fields = {
        "urlPrefix": extender_url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 10,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": "10s",
        "managedResources": [{"name": name} for name in MANAGED_RESOURCES],
        **extender,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": "linkwise", "percentageOfNodesToScore": 100, "plugins": {"score": {"disabled": [{"name": name} for name in off]}}},
        ],
        "extenders": [{key: value for key, value in fields.items() if value is not None}] if extender_url else [],
    }
