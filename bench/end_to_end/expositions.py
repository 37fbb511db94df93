"""Prometheus texts to differences: what a program counted between two readings.

kube-scheduler, kube-apiserver and Linkwise count since they were started; a round asks what was added in it. `Counts` is one reading, `between` two of them.
"""

import ssl
import urllib.request
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_PREFIXES: Final = ("scheduler_", "apiserver_request_total", "linkwise_", "process_cpu_seconds_total")
_LEFT_OUT: Final = "_bucket"  # most of the lines, and nobody here asks for them


@dataclass(frozen=True, slots=True)
class Counts:
    """Samples by name and labels."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of that name which carry these labels; 0 where there is none."""
        wanted = frozenset(labels.items())
        return sum(value for (found, carried), value in self.samples.items() if found == name and wanted <= carried)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the sums of the samples of that name by the value of a label."""
        wanted = frozenset(labels.items())
        sums: dict[str, float] = {}
        for (found, carried), value in self.samples.items():
            if found == name and wanted <= carried:
                key = dict(carried).get(label, "")
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def since(self, before: "Counts") -> "Counts":
        """Return what was added since an earlier reading of the same program."""
        return Counts({key: value - before.samples.get(key, 0.0) for key, value in self.samples.items()})


def read_counts(text: str) -> Counts:
    """Read an exposition; lines of programs' libraries and histogram buckets are left out."""
    lines = (line for line in text.splitlines() if line.startswith(_PREFIXES) and _LEFT_OUT not in line.partition("{")[0].partition(" ")[0])
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return Counts({(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples})


def scrape(url: str, token: str = "") -> Counts:
    """Read the exposition at a URL on this machine; certificates are not looked at."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - a program of ours
    with urllib.request.urlopen(asked, timeout=30, context=context if url.startswith("https:") else None) as response:  # noqa: S310 - as above
        return read_counts(response.read().decode())
