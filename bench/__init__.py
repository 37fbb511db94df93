"""Benchmarks: each is one command, `python -m bench.NAME`, that prints a table and writes it to bench/results. Never part of the tests."""
