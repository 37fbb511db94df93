"""The Alibaba openb trace (2023), replayed as the FGD paper does: the experiment behind `python -m bench.placement_quality`.

    trace           nodes and pods from the CSV files; the order of arrival that a seed gives
    workload        target workload M: which classes of pods are to be expected, and how often
    cluster         what is left on every node, as arrays; knows what changed since when
    fragmentation   F: idle GPU that the expected pods cannot use, from tables
    replay          pods arrive one by one and never leave; any `Placer` may place them
    policies        the six policies that the paper compares, a file each
    published       the paper's figures, and bounds that no placer can exceed
    report, plots   tables and pictures of runs

Method and formulas: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, and the paper's
artefact. Everything is a function of data and seeds; nothing is timed.
"""
