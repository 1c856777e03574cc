"""What a job asks for, in all its forms: `nodes` and `resources`, ranges of either, and lists of resources that would all do.

Form 0 is what the job is by itself: its `nodes`, its first entry, the low end of a range of GPUs. Run times and `estimate` are of that one. A job may
have sixteen forms: planning looks at each at every place.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import Form, Resources
from federator.wire import fields
from federator.wire.accelerators import MAX_WIDTHS, spread
from federator.wire.sizes import NodeSize, Sizes, sizes_of

MAX_NODES = 4096
MAX_FORMS = MAX_WIDTHS
MOST_RATIO = 1000.0
"""Of two values of `scaling`."""
DOUBLING = 1.9
"""Twice the nodes, or GPUs, are taken to run so much faster where `scaling` does not say."""
Size = TypeVar("Size")
_EXAMPLE = "write for example {1: 1.0, 2: 1.9, 4: 3.5}"
_SIZE = re.compile(r"[1-9][0-9]{0,3}")


class RequestedResources(NamedTuple):
    """As the fields of a `JobSpec` that they become."""

    nodes: int
    resources: Resources
    forms: tuple[Form, ...] | msgspec.UnsetType = msgspec.UNSET
    elastic: bool | msgspec.UnsetType = msgspec.UNSET
    ordered: bool | msgspec.UnsetType = msgspec.UNSET
    left_out: str = ""
    """Which sizes of a range are planned, where that is not all of them."""


class _Ranges(NamedTuple):
    """Counts of nodes, and for each entry of the list its sizes, narrowest first; `nodes` is the count of form 0, and `by_gpus` says that GPUs are the range."""

    nodes: int
    counts: tuple[int, ...]
    entries: tuple[tuple[Resources, ...], ...]
    by_gpus: bool


def read_scaling(value: object, path: str) -> dict[int, float]:
    """Throughput by nodes, or by GPUs per node. Raises `Invalid`."""
    if not isinstance(value, dict):
        raise Invalid(f"{fields.shown(value)} is not a mapping", field=path, remedy=_EXAMPLE)
    found: dict[int, float] = {}
    for key, rate in value.items():
        if rate is None:
            continue
        size = _size(key, path)
        if size in found:
            raise Invalid(f"gives two values for {size}", field=path, remedy="keep one of them")
        found[size] = float(fields.number(rate, f"{path}.{size}", low=1e-6, high=1e6))
    if found and max(found.values()) > MOST_RATIO * min(found.values()):
        raise Invalid(
            f"has a value that is over {MOST_RATIO:g} times another one",
            field=path,
            remedy=f"write values that are at most {MOST_RATIO:g} times the smallest",
        )
    return found


def _size(key: object, path: str) -> int:
    """A key of `scaling`: as people write it, without quotes, it is a number."""
    if isinstance(key, str) and _SIZE.fullmatch(key):
        key = int(key)
    if isinstance(key, int) and not isinstance(key, bool) and 1 <= key <= MAX_NODES:
        return key
    raise Invalid(f"{fields.shown(key)} is not a number of nodes or GPUs", field=path, remedy=_EXAMPLE)


Nodes = Annotated[int, msgspec.Meta(ge=1, le=MAX_NODES)]
Scaling = Annotated[
    dict[int, float],
    fields.written(
        read_scaling, "{1: 1.0, 2: 1.9, 4: 3.5}", type="object", propertyNames={"pattern": f"^{_SIZE.pattern}$"},
        additionalProperties={"type": "number", "minimum": 1e-6, "maximum": 1e6},
    ),
]  # fmt: skip


def asked_of(
    resources: Sizes,
    nodes: tuple[int | None, int | None, int | None],
    scaling: Mapping[int, float] | None,
    *,
    elastic: bool,
) -> RequestedResources:
    """Of a job file's `resources`, its `nodes`, `min_nodes` and `max_nodes`, and `scaling`. `elastic`: it can save itself. Raises `Invalid`."""
    written, ordered = entries_of(resources)
    entries = tuple(sizes_of(value, path) for value, path in written)
    ranged = any(len(sizes) > 1 for sizes in entries)
    count, low, high = _nodes(*nodes)
    if scaling is not None and low == high and not ranged:
        raise Invalid(
            "has no effect on a job that has one size",
            field="$.scaling",
            remedy="write min_nodes and max_nodes, or a range of GPUs such as A100:1..8",
        )
    if low < high and ranged:
        raise Invalid(
            "is a range, and so are the nodes",
            field="$.resources.gpus",
            remedy="write one number of GPUs, or leave min_nodes and max_nodes out",
        )
    span = _span(low, high, entries)
    counts = _counts(count, low, high, scaling)
    if scaling is not None and ranged:
        entries = _named(written, entries, scaling)
    if scaling is not None:
        _refuse_one_size(scaling, span)
    else:
        counts, entries = _with_room(counts, entries, count)
    ranges = _Ranges(count, counts, entries, ranged)
    forms = _forms(ranges, scaling)
    if len(forms) == 1:
        return RequestedResources(count, entries[0][0])
    changes = elastic and (low < high or any(len(sizes) > 1 for sizes in entries))
    return RequestedResources(
        count,
        entries[0][0],
        left_out=_left_out(ranges, scaling),
        forms=tuple(forms[1:]),
        elastic=True if changes else msgspec.UNSET,
        ordered=True if ordered else msgspec.UNSET,
    )


def entries_of(resources: Sizes) -> tuple[list[tuple[NodeSize, str]], bool]:
    """The entries of a list of resources, each with its path and with what stands beside the list; and whether their order counts."""
    path = "$.resources"
    if resources.any_of is not None and resources.ordered is not None:
        raise Invalid(
            "cannot be combined with any_of", field=f"{path}.ordered", remedy="write one of the two lists"
        )
    name = "any_of" if resources.ordered is None else "ordered"
    inner = resources.any_of or resources.ordered
    if inner is None:
        return [(resources, path)], False
    entries = [(each, f"{path}.{name}[{number}]") for number, each in enumerate(inner)]
    return [(_merged(resources, each, at), at) for each, at in entries], name == "ordered"


def _merged(beside: NodeSize, entry: NodeSize, at: str) -> NodeSize:
    """An entry with what stands beside the list."""
    shared, own = (
        {key: getattr(each, key) for key in NodeSize.__struct_fields__ if getattr(each, key) is not None}
        for each in (beside, entry)
    )
    for key in shared.keys() & own.keys():
        raise Invalid(
            f"is also set in {at.removeprefix('$.')}.{key}",
            field=f"$.resources.{key}",
            remedy=f"write {key} in the entries, or once beside the list for all of them",
        )
    return NodeSize(**shared, **own)


def _nodes(nodes: int | None, fewest: int | None, most: int | None) -> tuple[int, int, int]:
    """Nodes of form 0, the fewest, and the most."""
    low = fewest or nodes or 1
    nodes = nodes or low
    high = most or nodes
    if low > nodes:
        raise Invalid(f"is more than nodes, {nodes}", field="$.min_nodes", remedy=f"write at most {nodes}")
    if high < nodes:
        raise Invalid(
            f"is less than the {nodes} nodes", field="$.max_nodes", remedy=f"write at least {nodes}"
        )
    return nodes, low, high


def _refuse_one_size(scaling: Mapping[int, float], span: str) -> None:
    if len(scaling) == 1:
        raise Invalid(
            "names one size only",
            field="$.scaling",
            remedy=f"name two or more sizes from {span}, or leave it out",
        )


def _span(low: int, high: int, entries: tuple[tuple[Resources, ...], ...]) -> str:
    """What `scaling` could name, in words."""
    if low < high:
        return f"{low} to {high} nodes"
    counts = [size.gpus.count for sizes in entries for size in sizes]
    return f"{min(counts)} to {max(counts)} GPUs"


def _named(
    written: list[tuple[NodeSize, str]],
    entries: tuple[tuple[Resources, ...], ...],
    scaling: Mapping[int, float],
) -> tuple[tuple[Resources, ...], ...]:
    """Of each entry the sizes that `scaling` names. The first of all, which the job is by itself, must be among them."""
    if any(size.gpus.share_milli for sizes in entries for size in sizes):
        raise Invalid("applies only to nodes and whole GPUs", field="$.scaling", remedy="leave it out")
    _known(scaling, entries[0][0].gpus.count)
    kept = []
    for (value, path), sizes in zip(written, entries, strict=True):
        kept.append(sizes_of(value, path, scaling) if len(sizes) > 1 else sizes)
        if not kept[-1]:
            _known(scaling, sizes[0].gpus.count)
    outside = scaling.keys() - {size.gpus.count for sizes in kept for size in sizes}
    if outside:
        raise Invalid(
            f"names {min(outside)}, which is not among the GPUs that resources ask for",
            field="$.scaling",
            remedy="leave it out, or ask for a wider range",
        )
    return tuple(kept)


def _counts(nodes: int, low: int, high: int, scaling: Mapping[int, float] | None) -> tuple[int, ...]:
    """The numbers of nodes that it may run on: those that `scaling` knows; else all, or if they are too many, powers of two and the ends."""
    if low == high:
        return (nodes,)
    if scaling is None:
        return spread(low, high, nodes)
    if nodes not in scaling:
        raise Invalid(f"has no value for {nodes} nodes", field="$.scaling", remedy=f"add {nodes}")
    outside = [count for count in scaling if not low <= count <= high]
    if outside:
        raise Invalid(
            f"names {outside[0]}, which is not among {low} to {high} nodes",
            field="$.scaling",
            remedy="leave it out, or write another min_nodes or max_nodes",
        )
    return tuple(sorted(scaling))


def _with_room(
    counts: tuple[int, ...], entries: tuple[tuple[Resources, ...], ...], nodes: int
) -> tuple[tuple[int, ...], tuple[tuple[Resources, ...], ...]]:
    """Counts of nodes, and sizes of each entry, so few that all entries together have no more forms than are planned."""
    most = MAX_FORMS // len(entries)
    return _thinned(counts, most, nodes), tuple(_thinned(sizes, most, sizes[0]) for sizes in entries)


def _thinned(sizes: tuple[Size, ...], most: int, kept: Size) -> tuple[Size, ...]:
    """So many of a range that all entries of a list have room: the ends, `kept`, and of the others some, evenly. As it is where that is too few."""
    always = {0, len(sizes) - 1, sizes.index(kept)}
    if len(sizes) <= most or most < len(always):
        return sizes
    left = [number for number in range(len(sizes)) if number not in always]
    more = most - len(always)
    step = len(left) / max(1, more)
    taken = always | {left[int(step * (number + 0.5))] for number in range(more)}
    return tuple(sizes[number] for number in sorted(taken))


def _forms(ranges: _Ranges, scaling: Mapping[int, float] | None) -> list[Form]:
    """All forms, that of the job itself first. Raises `Invalid` where they are too many."""
    found = [
        Form(nodes, size, _throughput(nodes, size, ranges, scaling), option)
        for option, sizes in enumerate(ranges.entries)
        for size in sizes
        for nodes in ranges.counts
    ]
    first = next(form for form in found if form.nodes == ranges.nodes)
    found = [first, *(form for form in found if form is not first)]
    if len({(form.nodes, form.resources) for form in found}) < len(found):
        raise Invalid("lists the same entry twice", field="$.resources", remedy="leave one of them out")
    if len(found) > MAX_FORMS:
        raise Invalid(
            f"come to {len(found)} ways to run, with the nodes; at most {MAX_FORMS} are planned",
            field="$.resources",
            remedy="write fewer entries or narrower ranges, or name a few sizes in scaling",
        )
    return found


def _left_out(ranges: _Ranges, scaling: Mapping[int, float] | None) -> str:
    """A range may be wider than is planned: then it is said which sizes are, and how to choose them."""
    if scaling is not None:
        return ""
    spans = [(ranges.counts, "nodes")]
    spans += [
        (tuple(size.gpus.count for size in sizes if not size.gpus.share_milli), "GPUs")
        for sizes in ranges.entries
    ]
    for counts, what in spans:
        if len(counts) > 1 and counts[-1] - counts[0] >= len(counts):
            sizes = f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}"
            return f"of {counts[0]} to {counts[-1]} {what} it may run on {sizes}; to choose others, name them in scaling"
    return ""


def _throughput(nodes: int, size: Resources, ranges: _Ranges, scaling: Mapping[int, float] | None) -> float:
    """Over that of form 0."""
    first = ranges.entries[0][0]
    here, there = size.gpus.total, first.gpus.total
    if ranges.by_gpus and scaling is not None:
        return _known(scaling, int(here)) / _known(scaling, int(there))
    rate = _grown(here / there) if here and there else 1.0
    if scaling is not None:
        return rate * scaling[nodes] / scaling[ranges.nodes]
    return rate * _grown(nodes / ranges.nodes)


def _known(scaling: Mapping[int, float], gpus: int) -> float:
    if gpus not in scaling:
        remedy = f"add {gpus}" if gpus else "leave it out, or ask for GPUs in each entry"
        raise Invalid(f"has no value for {gpus} GPUs", field="$.scaling", remedy=remedy)
    return scaling[gpus]


def _grown(times: float) -> float:
    return float(round(DOUBLING ** math.log2(times), 6))
