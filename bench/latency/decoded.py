"""The floor of any start-up from a file: read it, decode it with orjson, and hold what came out.

Run by `bench.scale` as `python -m bench.latency.decoded FILE`: prints seconds of reading and decoding, and MiB resident now and at most, as JSON.
"""

import sys
import time
from pathlib import Path

import orjson

from bench.latency.resident import resident


def main() -> None:
    """Measure once, in a process of its own."""
    started = time.perf_counter()
    held = orjson.loads(Path(sys.argv[1]).read_bytes())
    seconds = time.perf_counter() - started
    memory = resident("self")
    print(orjson.dumps({"seconds": seconds, "rss_mib": memory.now_mib, "peak_mib": memory.peak_mib, "items": len(held["items"])}).decode())


if __name__ == "__main__":
    main()
