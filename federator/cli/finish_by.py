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
    if document.get("array") or document.get("every"):
        raise Invalid("is about one job", field="--by", remedy="write deadline and max_cost into the file")
    by_at = moment_at(by, "--by", time.time(), ahead=True)
    asked = {**document, "deadline": format_instant(by_at)}
    asked.pop("finish_within", None)
    points = _preview(asked, connection).explanation.curve
    in_time = [point for point in points if point.finish_at <= by_at]
    if not in_time:
        raise Conflict(
            f"it is not done by {instant(by_at)} at any price", field="--by", remedy=_instead(points)
        )
    point = _limited(min(in_time, key=lambda each: each.cost_usd), document)
    later = min((each for each in points if each.finish_at > by_at), key=lambda e: e.cost_usd, default=None)
    most = f"{cents_up(point.at_most_usd):.2f} USD"
    worth = {"value": most} if point.at_most_usd > FREE_USD else {}
    agreed = {**worth, **asked, "max_cost": most}
    planned = _preview(agreed, connection)
    finish_at = planned.explanation.expected_finish_at
    if finish_at is None or finish_at > by_at:
        because = plain(planned.explanation.because)
        raise Conflict(f"it would not be done by {instant(by_at)}: {because}", field="--by")
    told = f"done by {instant(finish_at)}: {_price(point)}" + (f"; {_told(later)}" if later else "")
    print(told, file=sys.stderr, flush=True)
    return agreed if yes or point.at_most_usd <= FREE_USD or _agreed() else None


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


def _instead(points: tuple[PricePoint, ...]) -> str:
    if not points:
        return "federator preview says why"
    ends = dict.fromkeys((points[0], points[-1]))
    return " or ".join(_told(point) for point in ends)


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Conflict("nobody has agreed to that price", field="--by", remedy="write --yes to agree to it")
    print("Submit it with this deadline and limit on its cost? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
