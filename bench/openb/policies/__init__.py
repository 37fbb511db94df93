"""The six policies that the FGD paper compares, written anew from its formulas, a file each, and Linkwise itself beside them.

    random_fit      any node that fits
    dotprod         least aligned: the more the node has left of what the pod asks, the lower
    clustering      pods of one kind together
    packing         partly used GPUs before idle ones, used nodes before idle ones
    bestfit         the least left, CPU and GPU weighed equally
    fgd             fragmentation gradient descent
    linkwise        Linkwise's own code, which is not of the paper: with M given to it, as FGD has it, and counting for itself (`linkwise-online`)

`scored` holds what they share: a score a node, kept until that node changes. All scores are integers from 0 to 100, as kube-scheduler's are; the floor matters, as it
makes ties. A policy that is not of the paper joins `POLICIES` with one line; it may be any `Placer`.
"""

from typing import Final

from bench.openb.policies import bestfit, clustering, dotprod, fgd, linkwise, packing, random_fit
from bench.openb.replay import Policy

POLICIES: Final[dict[str, Policy]] = {
    "random": random_fit.RandomFit,
    "dotprod": dotprod.DotProduct,
    "clustering": clustering.Clustering,
    "packing": packing.Packing,
    "bestfit": bestfit.BestFit,
    "fgd": fgd.FGD,
    "linkwise": linkwise.LinkwisePolicy,
    "linkwise-online": linkwise.OnlinePolicy,
}

__all__ = ["POLICIES"]
