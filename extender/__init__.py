"""Linkwise's scheduler extender: the cluster's state, placement, and the walk of a pod from filter to bind."""
