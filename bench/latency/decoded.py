"""The floor of any start-up from a file: read it, decode it with orjson, and hold what came out.

Run by `bench.scale` as `python -m bench.latency.decoded FILE`: prints seconds of reading and decoding by the clock and of processor time, and MiB resident now and at most, as JSON.
"""

import sys
import time
from pathlib import Path

import orjson

from bench.latency.resident import resident


def main() -> None:
    """Measure once, in a process of its own."""
    started, used = time.perf_counter(), time.process_time()
    held = orjson.loads(Path(sys.argv[1]).read_bytes())
    seconds, used = time.perf_counter() - started, time.process_time() - used
    memory = resident("self")
    print(
        orjson.dumps(
            {"seconds": seconds, "processor_s": used, "rss_mib": memory.now_mib, "peak_mib": memory.peak_mib, "items": len(held["items"])}
        ).decode()
    )


if __name__ == "__main__":
    main()
