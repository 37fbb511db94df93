"""The hand-off: kubelet's device plugin of the agent, which gives a container exactly the GPUs that its pod was promised.

    plugin -> registration -> server -> hand_off      kubelet's calls, in the order in which they come
                                          identity     whose ids are these: kubelet -> checkpoint, pods (pod_watch) -> pod
                                          decision     what it gets: plan, or what is free; holding, liveness -> cgroups: that nobody else has it
                                          records, container_files, cdi -> nvidia_cdi, contents -> ring      what is written, in this order
                                          steering, devices, garbage        which ids kubelet takes, their health, what is left behind

Why it is so: docs/decisions/0020-hand-off.md. For administrators: docs/hand-off.md. Only `running` starts it, where a setting says so.
"""
