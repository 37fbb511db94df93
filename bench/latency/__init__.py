"""How long an extender keeps kube-scheduler waiting. The commands are `bench.decision_latency`, `bench.nodes_form`, `bench.scale` and `bench.flame`.

servers          what is measured, as processes: a bare ASGI echo, an empty extender in Go, Linkwise
load             what is sent: the bytes of kube-scheduler's calls
wire             sent and timed over raw sockets
walk | crowd     filter, prioritize and bind of one pod after the other over one connection | filter over four connections
answers          every answer is looked at, outside the timed part
churn            who leaves, so that the cluster stays as full as it was
percentiles      many times in a few figures
report | plots   figures as tables, verdicts and JSON | as pictures
"""
