"""What there is now, for those who follow it: sites, queues, leases and budgets, as rows and then as what changes of them.

Rows are made once for all who follow, when one of them asks and at most once a second, so that nobody's look costs a turn anything, and nothing is made
while nobody follows. Nothing is kept for a follower either: it says up to which change it has seen, and is sent the last state of what has changed
since. One who reads slowly is sent less often, one who comes back is sent what is new, and one who was away for too long all rows anew.
"""

import asyncio
import contextlib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple, get_args

import msgspec
from aiohttp import web

from federator.assembly import Core
from federator.control.record.records import Changes as Written
from federator.kernel.errors import TooMany
from federator.model.capacity import LEASE_ENDED
from federator.wire.changes import Change, Mark, RentLine, SiteLine, Topic
from federator.wire.http import SiteRow

PACE_S = 1.0
"""Real seconds between two looks at a topic, at least."""
SHARE = 20
"""A look that takes long is not repeated before so many times as long: of the dispatcher's time it has a twentieth at most."""
IDLE_S = 30.0
"""Real seconds after which rows that change by the clock alone are looked at, too."""
REMEMBERED, REMEMBERED_BYTES = 20_000, 2**24
"""Changes of rows that are remembered for those who come back; fewer of long rows, as agents have their say in them."""
EACH = 64
"""Streams of one person at once."""
TOLD = 32
"""Messages that are kept until the next change. Followers that keep up ask for very few; who makes up others gets no more memory for it."""
TOPICS: tuple[Topic, ...] = get_args(Topic)
Rows = Mapping[str, msgspec.Struct]


class _Noted(NamedTuple):
    """A change of a row, and its size as JSON."""

    number: int
    topic: Topic
    key: str
    patch: dict[str, Any] | None
    size: int


@dataclass
class _Kept:
    """A topic as it was last looked at."""

    rows: Rows = field(default_factory=dict)
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The same rows by their fields."""
    due_s: float = 0.0
    idle_s: float = 0.0
    written: int = -1


class LiveRows:
    """The rows of all topics, and what has changed of them. `now` is in real seconds."""

    def __init__(self, core: Core, now: Callable[[], float]) -> None:
        self.now = now
        self.closing = asyncio.Event()
        self.token = secrets.token_hex(8)
        """Numbers of another process mean nothing here."""
        self.number = 0
        """Of the last change."""
        self.looks = 0
        self._makers = _makers(core, lambda: self._jobs)
        self._kept: dict[Topic, _Kept] = {topic: _Kept() for topic in TOPICS}
        self.remembered: deque[_Noted] = deque()
        self.remembered_bytes = 0
        self._forgotten = 0
        """The newest change that is not remembered any more."""
        self.told = lru_cache(maxsize=TOLD)(self._message)
        """Messages as they were put together since the last change: followers ask for the same ones."""
        self._following: Counter[str] = Counter()
        self._written = self._jobs = 0
        self._unsubscribe = core.records.subscribe(self._on_change)

    @contextlib.contextmanager
    def place(self, who: str) -> Iterator[None]:
        """A place among those who follow. Raises `TooMany`."""
        if self._following[who] >= EACH:
            raise TooMany(
                f"user {who} follows changes {EACH} times already",
                retry_after_s=PACE_S,
                remedy="close some of the console's tabs, or end commands with --watch",
            )
        self._following[who] += 1
        try:
            yield
        finally:
            self._following[who] -= 1
            if not self._following[who]:
                del self._following[who]

    def look(self, topics: Iterable[Topic]) -> None:
        """See what has changed of these, as far as it is time."""
        for topic in topics:
            kept, began_s = self._kept[topic], self.now()
            # Reports of sites are not written down; everything else follows from what is, and from the clock.
            stale = topic == "sites" or kept.written != self._written or began_s >= kept.idle_s
            if began_s < kept.due_s or not stale:
                continue
            written = self._written
            self.note(topic, self._makers[topic]())
            self.looks += 1
            ended_s = self.now()
            kept.written, kept.idle_s = written, ended_s + IDLE_S
            kept.due_s = ended_s + max(PACE_S, SHARE * (ended_s - began_s))

    def news(self, topics: tuple[Topic, ...], site: str, after: int | None) -> bytes:
        """What has changed since, as one server-sent event with the id of where that leads; empty: nothing. None: all rows."""
        if after == self.number:
            return b""
        if after is not None and (after < self._forgotten or after > self.number):
            after = None
        return self.told(topics, site if "sites" in topics else "", after)

    def number_of(self, last: str) -> int | None:
        """The change that an id names; None: it is of another process, or of none."""
        token, _, number = last.partition("-")
        return int(number) if token == self.token and number.isdecimal() else None

    def close(self) -> None:
        """Let everyone who follows go."""
        self._unsubscribe()
        self.closing.set()

    def _on_change(self, changes: Written) -> None:
        self._written += 1
        # While nobody follows it is not looked at what has changed: they are told that it may have.
        self._jobs += not self._following or any(key.startswith("job/") for key in changes.rows)

    def note(self, topic: Topic, rows: Rows) -> None:
        """Remember what is new of these rows of the topic, and forget the oldest changes beyond the limits."""
        kept = self._kept[topic]
        patches: dict[str, dict[str, Any] | None] = {key: None for key in kept.rows if key not in rows}
        for key in patches:
            del kept.fields[key]
        for key, row in rows.items():
            if kept.rows.get(key) == row:
                continue
            fresh, old = msgspec.to_builtins(row), kept.fields.get(key, {})
            fresh.pop("yours", None)  # of a queue: what each may do there is in GET /v1/queues
            patches[key] = {
                name: value for name, value in fresh.items() if name not in old or old[name] != value
            }
            kept.fields[key] = fresh
        kept.rows = rows
        if not patches:
            return
        self.number += 1
        self.told.cache_clear()
        for key, patch in patches.items():
            self.remembered.append(_Noted(self.number, topic, key, patch, len(msgspec.json.encode(patch))))
            self.remembered_bytes += self.remembered[-1].size
        while len(self.remembered) > REMEMBERED or self.remembered_bytes > REMEMBERED_BYTES:
            gone = self.remembered.popleft()
            self._forgotten, self.remembered_bytes = gone.number, self.remembered_bytes - gone.size

    def _message(self, topics: tuple[Topic, ...], site: str, after: int | None) -> bytes:
        found: dict[Topic, dict[str, dict[str, Any] | None]] = {}
        if after is None:
            found = {topic: dict(self._kept[topic].fields) for topic in topics}
        else:
            news = takewhile(lambda each: each.number > after, reversed(self.remembered))
            for _, topic, key, patch, _ in reversed(list(news)):
                if topic in topics:
                    rows = found.setdefault(topic, {})
                    before = rows.get(key)
                    rows[key] = {**before, **patch} if before and patch is not None else patch
        if site and "sites" in found:
            found["sites"] = {key: row for key, row in found["sites"].items() if key == site}
        told = {topic: rows for topic, rows in found.items() if rows or after is None}
        if not told:
            return b""
        data = msgspec.json.encode(Change(reset=after is None, rows=told))
        return b"id: %s-%d\ndata: %s\n\n" % (self.token.encode(), self.number, data)


def _makers(core: Core, jobs: Callable[[], int]) -> dict[Topic, Callable[[], Rows]]:
    """How the rows of each topic are made, by key. `jobs` tells another number once any job has changed."""
    records, views = core.records, core.views

    def rent() -> Rows:
        leases = list(records.leases.values())
        living = [lease for lease in leases if lease.status not in LEASE_ENDED]
        return {
            "": RentLine(
                machines=len(living),
                price_usd_h=sum(lease.offer.price_usd_h for lease in living),
                billed_usd=sum(lease.billed_usd for lease in leases),
                committed_usd=sum(max(0.0, lease.committed_usd - lease.billed_usd) for lease in living),
            )
        }

    def plan() -> Rows:
        newest = core.turn.plan
        return _mark(f"{newest.decision} {newest.taken_at}" if newest else "")

    def policies() -> Rows:
        paused = records.flags.get("burst-paused")
        return _mark(f"{records.policies.version} {paused.at if paused and paused.on else ''}")

    return {
        "sites": lambda: {row.name: _line(row, core.clock.now()) for row in views.sites()},
        "queues": lambda: {row.queue: row for row in views.queues()},
        "leases": lambda: {row.id: row for row in views.leases()},
        "budgets": lambda: {f"{row.policy} {row.period} {row.share}": row for row in views.budgets()},
        "rent": rent,
        "jobs": lambda: _mark(str(jobs())),
        "plan": plan,
        "policies": policies,
        "alerts": lambda: _mark(core.alerts.mark),
    }


def _mark(at: str) -> Rows:
    return {"": Mark(at)}


def _line(row: SiteRow, now: float) -> SiteLine:
    return SiteLine(
        name=row.name,
        kind=row.kind,
        status=row.status,
        region=row.region,
        labels=row.labels,
        models=tuple(sorted({pool.pool.model for pool in row.pools if pool.pool.model})),
        gpus=row.gpus,
        busy=row.busy,
        sick=sum(len(pool.ailing) for pool in row.pools),
        running=row.running,
        largest_gang=row.largest_gang,
        reported_at=None if row.age_s is None else float(round(now - row.age_s)),
        draining=row.draining,
        drain_because=row.drain_because,
        paused=row.paused,
        members=row.members,
        because=row.because,
    )


LIVE = web.AppKey("live", LiveRows)
"""Where the application keeps them."""
