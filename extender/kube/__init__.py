"""The API server as source and binder: raw requests, list and watch, bindings, the lease, events.

The second implementation of the two doors that `snapshot_file` has as well. Only this package (and the agent) knows the Kubernetes client. Objects stay raw
JSON: a model class per object costs more than everything else that happens to it.
"""
