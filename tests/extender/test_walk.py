"""The walk of one pod, in code: what `docs/walk-of-one-pod.md` tells, on a cluster of four machines, without a socket.

Read it from top to bottom. The pod asks for two GPUs and a floor of 100 GB/s; kube-scheduler has found four nodes that fit by count.
"""

import httpx

from extender.app import from_snapshot
from extender.settings import Settings
from tests.builders import cluster, pod


async def test_the_walk_of_one_pod():
    # A cluster as `kubectl get nodes,gputopologies,pods` prints it: three machines with NVLink, one without. On the bridged one GPUs 0 and 2 share a
    # bridge, 1 and 3, 4 and 5, 6 and 7; another pod holds GPU 2.
    machines = cluster().nvswitch("switched").bridges("bridged").mesh("mesh").pcie("plain")
    other = pod("other").holding("bridged", machines.uuids("bridged")[2])
    train = pod("train").gpus(2).min_bandwidth(100)
    app, problems = from_snapshot(machines.with_pods(other, train).snapshot(), Settings())
    assert problems == []

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://linkwise") as kube_scheduler:
        # Filter. Every node that can take the pod comes back, so that kube-scheduler's other plugins keep their say; every other one comes back with a
        # reason. Two GPUs of the plain machine reach each other over PCIe at best.
        asked = {"Pod": train.build(), "NodeNames": ["switched", "bridged", "mesh", "plain"], "Nodes": None}
        filtered = (await kube_scheduler.post("/filter", json=asked)).json()
        assert filtered["NodeNames"] == ["switched", "bridged", "mesh"]
        assert filtered["FailedAndUnresolvableNodes"] == {"plain": "linkwise: best pair 27 GB/s over PIX, min-bandwidth 100 asked"}

        # Prioritize. Exactly one node gets 10, the others fall by what they lose against it: H100s behind NVSwitch carry 450 GB/s between any two, a bridge
        # of twelve links 300, four links of the mesh 100.
        asked["NodeNames"] = filtered["NodeNames"]
        scores = (await kube_scheduler.post("/prioritize", json=asked)).json()
        assert {each["Host"]: each["Score"] for each in scores} == {"switched": 10, "bridged": 5, "mesh": 1}

        # Bind. Other plugins had their say and kube-scheduler chose the bridged node. GPUs 0 and 1 are the lowest free ones, but share no bridge, and the
        # bridge of GPU 0 leads to the one that is held: the pod gets 1 and 3.
        call = {"PodNamespace": "default", "PodName": "train", "PodUID": train.uid, "Node": "bridged"}
        assert (await kube_scheduler.post("/bind", json=call)).json() == {"Error": ""}

        # Node and allocation went out in one write, and the state shows who holds what.
        node = (await kube_scheduler.get("/api/v1/nodes/bridged")).json()
        assert [gpu["heldBy"] for gpu in node["gpus"]] == [None, "default/train", "default/other", "default/train", None, None, None, None]

        # Calling again changes nothing. Another node is refused by name.
        assert (await kube_scheduler.post("/bind", json=call)).json() == {"Error": ""}
        elsewhere = (await kube_scheduler.post("/bind", json={**call, "Node": "switched"})).json()
        assert elsewhere == {"Error": "pod default/train is bound to node bridged already, not to switched"}

        # Why there, and why not elsewhere, can be asked afterwards: `linkwise explain pod default/train`.
        told = (await kube_scheduler.get("/api/v1/pods/default/train/decision")).json()
        assert told["bound"] == {"node": "bridged", "error": None, "gpus": [1, 3], "bandwidthGBps": 300.0, "worstLink": "NV12"}
        reasons = {each["node"]: each["reason"] for each in told["nodes"] if not each["fits"]}
        assert reasons["plain"] == "8 of 8 GPUs free, best pair 27 GB/s over PIX, 100 asked"
