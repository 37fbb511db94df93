"""Demand x view -> feasible nodes, reasons and sets: the one answer to "does it fit", for filter, prioritize and bind alike.

`fits` answers for all rows at once by table lookups, `plan` names the GPUs of one node; both work on the same mask and the same tables, so they cannot
disagree on the same state. What a feasible node is worth to the pod is `extender.scoring`'s business.
"""

from extender.placement.candidates import Candidates
from extender.placement.fits import FITS, Fits
from extender.placement.fragmentation import Fragmentation, fragmentation, overall
from extender.placement.outlook import Outlook
from extender.placement.placement import Placement
from extender.placement.plan import Plan
from extender.placement.prospects import IMPOSSIBLE, Prospects, RoomProspects
from extender.placement.shares import Preference, Rooms
from extender.placement.work import Work

__all__ = [
    "FITS",
    "IMPOSSIBLE",
    "Candidates",
    "Fits",
    "Fragmentation",
    "Outlook",
    "Placement",
    "Plan",
    "Preference",
    "Prospects",
    "RoomProspects",
    "Rooms",
    "Work",
    "fragmentation",
    "overall",
]
