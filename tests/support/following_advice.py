"""Somebody who does what an explanation advises: the job file, rewritten by the changes that are about the job itself."""

import math
from typing import Any

from msgspec import UNSET

from federator.kernel.quantities import format_instant
from federator.model.changes import AskFor
from federator.model.jobs import JobSpec


def follow(document: dict[str, Any], spec: JobSpec, change: AskFor) -> dict[str, Any]:
    """The job file with one change made, as its owner would write it. `spec` is what the file was read as first."""
    field = change.field
    value: Any = change.value
    if field in _SIZES:
        return _sized(document, spec, change)
    if field in _PLACES:
        return _placed(document, _PLACES[field], value)
    if field in ("run_low_s", "run_high_s", "ranks_in_one", "resumes_at"):
        return document
    if field == "needs":
        gone = {"image"} if "images" not in (value or ()) else set()
        kept = [name for name in document.get("secrets", ()) if f"secret:{name}" in (value or ())]
        return {key: entry for key, entry in document.items() if key not in gone} | {"secrets": kept}
    return {**document, **_FIELDS[field](value)}


_SIZES = ("gpus", "nodes", "models", "gpu_memory_mib", "cpus_milli", "memory_mib", "shared")
_PLACES = {
    "together": "together", "sites": "sites", "not_sites": "not_sites", "kinds": "kinds", "site_labels": "labels",
}  # fmt: skip
_FIELDS: dict[str, Any] = {
    "queue": lambda value: {"queue": value},
    "deadline_at": lambda value: {"finish_within": None, "deadline": format_instant(value)},
    "value_usd": lambda value: {"value": value},
    "max_duration_s": lambda value: {"max_duration": f"{math.ceil(value)}s"},
    "max_cost_usd": lambda value: {"max_cost": value},
    "spot_policy": lambda value: {"spot_policy": value},
    "saves": lambda value: {"checkpoint": {"grace": "30s"}},
    "needs_fencing": lambda value: {"on_disconnect": "keep"},
    "run_s": lambda value: {"estimate": f"{max(1, round(value))}s"},
}


def _placed(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    placement = dict(document.get("placement", {}))
    placement.pop(key, None)
    if value:
        placement[key] = list(value) if isinstance(value, tuple) else value
    return document | {"placement": placement}


def _sized(document: dict[str, Any], spec: JobSpec, change: AskFor) -> dict[str, Any]:
    value: Any = change.value
    if change.field == "nodes":
        given = {key: document[key] for key in ("nodes", "min_nodes", "max_nodes") if key in document}
        if "max_nodes" in given:
            given = {"min_nodes": value, "max_nodes": max(value, given["max_nodes"])}
        else:
            given = {"nodes": value}
        return {k: v for k, v in document.items() if k not in ("nodes", "min_nodes", "max_nodes")} | given
    resources = dict(document.get("resources", {}))
    number = (spec.forms or ())[change.form - 1].option if change.form and spec.forms is not UNSET else 0
    name = next((name for name in ("any_of", "ordered") if name in resources), "")
    if name:
        entries = [dict(entry) for entry in resources[name]]
        entries[number] = _entry(
            {**{k: v for k, v in resources.items() if k != name}, **entries[number]}, change
        )
        return document | {"resources": {name: entries}}
    return document | {"resources": _entry(resources, change)}


def _entry(entry: dict[str, Any], change: AskFor) -> dict[str, Any]:
    """One set of resources; its GPUs are written out as a mapping."""
    value: Any = change.value
    if change.field == "cpus_milli":
        return entry | {"cpus": value / 1000}
    if change.field == "memory_mib":
        return {k: v for k, v in entry.items() if k != "shm"} | {"memory": f"{value}MiB"}
    gpus = entry.get("gpus", 0)
    gpus = dict(gpus) if isinstance(gpus, dict) else {"count": gpus}
    match change.field:
        case "models":
            gpus["models"] = list(value)
        case "gpu_memory_mib":
            gpus["memory"] = f"{value}MiB"
        case "shared":
            gpus["count"] = 0.5 if value else 1
        case "gpus":
            gpus["count"] = _count(gpus["count"], value)
    return entry | {"gpus": {key: each for key, each in gpus.items() if each not in ((), [], None)}}


def _count(count: Any, value: int) -> Any:
    """A range grows down to what is there; parts are in thousandths."""
    if isinstance(count, float):
        return value / 1000 if value > 1 else value
    if isinstance(count, str) and ".." in count and "." not in count.replace("..", ""):
        high = int(count.split("..")[1])
        return f"{value}..{high}" if value < high else value
    return value
