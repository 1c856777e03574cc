"""Quantities as people write them: durations, sizes, money, instants.

One grammar each, shared by job files, policies, site files and settings, so that `90m` means the same everywhere. A bare
number is refused where a unit could be guessed wrongly. Every error says what would be right.
"""

import math
import re
from datetime import UTC, datetime

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w) *")
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|KB|MB|GB|TB|K|M|G|T|B)?")
_SIZE_BYTES = {
    "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_MONEY = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(USD)?")
MAX_DURATION_S = 10 * 365 * 86400.0
SHOWN = 80
"""Characters of a wrong text that an error repeats."""


def parse_duration_s(text: str) -> float:
    """`90s`, `10m`, `1h30m`, `2d` into seconds. Raises ValueError."""
    text = text.strip()
    seconds, read = 0.0, 0
    while part := _DURATION.match(text, read):
        seconds += float(part[1]) * _DURATION_S[part[2]]
        read = part.end()
    if not text or read < len(text):
        raise ValueError(
            f"{text[:SHOWN]!r} is not a duration; write a number and a unit (s, m, h, d, w), for example 90s or 1h30m"
        )
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text[:SHOWN]!r} is longer than ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """Seconds as a person reads them, two units at most: `1h30m`, `45s`, `2d4h`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        return "0s" if seconds < 0.0005 else f"{seconds * 1000:.0f}ms"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
        if len(parts) == 2 or (parts and not left):
            break
    return "".join(parts)


def parse_size_bytes(text: str) -> int:
    """`256GiB`, `80GB` (decimal), `512M` (binary, as Slurm has it) into bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2] is None:
        raise ValueError(
            f"{text[:SHOWN]!r} is not a size; write a number and a unit (MiB, GiB, GB, …), for example 64GiB"
        )
    return int(float(match[1]) * _SIZE_BYTES[match[2]])


def format_bytes(count: float) -> str:
    """Bytes of data as a person reads them, decimal as they are sold and moved: `150 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count / 1e3:.4g} kB"


def format_mib(mib: int) -> str:
    """MiB as a person reads them."""
    for unit, size in (("TiB", 2**20), ("GiB", 2**10)):
        if mib >= size:
            return f"{mib / size:.4g}{unit}"
    return f"{mib}MiB"


def parse_usd(text: str) -> float:
    """`40 USD`, `$40`, `40` into dollars. Raises ValueError: no other currency is known."""
    match = _MONEY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:SHOWN]!r} is not an amount of money; write for example '40 USD'")
    return float(match[1])


def parse_instant(text: str) -> float:
    """An RFC 3339 instant with its zone into seconds since the epoch. Raises ValueError."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ValueError(
            f"{text[:SHOWN]!r} is not an instant with a zone; write for example 2026-12-01T08:00:00Z"
        )
    return instant.timestamp()


def format_instant(at: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_instant_exactly(at: float) -> str:
    """The same with its milliseconds, where it has any."""
    whole = datetime.fromtimestamp(at, UTC)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond >= 1000 else "seconds").replace(
        "+00:00", "Z"
    )


def format_chance(share: float) -> str:
    """A chance in percent; none is said to be nothing, or certain, that is not."""
    if 0.0 < share <= 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1.0 else f"{share:.0%}"


def cents_up(usd: float) -> float:
    """So many dollars that nothing is lacking when they are written to the cent: what people are told to add must be enough."""
    return math.ceil(usd * 100.0 - 1e-6) / 100.0
