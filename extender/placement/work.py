"""How much placement has worked out, and how much it was spared by what it had kept: counted as it goes, told by /metrics.

`Placement` counts. A kind of answer that is looked at anew again and again, or whole instead of row by row, shows here before it shows in the time of calls.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Work:
    """Of one kind of answer: ``kept`` how often there was one to bring up to date, ``anew`` how often there was none, ``rows`` how many rows were looked at in all."""

    kept: int = 0
    anew: int = 0
    rows: int = 0

    def done(self, rows: int, *, anew: bool) -> None:
        """Count one answer."""
        self.rows += rows
        if anew:
            self.anew += 1
        else:
            self.kept += 1
