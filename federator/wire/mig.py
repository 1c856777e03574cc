"""What part of a GPU it is that its owner has cut off it, by the names that NVIDIA gives to such parts.

A part counts as the larger one of its shares of the GPU's processors and of its memory, so that nobody gets more of either than is booked. Parts of one GPU may come to
a little more than one so: `4g` and `3g` are 571 and 500 thousandths.
"""

import math
import re
from typing import NamedTuple

from federator.model.jobs import WHOLE_MILLI

_PROFILE = re.compile(
    r"(?<![0-9a-z])(?P<name>(?P<slices>[1-7])g\.(?P<gb>\d{1,4})gb)(?:\+[a-z.]+)?", re.IGNORECASE
)
PROFILE = re.compile(r"[0-9]g\.[0-9]{1,4}gb([+-][a-z.]{1,10})?")
"""As a driver writes it. That an instance may have as many slices says `nearest`."""
_ALLOWED = (1, 2, 3, 4, 7)
"""Slices of processors: so many an instance may have."""
_SLICES = {"A30": 4}
"""Of processors, by model; 7 of all others."""
_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Of memory, by slices of processors, as MIG gives them by default."""


class Mig(NamedTuple):
    """A MIG instance: part of a GPU that has processors and memory of its own."""

    profile: str
    milli: int
    """Of the GPU."""
    of_memory: float
    """Its share of the GPU's memory."""


def nearest(profile: str) -> str:
    """That profile where an instance may have as many slices; otherwise with the next number that it may have."""
    slices = next((each for each in _ALLOWED if each >= int(profile[0])), _ALLOWED[-1])
    return f"{slices}{profile[1:]}"


def mig(name: str, model: str, gpu_memory_mib: int = 0) -> Mig | None:
    """The MIG profile in the name of a resource, a product or a type of GPU; None: there is none. `gpu_memory_mib`: of the whole GPU, 0: not known."""
    match = _PROFILE.search(name)
    if match is None:
        return None
    slices, most = int(match["slices"]), _SLICES.get(model.upper(), 7)
    parts = 4 if most == 4 else 8
    held = min(parts, slices) if most == 4 else _EIGHTHS.get(slices, slices)
    if gpu_memory_mib:
        held = min(parts, max(1, round(parts * int(match["gb"]) * 1024 / gpu_memory_mib)))
    of_memory = held / parts
    return Mig(
        match["name"].lower(), math.ceil(WHOLE_MILLI * max(min(slices, most) / most, of_memory)), of_memory
    )
