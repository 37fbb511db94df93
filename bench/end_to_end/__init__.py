"""Linkwise beside a real kube-scheduler, in figures: see `__main__`."""
