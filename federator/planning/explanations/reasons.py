"""Why a job does not run at a place: the first filter, else the first situation, in the published orders.

A `DecidedWorld` is the world just after a plan's decisions: what is still free, and what is left of caps. It answers for any job and
place at once, without planning again, so that waiting jobs always have a reason.
"""

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from federator.model import reasons as why
from federator.model.jobs import in_gpus
from federator.model.plans import SiteReason
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import wait_usd
from federator.planning.places.candidates import Candidate, machines
from federator.planning.places.host_sets import HostSet, Release, hosts_for, need_of
from federator.planning.places.requests import asked, form_taken
from federator.planning.places.staleness import last_heard_s
from federator.planning.rentals.burst import Bursting, to_approve
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection
from federator.planning.rules.caps import QUEUE_UNITS, Caps
from federator.planning.rules.feasibility import CLOSED, FILTERS, SITUATIONS
from federator.planning.wording.told import told_site
from federator.planning.world.prices import cost
from federator.planning.world.problem import World

_NAMES = [*(test.name for test in FILTERS), *(situation.name for situation in SITUATIONS), ""]
ORDER = {name: number for number, name in enumerate(_NAMES)}
"""How far a place came: the further, the closer it is to being one where the job runs."""
STARTED = 1 << 40
"""Releases of what this plan starts are numbered from here on, beyond those of all that runs."""


class DecidedWorld:
    """The world just after some decisions: `starts` are jobs with the index of their place."""

    def __init__(self, world: World, bursting: Bursting, starts: Iterable[tuple[JobView, int]]) -> None:
        """Take the decisions' capacity and count them into caps."""
        self.world, self.bursting = world, bursting
        self._host_sets = world.host_sets()
        self.caps = Caps(world.snapshot, world.book.caps)
        self.stocks = world.stocks.copy()
        self._asked: JobView | None = None
        self._found: dict[int, SiteReason] = {}
        """Of the job that was asked about last: an explanation asks the same several times."""
        self._nearest: dict[object, SiteReason | None] = {}
        self.taken = tuple((world.as_form(whole, place), place) for whole, place in starts)
        for job, place in self.taken:
            self.caps.take(job, world.places[place])
            if world.places[place].offer is None:
                self._occupy(job, place)
            else:
                self.stocks.take(world.place_of(place), machines(job, world.places[place]))

    def _occupy(self, job: JobView, place: int) -> None:
        """The job starts now and is expected to end in time."""
        host_set, need = self.host_set(place), need_of(job)
        hosts = hosts_for(job, self.world.places[place], host_set)
        if hosts is not None:
            host_set.put(need, hosts)
            ends_at = self.world.now + self.world.places[place].run_s(job)
            host_set.release_later(Release(ends_at, STARTED + len(host_set.releases), need, hosts, job))

    def host_set(self, choice: int) -> HostSet:
        """The hosts of a choice's place."""
        return self._host_sets[self.world.place_of(choice)]

    def reason(self, job: JobView, place: int) -> SiteReason:
        """Why the job is not there, or that it could be, at which extra cost and when: of several forms, the one that came furthest."""
        if self._asked is not job:
            self._asked, self._found = job, {}
        if place not in self._found:
            self._found[place] = self._furthest(job, place)
        return self._found[place]

    def _furthest(self, job: JobView, place: int) -> SiteReason:
        if not job.forms:
            return self.reason_in(job, place)

        def order(reason: SiteReason) -> tuple[int, float]:
            return -ORDER[reason.filter], math.inf if reason.finish_at is None else reason.finish_at

        choices = self.world.choices(job, place)
        return min((self.reason_in(job, choice) for choice in choices), key=order)

    def reason_in(self, whole: JobView, place: int) -> SiteReason:
        """The same in one of its forms, as the choice says, which is named where it has several."""
        job = self.world.as_form(whole, place)
        found = self._reason(job, place)
        if not whole.forms or not found.filter or found.filter == CLOSED:
            return found
        assert found.reason is not None, "a filter or a situation has a reason"
        form = form_taken(whole, self.world.form_of(place))
        return replace(found, reason=why.InForm(form=form, why=found.reason))

    def _reason(self, job: JobView, place: int) -> SiteReason:
        rejection = self.world.rejection(job, place)
        if rejection is not None:
            return self._say(place, rejection.filter, rejection.reason)
        now = self.world.now
        if job.not_before_at is not None and job.not_before_at > now:
            return self._say(place, "not-before", why.NotBefore(until_at=job.not_before_at))
        return (
            self._offered(job, place)
            if self.world.places[place].offer is not None
            else self._standing(job, place)
        )

    def reasons(self, job: JobView) -> tuple[SiteReason, ...]:
        """One per pool and offer, told, in the order of their keys; costs are those beyond the cheapest place."""
        places, now = range(len(self.world.places)), self.world.now
        found = [told_site(self.reason(job, place), now) for place in places]
        least = min((r.extra_cost_usd for r in found if r.extra_cost_usd is not None), default=0.0)
        return tuple(
            r
            if (usd := r.extra_cost_usd) is None
            else replace(r, extra_cost_usd=round(usd - least, 4), direct_usd=usd)
            for r in found
        )

    def closest(self, job: JobView, places: Sequence[int]) -> SiteReason | None:
        """The reason of the place that came furthest: one that passes all filters, where there is any."""
        passing = set(map(self.world.place_of, self.world.open_to(job)))
        if not (open_to := [place for place in places if place in passing]) and not job.forms:
            places = self.world.furthest(job, places)
        nearest = self.in_order(job, open_to or places)
        return self.reason(job, nearest[0]) if nearest else None

    def closest_offer(self, job: JobView) -> SiteReason | None:
        """The same among offers: asked once for all of a class whose cases are the same."""
        alike = self.bursting.alike(job)
        if alike not in self._nearest:
            offers = [place for place, at in enumerate(self.world.places) if at.offer is not None]
            self._nearest[alike] = self.closest(job, offers)
        found = self._nearest[alike]
        if found is not None and found.filter == "approval" and found.reason is not None:
            return replace(found, reason=to_approve(found.reason, job))
        return found

    def in_order(self, job: JobView, places: Iterable[int]) -> list[int]:
        """Places by how far they came, the furthest first; among equals the one with the soonest finish, then by name.

        One that takes nothing new for now came as far as it would if it did: it may open again, and the job will not change by itself.
        """

        def order(found: tuple[int, SiteReason]) -> tuple[int, float, str, str]:
            place, reason = found
            finish_at = math.inf if reason.finish_at is None else reason.finish_at
            return -self._depth(job, place, reason), finish_at, reason.site, reason.pool

        found = sorted(((place, self.reason(job, place)) for place in places), key=order)
        return [place for place, _ in found]

    def _depth(self, job: JobView, place: int, reason: SiteReason) -> int:
        if reason.filter != CLOSED:
            return ORDER[reason.filter]
        lasting = [self.world.rejection_if_open(job, choice) for choice in self.world.choices(job, place)]
        return max(ORDER[each.filter] if each else len(FILTERS) for each in lasting)

    def _say(self, place: int, name: str, reason: why.Reason) -> SiteReason:
        at = self.world.places[place]
        return SiteReason(site=at.site, pool=at.pool, filter=name, reason=reason)

    def _standing(self, job: JobView, place: int) -> SiteReason:
        at, host_set = self.world.places[place], self.host_set(place)
        if at.rented and not self.bursting.may_use_lease(job, place):
            case = self.bursting.case(job, place)
            assert isinstance(case, BurstRejection), "a job with a case may use the lease"
            return self._say(place, case.situation, case.reason)
        capped = self._capped(job, at)
        if capped is not None:
            return self._say(place, *capped)
        start = host_set.earliest(need_of(job), job.nodes)
        if at.ready_at is not None and at.ready_at > self.world.now:
            return self._priced(job, place, "booting", why.Booting(start_at=start or at.ready_at), start)
        if start is None:
            return self._say(place, "busy", why.InUse(gpus=float(job.gpus_total)))
        if start > self.world.now:
            return self._priced(job, place, "busy", _busy(job, host_set, start), start)
        return self._priced(job, place, "", why.FitsNow(), self.world.now)

    def _capped(self, job: JobView, at: Candidate) -> tuple[str, why.Reason] | None:
        """The situation and the reason, where a cap is in the way."""
        row = self.caps.blocking(job, at)
        if row is None:
            return None
        name = "queue-limit" if row.unit in QUEUE_UNITS else "budget"
        return name, self.caps.reached(row, job, at)

    def _priced(
        self, job: JobView, place: int, name: str, reason: why.Reason, start: float | None
    ) -> SiteReason:
        at = self.world.places[place]
        begin = max(self.world.now, start or self.world.now)
        usd = cost(self.world.book, job, at, begin).total
        return self._at_price(job, place, name, reason, usd, begin, begin + at.run_s(job))

    def _at_price(
        self,
        job: JobView,
        place: int,
        name: str,
        reason: why.Reason,
        usd: float,
        start_at: float,
        finish_at: float,
    ) -> SiteReason:
        """What is said of the place, and with it what a start there would cost, and when it would be."""
        told = self._say(place, name, _with_data(reason, self.world.places[place], job))
        return replace(told, extra_cost_usd=round(usd, 4), start_at=start_at, finish_at=finish_at)

    def _offered(self, job: JobView, place: int) -> SiteReason:
        case = self.bursting.case(job, place)
        if isinstance(case, BurstRejection):
            return self._say(place, case.situation, case.reason)
        name, reason = self._rentable(job, place, case)
        wait = wait_usd(self.world.book.wait_usd_h(job), case.start_at - self.world.now, 0.0)
        return self._at_price(job, place, name, reason, case.cost_usd + wait, case.start_at, case.finish_at)

    def _rentable(self, job: JobView, place: int, case: BurstCandidate) -> tuple[str, why.Reason]:
        """What, if anything, keeps a permitted and justified rental from being made."""
        at, gains = self.world.places[place], self.bursting.gains
        if not case.required and case.cost_usd >= gains.usd(job, case):
            alone = gains.dear(job, case)
            return alone.situation, alone.reason
        if not case.is_now(self.world.now):
            later = why.RentLater(rent_at=case.rent_at, cost_usd=case.cost_usd, policy=case.policy)
            return "not-yet", later
        capped = self._capped(job, at)
        if capped is not None:
            return capped
        assert at.offer is not None, "only offers are rented"
        left, count = self.stocks.room(self.world.place_of(place)), machines(job, at)
        if left < count:
            return "sold-out", self._sold_out(place, left, count)
        return "", why.Rentable(cost_usd=case.cost_usd, policy=case.policy)

    def _sold_out(self, place: int, left: int, count: int) -> why.SoldOut:
        """What of an offer, or of the stock that it draws on, is not enough."""
        provider = self.world.places[place].provider or ""
        short = self.stocks.short(self.world.place_of(place), count)
        if short is None:
            return why.SoldOut(provider=provider, left=left, needs=count)
        stock, taken, needs = short
        return why.SoldOut(
            provider=provider,
            needs=needs,
            stock=stock.name,
            unit=stock.unit,
            limit=stock.limit,
            taken=taken,
        )


def _with_data(reason: why.Reason, at: Candidate, job: JobView) -> why.Reason:
    """And what else there is to say of a place: data that is brought there, and how old what is known of it is."""
    brought, heard_s = at.transfer(job).brought, last_heard_s(at.views)
    if brought is None and not heard_s:
        return reason
    return why.WithData(why=reason, brought=brought, heard_s=heard_s)


def _busy(job: JobView, host_set: HostSet, start_at: float) -> why.Busy:
    """What is free there and yet not enough."""
    if not job.gpus:
        cores = sum(host.cpus_milli for host in host_set.hosts) / 1000
        return why.Busy(asked=asked(job), start_at=start_at, free=cores, lacks="cpus")
    free = float(in_gpus(sum(host.gpus for host in host_set.hosts), shared=job.shared))
    fits = sum(host.gpus // job.gpus for host in host_set.hosts)
    lacks = "hosts" if fits < job.nodes else "rest"
    return why.Busy(asked=asked(job), start_at=start_at, free=free, lacks=lacks, fits=fits)
