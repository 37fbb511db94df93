"""The experiment of the MAPA paper (SC'21): five machines, a stream of 300 jobs, one machine at a time, first in first out.

Machines come from the data folder (`mapa/topologies.json`, facts of the artefact's topology header). Jobs are drawn as the artefact's generator draws them: 2 to 5
GPUs, a ring, 5 to 24 cycles of service, one of six networks of which four are sensitive to bandwidth, all uniform. All jobs wait from the start. The list of the
paper was not published; seed 0 is the file `mapa/jobs_300_seed0.csv`.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.reference import CHOICES, LinkTable, Policy
from bench.reference import policy as reference
from bench.topology_quality import fifo, linkwise
from bench.topology_quality.fifo import Job

SIZES: Final = (2, 3, 4, 5)
SENSITIVE: Final = ("alexnet", "inception-v3", "resnet-50", "vgg16")
NETWORKS: Final = (*SENSITIVE, "googlenet", "caffenet")
JOBS: Final = 300

# Mean predicted bandwidth of sensitive jobs under preserve, GB/s: what a replay of the paper's experiment must meet.
ANCHORS: Final = {"dgx-v": 57.9, "dgx-p": 37.0, "summit": 43.6, "torus-2d": 42.5, "cubemesh-16": 44.3}

OWN_RINGS: Final = "Linkwise, own rings"
PLUGGED: Final = "Linkwise, predictor"
PLUGGED_NONE: Final = "Linkwise, predictor, insensitive as none"
POLICIES: Final = (*CHOICES, OWN_RINGS, PLUGGED, PLUGGED_NONE)


@dataclass(frozen=True, slots=True)
class Run:
    """One stream on one machine under one policy; GB/s are MAPA's prediction for the best ring over each job's set."""

    machine: str
    policy: str
    seed: int
    sensitive: tuple[float, ...]
    insensitive: tuple[float, ...]
    makespan: int  # cycles until the last job has ended


def machines(data: Path) -> dict[str, LinkTable]:
    """Return the five machines. Everything that is no NVLink is one PCIe rate there, entered as SYS."""
    described = json.loads((data / "mapa" / "topologies.json").read_text(encoding="utf-8"))
    return {
        name: LinkTable(
            codes=tuple(tuple("SYS" if code == "PCIE" else code for code in row) for row in facts["links"]),
            gb_per_s={"SYS" if code == "PCIE" else code: float(rate) for code, rate in facts["gbps"].items()},
            socket=facts["socket_group"],
        )
        for name, facts in described.items()
    }


def stream(seed: int, count: int = JOBS) -> list[Job]:
    """Return the jobs of a seed.

    >>> stream(0, 2)
    [Job(gpus=5, service=18, network='alexnet', sensitive=True), Job(gpus=4, service=21, network='vgg16', sensitive=True)]
    """
    rng = random.Random(seed)
    jobs = []
    for _ in range(count):
        gpus, service, network = rng.randrange(SIZES[0], SIZES[-1] + 1), rng.randrange(5, 25), rng.choice(NETWORKS)
        jobs.append(Job(gpus, service, network, network in SENSITIVE))
    return jobs


def policies(table: LinkTable) -> dict[str, Policy]:
    """Return all policies on one machine. Linkwise weighs remainders by the sizes that `stream` draws, as its histogram of demands would tell."""
    weights = dict.fromkeys(SIZES, 1 / len(SIZES))
    rings = linkwise.topology_class_of(table.codes, _model(table), weights=weights)
    plugged = linkwise.topology_class_of(table.codes, bandwidth_of=linkwise.predicted_up_to(table, SIZES[-1]), weights=weights)
    return {
        **{name: reference(name, table) for name in CHOICES},
        OWN_RINGS: linkwise.policy(rings),
        PLUGGED: linkwise.policy(plugged),
        PLUGGED_NONE: linkwise.policy(plugged, insensitive_as_none=True),
    }


def _model(table: LinkTable) -> str:
    """Return a product name with the NVLink rate of the table: 20 GB/s a link is Pascal, 25 Volta."""
    return "Tesla P100-SXM2-16GB" if table.gb_per_s.get("NV1") == 20 else "Tesla V100-SXM2-16GB"


def runs(data: Path, machine: str, seeds: range) -> list[Run]:
    """Return one `Run` a seed and policy on one machine."""
    table = machines(data)[machine]
    choices = policies(table)
    found = []
    for seed in seeds:
        jobs = stream(seed)
        for name, choose in choices.items():
            replayed = fifo.replay(table.size, jobs, choose)
            judged = [(job.sensitive, table.ring(mask).predicted) for job, mask in replayed.placed]
            found.append(
                Run(
                    machine,
                    name,
                    seed,
                    tuple(rate for sensitive, rate in judged if sensitive),
                    tuple(rate for sensitive, rate in judged if not sensitive),
                    replayed.makespan,
                )
            )
    return found
