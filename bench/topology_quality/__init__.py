"""The experiments behind `python -m bench.placement_topology`: how good the chosen sets are, and what is left behind.

    mapa            five machines and the stream of jobs of the MAPA paper; fifo replays it under a policy
    golden          machines on which NVIDIA's allocator was asked for every free set; every_free_set compares, brute_force knows the truth
    remainders      pods that come and go on one machine: who still gets the best that it has
    linkwise        Linkwise's choice of a set, as a policy like those of `bench.reference`
    plots           the pictures

Every experiment is a function of seeds and data that returns plain records; the command makes tables, JSON and pictures of them.
"""
