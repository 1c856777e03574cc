"""`--by 18:00` of `submit` and `run`: what it costs to be done by then, told before anything is submitted, and written into the job once agreed to."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from federator.cli.phrases import instant, moment_at, plain, usd
from federator.cli.session import Connection, ask
from federator.kernel.errors import Conflict, Invalid
from federator.kernel.quantities import cents_up, format_instant, parse_usd
from federator.model.plans import PricePoint

if TYPE_CHECKING:
    from federator.model.plans import ArrayPreview, Explanation
    from federator.wire.http import Preview

By = Annotated[
    str | None,
    Parameter(
        help="Say what it costs to be done by then (2h from now, 18:00 here) and, once you agree, submit it with that as deadline and max_cost."
    ),
]
Agree = Annotated[bool, Parameter(name=("-y", "--yes"), negative="", help="With --by: agree to its price.")]
FREE_USD = 0.005


def with_terms(
    document: Mapping[str, object], by: str, connection: Connection, *, yes: bool
) -> dict[str, object] | None:
    """The job with deadline, `max_cost` and, where it has to be rented for, `value`; None where whoever asks does not agree.

    Raises `Conflict` where nothing is done by then, and where nobody can be asked.
    """
    if document.get("every"):
        raise Invalid(
            "is not about a series", field="--by", remedy="write finish_within and max_cost into the file"
        )
    by_at = moment_at(by, "--by", time.time(), ahead=True)
    asked = {**document, "deadline": format_instant(by_at)}
    asked.pop("finish_within", None)
    first = _preview(asked, connection)
    points = first.explanation.curve
    in_time = sorted((p for p in points if p.finish_at <= by_at), key=lambda each: each.cost_usd)
    if not in_time:
        raise Conflict(
            f"it is not done by {instant(by_at)} at any price",
            field="--by",
            remedy=_instead(first.explanation),
        )
    # Of a job the cheapest; of an array the cheapest at which all tasks are done, whatever one of them would take.
    late = ""
    for each in in_time if first.array is not None else in_time[:1]:
        point = _limited(each, document)
        most = f"{cents_up(point.at_most_usd):.2f} USD"
        worth = {"value": most} if point.at_most_usd > FREE_USD else {}
        agreed = {**worth, **asked, "max_cost": most}
        planned = _preview(agreed, connection)
        late = _late(planned, by_at)
        if not late:
            later = [point for point in points if point.finish_at > by_at]
            print(_terms(planned, point, later), file=sys.stderr, flush=True)
            return agreed if yes or point.at_most_usd <= FREE_USD or _agreed() else None
    raise Conflict(late, field="--by")


def _late(planned: "Preview", by_at: float) -> str:
    """That it, or all of the array, would not be done by then, and why; empty where it is."""
    array, finish_at = planned.array, planned.explanation.expected_finish_at
    if array is None:
        in_time = finish_at is not None and finish_at <= by_at
        return (
            ""
            if in_time
            else f"it would not be done by {instant(by_at)}: {plain(planned.explanation.because)}"
        )
    if array.in_time == array.tasks:
        return ""
    last = f", and the last by {instant(array.finish_at)}" if array.finish_at is not None else ""
    return (
        f"{array.in_time} of {array.tasks} tasks would be done by {instant(by_at)}{last}{_estimated(array)}"
    )


def _estimated(array: "ArrayPreview") -> str:
    """That it is no more than an estimate, and of what; empty where all tasks were planned."""
    return f"; an estimate from a plan of {array.planned} tasks" if array.planned < array.tasks else ""


def _terms(planned: "Preview", point: PricePoint, later: list[PricePoint]) -> str:
    """What is agreed to: by when, for how much, and what waiting longer would save."""
    array = planned.array
    if array is None:
        told = f"done by {instant(planned.explanation.expected_finish_at or 0.0)}: {_price(point)}"
        return told + (f"; {_told(min(later, key=lambda each: each.cost_usd))}" if later else "")
    each_usd = cents_up(point.at_most_usd)
    most = f" (at most {usd(each_usd)} for each, {usd(each_usd * array.tasks)} in all)" if each_usd else ""
    price = "free" if array.cost_usd <= FREE_USD else usd(array.cost_usd)
    return (
        f"all {array.tasks} tasks done by {instant(array.finish_at or 0.0)}: {price}{most}{_estimated(array)}"
    )


def _limited(point: PricePoint, document: Mapping[str, object]) -> PricePoint:
    """The price at which it is submitted: never over a `max_cost` that the job has already."""
    own = document.get("max_cost")
    if own is None:
        return point
    return replace(point, at_most_usd=min(point.at_most_usd, parse_usd(str(own))))


def _preview(document: Mapping[str, object], connection: Connection) -> "Preview":
    return ask(connection, lambda client: client.preview(document))[0]


def _price(point: PricePoint) -> str:
    if point.cost_usd <= FREE_USD:
        return "free"
    most = f" (at most {usd(cents_up(point.at_most_usd))})" if point.at_most_usd > FREE_USD else ""
    return f"{usd(point.cost_usd)}{most}"


def _told(point: PricePoint) -> str:
    return f"by {instant(point.finish_at)} {_price(point)}"


def _instead(found: "Explanation") -> str:
    """When it would be done, and what would change that."""
    ends = dict.fromkeys((found.curve[0], found.curve[-1])) if found.curve else ()
    would = [*map(_told, ends), *(plain(change) for change in found.changes[:1])]
    return " or ".join(would) or "federator preview says why"


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Conflict("nobody has agreed to that price", field="--by", remedy="write --yes to agree to it")
    print("Submit it with this deadline and limit on its cost? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
