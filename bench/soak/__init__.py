"""Half an hour of a living cluster: see `__main__`."""
