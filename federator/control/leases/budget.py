"""What rented machines may still cost: by what was committed for them, by the job that pays, by budgets, and by whoever has paused renting."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from federator.control.accounts.money import Affordable, affordable, strained_budgets
from federator.control.accounts.selection import rented_by
from federator.control.leases.demand import Demand
from federator.control.record.records import Records
from federator.kernel.clock import Clock
from federator.kernel.quantities import format_duration, format_instant
from federator.model.capacity import Lease, Market
from federator.model.rules import BurstMode, Filter, Opening, PoolSelector, Window, selects
from federator.planning.rentals.warmth import saved_s, worth_keeping
from federator.planning.rules.openings import changes_at, takes_work
from federator.settings import LeaseSettings


def _ends_at(window: Window | None, now: float) -> float:
    """When the hours end; now, outside of them."""
    hours = Opening("", PoolSelector(), windows=() if window is None else (window,))
    if not takes_work(hours, now):
        return now
    change = changes_at(hours, now)
    return math.inf if change is None else change


class WarmMachine(NamedTuple):
    """Until when a machine that idles is kept, and why; empty: no longer."""

    until_at: float
    because: str


class LeaseBudget:
    """Asked by the executor before every step of a lease."""

    def __init__(self, records: Records, clock: Clock, settings: LeaseSettings) -> None:
        self._records = records
        self._clock = clock
        self.settings = settings
        self._demand = Demand(records)
        self._budgets: dict[str, Affordable] = {}
        """Of this pass: leases that budgets no longer let run to their end."""

    def count(self) -> None:
        """Look at all budgets anew: once per pass, for it goes over all leases."""
        self._budgets = strained_budgets(self._records, self._clock.now())

    def left_s(self, lease: Lease) -> float:
        """Until it must be given back to end while there is money for it. Two polls early, because nobody looks more often.

        On spot twice as early: its price may double before anybody sees that, and the end has to be paid for at that.
        """
        early_s = lease.offer.teardown_s + 2 * self.settings.poll_s
        early_s *= 2 if lease.offer.market is Market.SPOT else 1
        return self._affordable(lease).until_at - early_s - self._clock.now()

    def warm(self, lease: Lease) -> WarmMachine:
        """Until when it is kept though nothing runs there: while what is paid for lasts, and no longer than renting it anew would cost, or `idle_s`.

        Longer where the times that others like it idled lately say that it will be needed soon enough; not while renting is paused. Beyond what
        is paid for only in hours in which its policy rents and no calendar has it closed.
        """
        now, offer = self._clock.now(), lease.offer
        idle_since_at = lease.idle_since_at or now
        worth_s = min(self.settings.idle_s, offer.delay_s + offer.teardown_s)
        begun_at = lease.launched_at or lease.requested_at
        closes_at = self._closes_at(lease, now)
        worth_at = min(idle_since_at + worth_s, closes_at)
        paid_at = begun_at + offer.minimum_billing_s - offer.teardown_s
        until_at = max(worth_at, paid_at)
        if now < until_at:
            why = "renting again would cost at least as much"
            if paid_at >= worth_at:
                why = "it is paid for until then"
            elif worth_at == closes_at:
                why = "nothing like it may be rented after that"
            return WarmMachine(until_at, f"it idles and is kept until {format_instant(until_at)}: {why}")
        if self.settings.warm_s <= 0 or self.closed or not self._is_wanted(lease):
            return WarmMachine(until_at, "")
        saves_s = saved_s(offer, self._demand.run_s(lease, now))
        waits = self._demand.waits(lease, now)
        most_s = min(self.settings.warm_s, closes_at - idle_since_at)
        keeping = worth_keeping(waits, now - idle_since_at, saves_s, most_s)
        if keeping is None:
            return WarmMachine(until_at, "")
        because = (
            f"it idles and is kept until {format_instant(idle_since_at + keeping.until_s)}: of {keeping.of} times that one like it had idled "
            f"as long, one was needed by then {keeping.came} times, and renting again costs {format_duration(saves_s)} of rent more"
        )
        return WarmMachine(idle_since_at + keeping.until_s, because)

    def _is_wanted(self, lease: Lease) -> bool:
        """Whether the policy that it was rented under is still in force: else nothing speaks for renting anew."""
        return any(self._permits(lease))

    def _permits(self, lease: Lease) -> Iterator[Filter]:
        rules = self._records.policies.rules
        return (
            rule for rule in rules if isinstance(rule, Filter) and rule.mode and rule.policy == lease.policy
        )

    def _closes_at(self, lease: Lease, now: float) -> float:
        """From when on nobody could rent it: its policy's hours end, or a calendar closes what is like it. Without hours, never."""
        permits = list(self._permits(lease))
        ends = [now if permit.mode is BurstMode.OFF else _ends_at(permit.window, now) for permit in permits]
        closes_at = max(ends, default=math.inf)
        for rule in self._records.policies.rules:
            closes_to_all = isinstance(rule, Opening) and rule.but_for is None
            if isinstance(rule, Opening) and closes_to_all and selects(rule.pools, rented_by(lease)):
                change = changes_at(rule, now)
                closed = not takes_work(rule, now)
                closes_at = min(closes_at, now if closed else math.inf if change is None else change)
        return closes_at

    def because(self, lease: Lease) -> str:
        """What ends it."""
        return self._affordable(lease).because

    def spent_because(self, lease: Lease) -> str:
        """What leaves no money for it; empty while there is some."""
        return self.because(lease) if self.left_s(lease) <= 0 else ""

    def why(self, lease: Lease, otherwise: str) -> str:
        """Why it came to nothing: a budget, if one is strained, or something else."""
        return self._budgets[lease.id].because if lease.id in self._budgets else otherwise

    @property
    def closed(self) -> bool:
        """Whether nothing new may be rented: not even what a plan has asked for a moment ago."""
        flag = self._records.flags.get("burst-paused")
        return flag is not None and flag.on

    def _affordable(self, lease: Lease) -> Affordable:
        return affordable(self._records, lease, self._budgets)
