"""The policies of a world: the first set, those that take its place while things go wrong, and what each of them says, as a judge reads it.

The texts are what a platform team would write, and the product compiles them. The judge reads the records here, never the compiled rules.
"""

import random

import msgspec

from federator.kernel.quantities import format_instant
from federator.simulation.virtual_time import ORIGIN_AT

DAY_S, MINUTE_S = 86_400.0, 60.0
CHANGING_SHARE = 0.4
"""Of all worlds."""
RECLAIM_S = 300.0
DOCUMENT = """apiVersion: federator/v1
kind: {kind}
metadata: {{name: {name}}}
spec: {spec}
"""


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A site takes no work for a time, or only that of one queue. `daily`: at the same hours of each day."""

    site: str
    from_s: float
    until_s: float
    kept_for: str = ""
    stops: bool = False
    daily: bool = False

    def holds(self, at_s: float) -> bool:
        """Whether it is closed then. `from_s` and `until_s` are times of the first day."""
        return self.from_s <= (at_s % DAY_S if self.daily else at_s) < self.until_s

    def is_over(self, at_s: float) -> bool:
        """Whether it never closes again."""
        return not self.daily and self.until_s <= at_s

    def text(self, name: str) -> str:
        """A `Calendar` or a `Reservation`."""
        begins, ends = (format_instant(ORIGIN_AT + at_s) for at_s in (self.from_s, self.until_s))
        close = "stop" if self.stops else "finish"
        where = f"where: {{sites: [{self.site}]}}"
        if self.daily:
            hours = f"closed: [{{from: '{begins[11:16]}', to: '{ends[11:16]}'}}]"
            return _document("Calendar", name, f"{where}, {hours}, at_close: {close}")
        who = f", who: {{queues: [{self.kept_for}]}}" if self.kept_for else ""
        return _document(
            "Reservation", name, f"{where}, from: '{begins}', until: '{ends}', at_start: {close}{who}"
        )


class AllotmentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """So much of its users' work a site admits by itself while it is cut off, in any 24 hours."""

    site: str
    jobs: int
    gpu_h: float
    after_s: float
    queue: str = "default"
    user: str = "user"
    max_duration_s: float = 4 * 3600.0

    def text(self) -> str:
        """An `Allotment`."""
        much = f"jobs: {self.jobs}, gpu_hours: {self.gpu_h:g}, max_duration: {self.max_duration_s:.0f}s"
        who = f"sites: [{self.site}], queue: {self.queue}, users: [{self.user}]"
        return _document("Allotment", self.site, f"{who}, {much}, after: {self.after_s:.0f}s")


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """One set."""

    budget_usd: float | None
    """What may be rented for; None: nothing may be rented."""
    limits: dict[str, int]
    """GPUs that a queue may use at most."""
    capped: bool = False
    """Whether a `Budget` says so; else the permission to rent does."""
    guaranteed: dict[str, int] = {}
    """GPUs that a queue gets whenever it wants them."""
    closings: tuple[Closing, ...] = ()
    allotments: tuple[AllotmentPlan, ...] = ()

    def text(self) -> str:
        """As a platform team would write it."""
        documents = [_document("Queue", name, self._queue(name)) for name in ("default", "small")]
        documents += [each.text(f"closing{number}") for number, each in enumerate(self.closings)]
        documents += [each.text() for each in self.allotments]
        if self.budget_usd is not None:
            usd = f"usd: {{total: {self.budget_usd:g}}}"
            limits = "" if self.capped else f", limits: {{{usd}}}"
            documents.append(_document("BurstPolicy", "rent", f"when: {{mode: economic}}{limits}"))
            documents += [_document("Budget", "all", usd)] if self.capped else []
        return "---\n".join(documents)

    def _queue(self, name: str) -> str:
        said = ["met_deadline_usd_per_gpu_hour: 100"] if name == "default" else []
        said += [f"limit: {{gpus: {self.limits[name]}}}"] if name in self.limits else []
        if name in self.guaranteed:
            said.append(f"guaranteed: {{gpus: {self.guaranteed[name]}}}, reclaim_within: {RECLAIM_S:.0f}s")
        return ", ".join(said)


class PolicyChange(msgspec.Struct, frozen=True):
    """At that time another set takes the place of the one in force."""

    at_s: float
    policies: Policies


def draw_changes(
    seed: int, first: Policies, sites: tuple[str, ...], faults_s: float
) -> tuple[PolicyChange, ...]:
    """In some worlds quotas, caps, guarantees, calendars and reservations change, come and go. By a chance of its own."""
    chance = random.Random(f"policies/{seed}")
    many = chance.choice((1, 2, 3, 4)) if chance.random() < CHANGING_SHARE else 0
    times = sorted(chance.uniform(0.02, 0.95) * faults_s for _ in range(many))
    return tuple(PolicyChange(at_s, _changed(chance, first, sites, at_s, faults_s)) for at_s in times)


def _changed(
    chance: random.Random, first: Policies, sites: tuple[str, ...], at_s: float, faults_s: float
) -> Policies:
    limits = {"small": chance.choice((2, 3, 4))} if chance.random() < 0.85 else {}
    limits |= {"default": chance.choice((6, 8))} if chance.random() < 0.25 else {}  # no gang is larger
    budget_usd, capped = first.budget_usd, chance.random() < 0.5
    if budget_usd is not None:
        budget_usd = None if chance.random() < 0.2 else budget_usd * chance.choice((0.5, 1.0, 2.0))
    return Policies(
        limits=limits,
        budget_usd=budget_usd,
        capped=capped,
        guaranteed={"small": chance.choice((1, 2))} if chance.random() < 0.4 else {},
        closings=tuple(
            _closing(chance, site, at_s, faults_s)
            for site in chance.sample(sites, chance.choice((0, 0, 1, 1, 2)))
        ),
    )


def _closing(chance: random.Random, site: str, at_s: float, faults_s: float) -> Closing:
    daily = chance.random() < 0.3
    from_s = at_s + chance.uniform(-0.1, 0.3) * faults_s
    until_s = from_s + chance.uniform(0.05, 0.3) * faults_s
    return Closing(
        site=site,
        from_s=max(0.0, from_s // MINUTE_S * MINUTE_S),
        until_s=(until_s // MINUTE_S + 2) * MINUTE_S,
        kept_for="" if daily or chance.random() < 0.5 else "small",
        stops=chance.random() < 0.5,
        daily=daily,
    )


def _document(kind: str, name: str, said: str) -> str:
    return DOCUMENT.format(kind=kind, name=name, spec=f"{{{said}}}")
