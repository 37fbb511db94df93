"""Codecs between a decision and the annotations that a node side understands: `encode` and `decode`, a round trip.

One module a hand-off. `native` is Linkwise's own; a new one (for a node plugin of another kind) is a module beside it with the same two functions.
"""
