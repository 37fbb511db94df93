"""Linkwise's view of one machine: its devices, links, tables and the node agent. Never imports `extender`."""
