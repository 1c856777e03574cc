"""The chain over the ledger: what makes it show that a line was removed, changed, added or put elsewhere.

Lines are written by many transactions at once, so a line cannot name the one before it without making all of them wait for each other. The leader links
them a moment later, in the order in which they were committed: a *seal* names some lines with their hashes, and its head is a hash over the head before and
each of these lines in turn. It is signed with a key that is not in the store. Nothing here reads or writes: values in, findings out.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from federator.kernel.errors import TooLarge

FRESH_S = 600.0
"""A line that is in no seal may be so much older than the newest one: it was written while nobody led, or just now."""

LONGEST_NAME = 256
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
"""An id, or a hash, key or signature in hex."""


class SealedLine(NamedTuple):
    """A line of the ledger, as a seal names it."""

    id: Name
    hash: Name
    at: float


class Seal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Some lines in the order of the chain. `head`: the hash over all before and these. `key`, `signature`: in hex, of the dispatcher that led."""

    number: int
    previous: Name
    at: float
    lines: tuple[SealedLine, ...]
    head: Name
    key: Name
    signature: Name
    before: Name = ""
    """Of the first seal: the last line that was there before the chain began; they are not in it,"""
    before_lines: int = 0
    """and how many there were."""


class LedgerState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the chain goes, and from where on it is kept: what was dropped by age is named and signed."""

    number: int = 0
    """Of the newest seal; 0: there is none."""
    head: Name = ""
    highest: Name = ""
    """The highest id of a line in it."""
    before: Name = ""
    before_dropped: int = 0
    """Of the lines from before the chain, how many are dropped."""
    first: int = 1
    """The oldest seal that is kept,"""
    dropped: int = 0
    """how many of its lines are dropped,"""
    first_previous: Name = ""
    """and the head before it."""
    key: Name = ""
    signature: Name = ""
    """Of what was dropped."""

    @property
    def cut(self) -> bytes:
        """What is signed."""
        return f"cut {self.first} {self.dropped} {self.first_previous} {self.before} {self.before_dropped}".encode()


class Head(msgspec.Struct, frozen=True):
    """A head that somebody keeps outside the store. Whoever has one sees when a ledger is rolled back behind it."""

    number: int
    head: Name


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of an export: one of these. Lines stand before their seal, in its order."""

    state: LedgerState | None = None
    line: dict[str, Any] | None = None
    seal: Seal | None = None
    signed: Head | None = None
    """What the dispatcher that exports has signed last, from beside the store."""


def line_hash(line: dict[str, Any]) -> str:
    """Of a line's fields; those that are empty do not count, so that fields which come later change nothing."""
    told = {name: value for name, value in sorted(line.items()) if value not in ("", 0, None)}
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def head_of(seal: Seal) -> str:
    """What its head must be."""
    start = f"{seal.number} {seal.previous} {seal.at!r} {seal.before} {seal.before_lines}"
    head = hashlib.sha256(start.encode()).hexdigest()
    for each in seal.lines:
        head = hashlib.sha256(f"{head} {each.id} {each.hash} {each.at!r}".encode()).hexdigest()
    return head


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it was sealed, in words. `line`: the id of a line, if it is about one."""

    text: str
    line: str = ""


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What came of looking at a ledger. Without findings it is whole, from its first line that is kept to its head."""

    findings: tuple[Finding, ...]
    lines: int
    seals: int
    head: Head | None
    unsealed: int
    """Lines that are not in the chain yet,"""
    before: int
    """and lines from before it began."""
    keys: tuple[str, ...]
    """Whose signatures it carries."""


Checks = Callable[[str, str, bytes], bool]
"""Whether a signature (key, signature, message) is right."""
MOST_FINDINGS = 1000
MOST_WAITING = 1_000_000
"""So many lines may come before their seal,"""
MOST_KEYS = 1000
"""and so many keys and heads be remembered: of an honest ledger there are a few."""
RECENT = 1000
"""A seal that came so many seals ago may come again: who exports repeats what he has not noted as done."""


MADE = "make one with federator ledger export"


class _Waiting(NamedTuple):
    """A line whose seal has not come: its hash, its time, and the how many-th it is."""

    hash: str
    at: float
    place: int


class Verifier:
    """Looks at an export, part by part. `trusted`: the keys that may have signed, any if empty. `kept`: heads that must be in the chain."""

    def __init__(self, checks: Checks, *, trusted: Iterable[str] = (), kept: Iterable[Head] = ()) -> None:
        self._checks, self._trusted = checks, frozenset(trusted)
        self._kept = list(kept)
        self._state = LedgerState()
        self.waiting: dict[str, _Waiting] = {}
        self._last: Seal | None = None
        self.heads: dict[int, str] = {}
        self.newest: dict[int, str] = {}
        """Of the seal that the state names."""
        self._again: set[str] = set()
        """Of the lines that wait, those that came twice, and alike: an export broke off before their seal."""
        self.recent: dict[int, str] = {}
        self._wanted = {head.number for head in self._kept}
        self._findings: list[Finding] = []
        self._lines = self._seals = self._before = self._place = 0
        self._keys: dict[str, None] = {}

    def take(self, part: Part) -> None:
        """The next part."""
        if part.state is not None:
            self._state = part.state
            self._check_cut(part.state)
        if part.line is not None:
            self._take_line(part.line)
        if part.seal is not None:
            self._take_seal(part.seal)
        if part.signed is not None:
            self._keep(part.signed)

    def end(self) -> Verified:
        """There is no more."""
        newest = self._last.number if self._last else 0
        heads = self.newest | self.heads
        for head in self._kept:
            if head.number > newest:
                self._find(
                    f"the ledger ends at seal {newest}, and seal {head.number} was signed: its end is missing"
                )
            elif head.number in heads and heads[head.number] != head.head:
                self._find(f"seal {head.number} is not the one whose head was kept: the ledger was rewritten")
        if self._state.number > newest:
            self._find(
                f"the ledger ends at seal {newest}, and there were {self._state.number}: its end is missing"
            )
        since = self._last.at - FRESH_S if self._last else float("-inf")
        for name, line in self.waiting.items():
            if name in self._again:
                self._find(f"line {name} is listed twice", name)
            if line.at < since:
                self._find(f"line {name} is in no seal: it was added", name)
        return Verified(
            findings=tuple(self._findings),
            lines=self._lines,
            seals=self._seals,
            head=Head(self._last.number, self._last.head) if self._last else None,
            unsealed=len(self.waiting),
            before=self._before,
            keys=tuple(self._keys),
        )

    def _keep(self, head: Head) -> None:
        if head in self._kept:
            return
        if len(self._kept) >= MOST_KEYS:
            raise TooLarge(f"it names over {MOST_KEYS} heads", remedy=MADE)
        self._kept.append(head)
        self._wanted.add(head.number)

    def _take_line(self, line: dict[str, Any]) -> None:
        name, at = line.get("id", ""), line.get("at", 0.0)
        if not isinstance(name, str) or len(name) > LONGEST_NAME or not isinstance(at, int | float):
            self._find(f"a line that is none of a ledger: its id is {str(name)[:80]}")
            return
        hashed, waiting = line_hash(line), self.waiting.get(name)
        if name <= self._state.before:
            self._before += 1
        elif waiting is not None and waiting.hash == hashed:
            self._again.add(name)
        elif waiting is not None:
            self._find(f"line {name} is listed twice", name)
        elif len(self.waiting) >= MOST_WAITING:
            raise TooLarge(f"over {MOST_WAITING} lines come before their seal", remedy=MADE)
        else:
            self._place += 1
            self.waiting[name] = _Waiting(hashed, float(at), self._place)

    def _take_seal(self, seal: Seal) -> None:
        if self.recent.get(seal.number) == seal.head == head_of(seal):
            self._take_again(seal)
            return
        self._check_place(seal)
        dropped = self._state.dropped if seal.number == self._state.first else 0
        place, in_order = 0, True
        for number, sealed in enumerate(seal.lines):
            line = self.waiting.pop(sealed.id, None)
            self._again.discard(sealed.id)
            if line is None:
                if number >= dropped:
                    self._find(f"line {sealed.id} is missing", sealed.id)
            elif line.hash != sealed.hash:
                self._find(f"line {sealed.id} was changed", sealed.id)
            elif line.place < place and in_order:
                self._find(f"line {sealed.id} is out of order", sealed.id)
                in_order = False  # once is enough for this seal
            else:
                place = line.place
            self._lines += line is not None
        self._check_signature(seal)
        self._seals += 1
        self._last = seal
        self.recent[seal.number] = seal.head
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]
        if seal.number in self._wanted:
            self.heads[seal.number] = seal.head
        if seal.number == self._state.number:
            self.newest = {seal.number: seal.head}

    def _take_again(self, seal: Seal) -> None:
        """A seal that was there before, and its lines."""
        for sealed in seal.lines:
            line = self.waiting.pop(sealed.id, None)
            self._again.discard(sealed.id)
            if line is not None and line.hash != sealed.hash:
                self._find(f"line {sealed.id} was changed", sealed.id)

    def _check_place(self, seal: Seal) -> None:
        last = self._last
        number, previous = (
            (last.number + 1, last.head) if last else (self._state.first, self._state.first_previous)
        )
        if seal.number != number:
            self._find(f"seal {number} is missing: {seal.number} follows")
        elif seal.previous != previous:
            self._find(f"seal {seal.number} does not follow the one before it: it was changed")
        if seal.number == 1 and self._state.before != seal.before:
            self._find("where the chain began was changed in its state")
        elif seal.number == 1 and self._before != seal.before_lines - self._state.before_dropped:
            self._find(
                f"{self._before} lines are left of {seal.before_lines - self._state.before_dropped} from before the chain"
            )

    def _check_signature(self, seal: Seal) -> None:
        if len(self._keys) >= MOST_KEYS and seal.key not in self._keys:
            raise TooLarge(f"over {MOST_KEYS} keys have signed it", remedy=MADE)
        self._keys[seal.key] = None
        if seal.head != head_of(seal):
            self._find(f"seal {seal.number} was changed: its head is not that of its lines")
        elif not self._checks(seal.key, seal.signature, seal.head.encode()):
            self._find(f"seal {seal.number} is not signed by the key that it names")
        elif self._trusted and seal.key not in self._trusted:
            self._find(f"seal {seal.number} is signed by {seal.key}, which is not a key that you trust")

    def _check_cut(self, state: LedgerState) -> None:
        if (state.first, state.dropped, state.before_dropped) == (1, 0, 0):
            return
        if not self._checks(state.key, state.signature, state.cut):
            self._find("what was dropped from the beginning is not signed by the key that it names")
        elif self._trusted and state.key not in self._trusted:
            self._find(
                f"what was dropped from the beginning is signed by {state.key}, which you do not trust"
            )

    def _find(self, text: str, line: str = "") -> None:
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(Finding(text, line))
