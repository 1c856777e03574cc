"""Services: so many like jobs, its *replicas*, that answer requests and do not end. What is kept here is what is wanted of them; each replica is a job like any other.

Pure: `scaled` says how many replicas a load needs, `steps` what has to be started, drained and cancelled so that there are so many, of the revision that is wanted. The
loop in `federator.control.submission.replicas` does it, and a simulation may do the same.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import ceil, sqrt
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from federator.model.identity import Role

UP_S = 10.0
"""Loads of so long, averaged, say how many replicas are needed."""
STALE_S = 60.0
"""A load that is older says nothing: without a gateway the number of replicas stays."""
SLOW_S = 60.0
"""Answers of so long, counted together, say whether they are too slow,"""
SLOW_PART = 0.05
"""where more than that part of them takes longer than the target, by more than twice the standard deviation,"""
LEAST_ANSWERS = 20
"""and there are so many: of fewer a twentieth is not one."""
IDLE = 0.05
"""Fewer requests at a time than that, on average, are none."""
BACKOFF_S, MOST_BACKOFF_S = 5.0, 300.0
"""Between replicas that end by themselves: doubled each time, up to the second."""
USUAL_ERRORS, LEAST_ERRORS = 0.01, 3
"""Of a canary's answers that part may be errors whatever the former's are, and so many are no proof yet below the second."""
TOLERANCE = 0.1
"""By no more than that part the use of GPUs may differ from what is wanted."""
PORTS = range(20_000, 30_000)
"""Of these each replica of a service with `port: auto` has one: below those that systems give to outgoing connections."""
DRAINED_S = 5.0
"""For so long at least a gateway is given to hear that it must not send there any more."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas there may be, and what says how many are wanted."""

    least: int = 1
    most: int = 1
    requests_per_replica: float = 8.0
    """Requests at a time that one replica is meant to work on."""
    p95_latency_s: float | None = None
    """Of a hundred requests 95 should be answered within that; None: no matter."""
    gpu_utilisation_percent: float | None = None
    """So busy its replicas' GPUs should be; None: no matter."""
    down_after_s: float = 300.0
    """Fewer replicas are wanted only when fewer would have done for so long."""
    surge: int = 1
    """While replicas of one revision take the place of another's, so many may be there beside what is wanted."""
    drain_s: float = 30.0
    """So long a replica that is no longer wanted may finish what it works on."""
    spread: bool = False
    """No site has more than half of the replicas, rounded up, while another one may take some."""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a service's file. `file` is the job file of a replica, as JSON."""

    number: int
    file: str
    port: int = 0
    """0: each replica has one of its own."""
    ready_path: str = ""
    """Answered with 2xx or 3xx by a replica that is ready; empty: one that takes connections is."""
    resend: bool = False
    """A request whose replica was lost before it answered is sent to another one, whatever its method."""


class Replica(msgspec.Struct, frozen=True):
    """A job of the service."""

    job: str
    revision: int
    port: int = 0
    drained_at: float | None = None
    """Since when nothing new is sent to it; None: it is wanted."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service's record; of one owner there is one of a name."""

    id: str
    name: str
    owner: str
    queue: str
    team: str = ""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider that its owner was in when it was applied."""
    signed_in_at: float | None = None
    """When its owner last signed in with the provider; None: not that it is known."""
    signed_in_as: Role | None = None
    scale: Scale
    revision: Revision
    former: Revision | None = None
    """What a rollback returns to; while there is a canary, what most requests still go to."""
    canary: int = 0
    """Of a hundred requests so many go to the newest revision; 0: it takes the place of the former."""
    wanted: int
    """Replicas, as last decided,"""
    because: str = ""
    """and why."""
    replicas: tuple[Replica, ...] = ()
    started: int = 0
    """So many replicas there have been: the number of the newest."""
    failures: int = 0
    """So many in a row have ended before one was ready,"""
    again_at: float = 0.0
    """and none is started before."""
    fault: str = ""
    """For what its last canary was rolled back without anybody's word; empty: it was not."""
    said: str = ""
    """What keeps a replica from being submitted; empty: nothing."""
    created_at: float
    changed_at: float
    deleted: bool = False
    """Its row goes with its last replica."""

    def numbered(self, revision: int) -> Revision:
        """That revision, or the newest where it is not known any more."""
        former = self.former
        return former if former is not None and former.number == revision else self.revision

    def next_port(self, revision: Revision) -> int:
        """Where the next replica takes requests."""
        spread = sum(self.id.encode()) * 97 + self.started
        return revision.port or PORTS[spread % len(PORTS)]


class Load(NamedTuple):
    """What a gateway has seen since it last told."""

    at: float
    at_once: float
    """Requests that were worked on at a time, on average, those that waited for a replica among them."""
    answered: int = 0
    slow: int = 0
    """Of those: answered later than the target says."""
    ready: int = 0
    """Replicas that were ready."""
    working: float = 0.0
    """Of the requests at a time: those that replicas worked on."""
    rate: float = 0.0
    """Requests answered per second, by all gateways."""
    needed: int = 0
    """Replicas that it, with the loads before it, asked for."""


class Use(NamedTuple):
    """How busy the GPUs of ready replicas are."""

    at: float
    percent: float
    """On average."""
    ready: int
    """Replicas that were ready."""
    needed: int = 0
    """Replicas that it, with the uses before it, asked for."""


Asked = TypeVar("Asked", Load, Use)


class Scaled(NamedTuple):
    """How many replicas are wanted, and why."""

    replicas: int
    because: str


def scaled(scale: Scale, loads: Sequence[Load], wanted: int, now: float) -> Scaled:
    """How many replicas are wanted, which were `wanted` before. More at once, fewer only when none of the loads of `down_after_s` has asked for more.

    `loads`, oldest first, need reach no further back than that.
    """
    recent = _since(loads, now - UP_S)
    if not recent:
        told = "no gateway has told of any load" if not loads or now - loads[-1].at > STALE_S else ""
        return Scaled(_within(wanted, scale), told or "the load is as it was")
    return _held(scale, loads, wanted, now, _words(scale, recent, loads))


def scaled_by_use(scale: Scale, uses: Sequence[Use], wanted: int, now: float) -> Scaled:
    """The same by how busy GPUs are."""
    recent = _since(uses, now - UP_S)
    if not recent:
        return Scaled(_within(wanted, scale), "nothing is known of the use of its GPUs")
    words = f"its GPUs are {uses[-1].percent:.0f} % busy, {scale.gpu_utilisation_percent:g} % wanted"
    return _held(scale, uses, wanted, now, words)


def _held(scale: Scale, asked: Sequence[Asked], wanted: int, now: float, because: str) -> Scaled:
    held, up = _within(wanted, scale), asked[-1].needed
    if up >= held:
        return Scaled(_within(up, scale), because)
    whole = asked[0].at <= now - scale.down_after_s + UP_S
    most = max(each.needed for each in _since(asked, now - scale.down_after_s))
    down = min(held, _within(most, scale)) if whole else held
    return Scaled(down, because if down < held or down == scale.least else f"{because}, fewer only later")


def needed_by_use(scale: Scale, uses: Sequence[Use]) -> int:
    """Replicas among which the work of the GPUs would be as they are meant to be busy: those that are ready, where that is so by a tenth."""
    newest, target = uses[-1], scale.gpu_utilisation_percent
    assert target is not None
    recent = _since(uses, newest.at - UP_S)
    replicas = sum(each.percent * each.ready for each in recent) / len(recent) / target
    return newest.ready if abs(replicas - newest.ready) <= TOLERANCE * newest.ready else ceil(replicas)


def needed(scale: Scale, loads: Sequence[Load]) -> int:
    """Replicas that the newest of these loads, with those before it, asks for: for the requests; and one beside those that are ready, where answers are too slow all the same."""
    newest, work = loads[-1], _work(loads)
    for_load = ceil(work / scale.requests_per_replica) if work >= IDLE else 0
    answered, slow = _calm(scale, loads)
    expected = SLOW_PART * answered
    too_slow = answered >= LEAST_ANSWERS and slow > expected + 2 * sqrt(expected * (1 - SLOW_PART))
    return max(for_load, newest.ready + 1) if too_slow and newest.ready else for_load


def _work(loads: Sequence[Load]) -> float:
    """Requests at a time that there have to be replicas for.

    By Little's law a request is worked on for so long as there are requests at work for each that is answered per second. Replicas are enough that work off within `UP_S` what
    has come in the last `UP_S` and what waits: what has piled up while replicas start does not come again. One place for each request is always enough, and is what counts while
    too few are answered to tell.
    """
    recent = _since(loads, loads[-1].at - UP_S)
    at_once = _mean_at_once(recent)
    rates, working = sum(each.rate for each in loads), sum(each.working for each in loads)
    if sum(each.answered for each in loads) < LEAST_ANSWERS or not rates or not working:
        return at_once
    request_s = working / rates
    before = loads[-len(recent) - 1].at_once if len(recent) < len(loads) else 0.0
    answered = UP_S * sum(each.rate for each in recent) / len(recent)
    came = max(0.0, answered + loads[-1].at_once - before)
    waits = at_once - sum(each.working for each in recent) / len(recent)
    return min(at_once, (came + waits) * request_s / UP_S)


def _mean_at_once(loads: Sequence[Load]) -> float:
    return sum(each.at_once for each in loads) / len(loads)


def _calm(scale: Scale, loads: Sequence[Load]) -> tuple[int, int]:
    """Answers of late, and how many of them were slow, though no fewer replicas were ready than now and none had more to do than it is meant to: more replicas are under way for what others have shown."""
    newest = loads[-1]
    calm = [
        each
        for each in _since(loads, newest.at - SLOW_S)
        if each.ready >= newest.ready and each.at_once <= each.ready * scale.requests_per_replica
    ]
    return sum(each.answered for each in calm), sum(each.slow for each in calm)


def _since(asked: Sequence[Asked], at: float) -> list[Asked]:
    return [each for each in asked if each.at > at]


def _words(scale: Scale, recent: Sequence[Load], loads: Sequence[Load]) -> str:
    said = f"{_mean_at_once(recent):.1f} requests at a time, {scale.requests_per_replica:g} to a replica"
    answered, slow = _calm(scale, loads)
    if scale.p95_latency_s is None or not slow:
        return said
    return f"{said}; {slow} of {answered} answers took longer than {scale.p95_latency_s:g} s"


def _within(replicas: int, scale: Scale) -> int:
    return max(scale.least, min(scale.most, replicas))


class Health(StrEnum):
    """What a replica is good for."""

    WAITING = "waiting"
    """Its job has no place yet, or is being brought there."""
    STARTING = "starting"
    """Its job runs; it has not been ready yet."""
    READY = "ready"
    FAILING = "failing"
    """It was ready, and is no longer: another one takes its place."""
    GONE = "gone"
    """Its job is over."""


class Standing(NamedTuple):
    """A replica as it is."""

    replica: Replica
    health: Health
    site: str = ""
    price_usd_h: float = 0.0
    idle: bool = True
    """It works on no request, as far as a gateway has told."""
    ended: bool = False
    """Of one that is gone: by itself, not because it was told to."""
    answered: int = 0
    """Requests, as far as gateways have told,"""
    errors: int = 0
    """and of those, with an error of the server."""


class Steps(NamedTuple):
    """What has to be done so that a service is as it is wanted."""

    starts: tuple[int, ...] = ()
    """Numbers of revisions, one for each replica to submit."""
    drains: tuple[str, ...] = ()
    """Jobs that nothing new is sent to from now on,"""
    cancels: tuple[str, ...] = ()
    """and jobs to cancel: they have finished what they worked on, or had time to."""
    gone: tuple[str, ...] = ()
    """Jobs that are over: they need not be remembered."""


def steps(service: Service, standings: Sequence[Standing], now: float) -> Steps:
    """What to do next. Replicas are started before those that they replace are drained, and drained before they are cancelled."""
    gone = tuple(each.replica.job for each in standings if each.health is Health.GONE)
    live = [each for each in standings if each.health is not Health.GONE]
    active = [each for each in live if each.replica.drained_at is None]
    cancels = tuple(each.replica.job for each in live if _is_drained(service, each, now))
    if service.deleted:
        return Steps((), tuple(each.replica.job for each in active), cancels, gone)
    starts, drains = list[int](), list[Standing]()
    room = service.wanted + service.scale.surge - sum(each.health is not Health.FAILING for each in active)
    shares = _shares(service)
    others = len({each.replica.revision for each in active} | {each.number for each, _ in shares}) > 1
    for revision, wanted in shares:
        of_it = [each for each in active if each.replica.revision == revision.number]
        good = [each for each in of_it if each.health is not Health.FAILING]
        lacking = wanted - len(good)
        starts += [revision.number] * max(0, min(lacking, room - len(starts)) if others else lacking)
        if lacking <= 0:
            ready = sum(each.health is Health.READY for each in of_it)
            kept = [each for each in of_it if each.health is Health.FAILING and ready < wanted]
            drains += _surplus([each for each in of_it if each not in kept], wanted, service.scale)
    known = {revision.number for revision, _ in shares}
    drains += [each for each in active if each.replica.revision not in known]
    if now < service.again_at:
        starts = []
    return Steps(tuple(starts), _spared(service, active, drains), cancels, gone)


def _spared(service: Service, active: Sequence[Standing], drains: Sequence[Standing]) -> tuple[str, ...]:
    """Jobs of those that may be drained now: of the ready ones only so many that what is wanted stays."""
    ready = [each for each in drains if each.health is Health.READY]
    spare = sum(each.health is Health.READY for each in active) - service.wanted
    kept = {each.replica.job for each in ready[max(0, spare) :]}
    return tuple(each.replica.job for each in drains if each.replica.job not in kept)


def _is_drained(service: Service, standing: Standing, now: float) -> bool:
    drained_at = standing.replica.drained_at
    if drained_at is None:
        return False
    if standing.health is Health.WAITING:
        return True
    drained_s = now - drained_at
    return drained_s >= service.scale.drain_s or (standing.idle and drained_s >= DRAINED_S)


def _shares(service: Service) -> list[tuple[Revision, int]]:
    """How many replicas of which revision are wanted."""
    if not service.canary or service.former is None:
        return [(service.revision, service.wanted)]
    new = max(1, round(service.wanted * service.canary / 100)) if service.wanted else 0
    old = max(1, service.wanted - new) if service.wanted else 0
    return [(service.former, old), (service.revision, new)]


def _surplus(standings: list[Standing], wanted: int, scale: Scale) -> list[Standing]:
    """Those that go first: what does not work yet, then the dearest, then one of the most at a site, then the newest. Where they are spread over sites, one of the most before the dearest."""
    left, drains = list(standings), list[Standing]()
    order = (Health.WAITING, Health.FAILING, Health.STARTING, Health.READY)
    while len(left) > wanted:
        at = [each.site for each in left]
        first = max(
            left,
            key=lambda each: (
                -order.index(each.health),
                at.count(each.site) if scale.spread else 0,
                each.price_usd_h,
                at.count(each.site),
                left.index(each),
            ),
        )
        left.remove(first)
        drains.append(first)
    return drains


def ended(service: Service, now: float) -> Service:
    """The service once a replica has ended by itself: the next one waits a little, and longer each time."""
    wait_s = min(MOST_BACKOFF_S, BACKOFF_S * 2.0**service.failures)
    return replace(service, failures=min(service.failures + 1, 10), again_at=now + wait_s)


def rolled_back(service: Service, now: float, fault: str = "") -> Service:
    """At its former revision, which there must be. The replicas of a canary are sent nothing more, at once; those of an update that was done go as others take their place."""
    assert service.former is not None
    new = service.revision.number if service.canary else None
    return replace(
        service,
        revision=service.former,
        former=None if service.canary else service.revision,
        canary=0,
        replicas=tuple(
            replace(each, drained_at=now) if each.revision == new and each.drained_at is None else each
            for each in service.replicas
        ),
        fault=fault,
        failures=0,
        again_at=0.0,
        changed_at=now,
    )


def fault(service: Service, standings: Sequence[Standing]) -> str:
    """What is wrong with the canary; empty: nothing, or there is none.

    A replica of it has ended by itself, or is ready no more while all of the former are; or more of its answers are errors of the server than of the former's, by more than
    twice the standard deviation, a hundredth being nobody's fault.
    """
    former = service.former
    if not service.canary or former is None:
        return ""
    new = [each for each in standings if each.replica.revision == service.revision.number]
    old = [each for each in standings if each.replica.revision == former.number]
    if any(each.ended for each in new):
        return "a replica of it has ended"
    failing = any(each.health is Health.FAILING for each in old)
    if not failing and any(each.health is Health.FAILING for each in new):
        return "a replica of it is no longer ready"
    answered, errors = (sum(each.answered for each in new), sum(each.errors for each in new))
    usual = sum(each.errors for each in old) / max(1, sum(each.answered for each in old))
    expected = answered * max(usual, USUAL_ERRORS)
    if errors >= LEAST_ERRORS and errors > expected + 2 * sqrt(expected):
        return f"{errors} of its {answered} answers were errors, {100 * usual:.2g} % of the former's"
    return ""


def weights(service: Service, ready: dict[int, int]) -> dict[int, int]:
    """The weight of each ready replica, 1 to 256, by revision; `ready`: how many there are of it. Without a canary all weigh the same."""
    former, new = service.former, service.revision.number
    if not service.canary or former is None or not ready.get(new) or not ready.get(former.number):
        return dict.fromkeys(ready, 100)
    shares = {new: service.canary / ready[new], former.number: (100 - service.canary) / ready[former.number]}
    most = max(shares.values())
    return {number: max(1, round(256 * shares.get(number, 0.0) / most)) for number in ready}


def service_key(owner: str, name: str) -> str:
    """Under which a service is known: of one owner there is one of a name."""
    return f"{owner}/{name}"
