"""Values as sbatch has them – times, memory, GPUs, dependencies – in the forms of a job file. Every function raises ValueError with what is wrong."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

AFTER = {"after": "", "afterany": "any", "afterok": "ok", "afternotok": "failed", "aftercorr": "each"}
UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,3}))?(?::(\d{1,3}))?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


class Gpus(NamedTuple):
    """GPUs of each node."""

    model: str
    number: int


def whole(text: str, option: str) -> int:
    """A whole number above 0."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text.strip()):
        raise ValueError(f"{option} {text[:40]!r} is not a whole number above 0")
    return int(text)


def licenses_of(text: str) -> dict[str, int]:
    """`matlab:2,ansys@server`: names, each with a number; 1 where it has none. A server is left out."""
    found: dict[str, int] = {}
    for word in text.split(","):
        name, _, count = word.strip().partition(":")
        name = name.partition("@")[0]
        found[name] = whole(count, f"{name[:40]}:") if count else 1
    return found


def seconds_of(text: str) -> int:
    """`90` (minutes), `1:30` (minutes and seconds), `2:00:00`, `1-12`, `1-12:30` into seconds."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time limit; write for example 2:00:00 or 1-12")
    days, first, second, third = (int(part) if part else None for part in found.groups())
    if days is not None:
        return 60 * (60 * (24 * days + (first or 0)) + (second or 0)) + (third or 0)
    if third is not None:
        return 3600 * (first or 0) + 60 * (second or 0) + third
    return 60 * (first or 0) + (second or 0)


def deadline_of(text: str, now: datetime | None = None) -> str:
    """`18:00` (the next one), `2026-12-01T08:00`, `2026-12-01` in local time, or an instant with its zone, as RFC 3339."""
    present = now or datetime.now().astimezone()
    clock = _CLOCK.fullmatch(text.strip())
    try:
        if clock is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            at = present.replace(hour=hour, minute=minute, second=second, microsecond=0)
            at = at if at > present else at + timedelta(days=1)
        else:
            at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is not an instant; write for example 18:00 or 2026-12-01T08:00:00Z"
        ) from None
    return (at if at.tzinfo else at.astimezone()).isoformat(timespec="seconds")


def gpus_of(asked: Mapping[str, str], nodes: int, tasks: int) -> Gpus | None:
    """What each node has, by whichever option says so: `--gres`, `--gpus-per-node`, `--gpus-per-task` of so many tasks, or `--gpus` of all nodes."""
    for name in ("gres", "gpus-per-node", "gpus-per-task", "gpus"):
        if name in asked:
            found = _gpus(asked[name].split(",")[0].removeprefix("gres/"))
            if name == "gpus-per-task":
                return found._replace(number=found.number * tasks)
            if name == "gpus":
                if found.number % nodes:
                    raise ValueError(
                        f"{found.number} GPUs are not as many on each of {nodes} nodes; write --gpus-per-node"
                    )
                return found._replace(number=found.number // nodes)
            return found
    return None


def _gpus(text: str) -> Gpus:
    parts = [part for part in re.sub(r"\([^()]*\)", "", text).split(":") if part not in ("gpu", "")]
    count = int(parts.pop()) if parts and parts[-1].isdigit() else 1
    if len(parts) > 1:
        raise ValueError(f"{text[:40]!r} is not a number of GPUs; write for example gpu:a100:4")
    return Gpus(parts[0].upper() if parts else "", count)


def memory_mib_of(asked: Mapping[str, str], cpus: int, gpus: int) -> int:
    """Of each node, in MiB; 0 where it is not said, or all of a host's."""
    if "mem" in asked:
        return _mib(asked["mem"])
    if "mem-per-cpu" in asked:
        return _mib(asked["mem-per-cpu"]) * cpus
    return _mib(asked["mem-per-gpu"]) * gpus if "mem-per-gpu" in asked else 0


def _mib(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", text.strip().upper())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not an amount of memory; write for example 64G")
    return ceil(int(found[1]) * UNITS_MIB[found[2] or "M"])


def after_of(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """`afterok:prepare:fetch,afterany:other` as `after` of a job file, and the parts that have no place in it."""
    after: dict[str, list[str]] = {}
    left: list[str] = []
    parts = text.split(",")
    if "?" in text:
        return {}, [text]
    for part in parts:
        kind, _, names = part.partition(":")
        how = AFTER.get(kind, "")
        if how and names:
            after.setdefault(how, []).extend(re.sub(r"\+\d+$", "", name) for name in names.split(":"))
        else:
            left.append(part)
    return after, left
