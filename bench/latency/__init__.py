"""How long an extender keeps kube-scheduler waiting. The commands are `bench.decision_latency`, `bench.nodes_form`, `bench.scale` and `bench.flame`.

    scene            the cluster of one measurement, as a snapshot with the pods that will come
    servers          what is measured, as processes: a bare ASGI echo, an empty extender in Go, Linkwise (linkwise_server)
    load, node_list  what is sent: the bytes of kube-scheduler's calls, with names or with whole Nodes
    wire             sent and timed over raw sockets
    walk | crowd     filter, prioritize and bind of one pod after the other over one connection | filter over four connections
    answers          every answer is looked at, outside the timed part
    churn            who leaves, so that the cluster stays as full as it was
    typed_names | decoded | resident   floors of reading names and of starting | memory and processor time of a process
    percentiles      many times in a few figures
    report | plots   figures as tables, verdicts and JSON | as pictures

None of these knows the extender but through HTTP, apart from `linkwise_server`, which is the extender.
"""
