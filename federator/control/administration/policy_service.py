"""The service for policies: validates a set, applies it as one version with author and reason, and tells its history.

Compiling is the only moment at which policy plugins run; what decisions see are the rules that came out.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from federator.control.administration.authority import Authority
from federator.control.leases.proposals import approve, wanted_usd
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Flag, Records
from federator.kernel.errors import Conflict, FederatorError, Invalid, NotFound
from federator.model.identity import Caller, Role
from federator.model.rules import PolicyDocument, PolicyRule, PolicySet, QueueTerms
from federator.planning.explanations.rule_words import in_words
from federator.wire.administration import DocumentChange, PolicyDiff, PolicyVerdict
from federator.wire.http import Problem


class Compiled(NamedTuple):
    """What a policy text means."""

    documents: tuple[PolicyDocument, ...]
    rules: tuple[PolicyRule, ...]


Compile = Callable[[str], Compiled]
"""Reads YAML text. Raises `Invalid` with path and remedy, or an ExceptionGroup of several."""


class PolicyService:
    """Policies, as people apply them."""

    def __init__(self, records: Records, event_writer: EventWriter, compile_text: Compile) -> None:
        self._records = records
        self._event_writer = event_writer
        self._outcome = lru_cache(maxsize=2)(partial(_outcome, compile_text))

    def outcome(self, text: str) -> Compiled | Exception:
        """What the text says by itself, whatever is in force, or what is wrong with it. Remembered, so that it may be found out in a thread first."""
        return self._outcome(text)

    def text_in_force(self) -> str:
        """The set in force as one text."""
        return "---\n".join(each.text.rstrip("\n") + "\n" for each in self.current().documents)

    def validate(self, text: str) -> PolicyVerdict:
        """Everything that is wrong with the text; nothing is changed."""
        try:
            compiled = self._read(text)
        except ExceptionGroup as group:
            return PolicyVerdict(version=None, problems=tuple(_problem(error) for error in group.exceptions))
        except FederatorError as error:
            return PolicyVerdict(version=None, problems=(_problem(error),))
        return PolicyVerdict(
            version=None,
            documents=_titles(compiled),
            rules=len(compiled.rules),
            access=Authority(compiled.rules).shown,
        )

    async def apply(
        self, caller: Caller, text: str, reason: str, *, instead_of: int | None = None
    ) -> PolicyVerdict:
        """Put the whole set in force. A text with a fault changes nothing. Raises `Conflict` where another version than `instead_of` is in force by now."""
        caller.require(Role.PLATFORM)
        verdict = self.validate(text)
        if verdict.problems:
            return verdict
        compiled = self._read(text)
        versions: list[int] = []

        def compute() -> Changes:
            changes = Changes()
            in_force = self._records.policies.version
            if instead_of not in (None, in_force):
                raise Conflict(
                    f"the policies have changed: version {in_force} is in force, not {instead_of}",
                    remedy="read the set again, and repeat the change",
                )
            version = in_force + 1
            versions[:] = [version]
            changes.put(
                PolicySet(
                    version=version,
                    author=caller.name,
                    reason=reason,
                    applied_at=self._event_writer.clock.now(),
                    documents=compiled.documents,
                    rules=compiled.rules,
                )
            )
            self._event_writer.act(
                changes, f"user:{caller.name}", f"apply policies version {version}: {reason}"
            )
            return changes

        await self._records.transact(compute)
        return PolicyVerdict(
            version=versions[0],
            documents=_titles(compiled),
            rules=len(compiled.rules),
            access=Authority(compiled.rules).shown,
        )

    def diff(self, text: str) -> PolicyDiff:
        """How the text differs from the set in force; of a text with a fault, only its faults."""
        verdict, current = self.validate(text), self._records.policies
        if verdict.problems:
            return PolicyDiff(version=current.version, problems=verdict.problems)
        compiled = self._read(text)
        before, after = _words(current.rules), _words(compiled.rules)
        return PolicyDiff(
            version=current.version,
            documents=tuple(_changed(current.documents, compiled.documents)),
            added=tuple(line for line in after if line not in before),
            removed=tuple(line for line in before if line not in after),
        )

    async def rollback(self, caller: Caller, version: int, reason: str) -> PolicyVerdict:
        """Put a former set in force again, as a new version. Raises `NotFound` for a version that there is none of."""
        caller.require(Role.PLATFORM)
        former = self._records.policy_sets.get(f"{version:08d}")
        if former is None:
            raise NotFound(
                f"there is no version {version}",
                remedy="'federator policy history' lists those that there are",
            )
        if version == self._records.policies.version:
            raise Invalid("is in force", field="version", remedy="name an earlier one")
        text = "---\n".join(document.text.rstrip("\n") + "\n" for document in former.documents)
        return await self.apply(caller, text, f"back to version {version}: {reason}")

    def current(self) -> PolicySet:
        """The set in force."""
        return self._records.policies

    def history(self) -> list[PolicySet]:
        """All versions, oldest first."""
        return [self._records.policy_sets[key] for key in sorted(self._records.policy_sets)]

    async def approve(self, caller: Caller, job_id: str, usd: float | None, reason: str) -> None:
        """Let one rental for the job cost so much in the worst case; without an amount, what was proposed to people."""
        usd = wanted_usd(self._records, job_id) if usd is None else usd
        await approve(self._records, self._event_writer, caller, job_id, usd=usd, reason=reason)

    async def pause_burst(self, caller: Caller, *, on: bool) -> None:
        """Stop, or allow again, all new renting at once; what is rented goes on."""
        caller.require(Role.PLATFORM)

        def compute() -> Changes:
            changes = Changes()
            changes.put(Flag("burst-paused", on, caller.name, self._event_writer.clock.now()))
            self._event_writer.act(changes, f"user:{caller.name}", "burst pause" if on else "burst resume")
            return changes

        await self._records.transact(compute)

    def _read(self, text: str) -> Compiled:
        """Compile, and refuse to take away a queue in which jobs still are."""
        compiled = self.outcome(text)
        if isinstance(compiled, Exception):
            raise compiled.with_traceback(None)
        kept = {rule.queue for rule in compiled.rules if isinstance(rule, QueueTerms)}
        orphans = sorted(self._records.index.open_queues() - kept)
        if orphans:
            raise Invalid(
                f"queue {orphans[0]!r} is gone from the set, but jobs are in it",
                field="$",
                remedy="move them first: federator update JOB --queue QUEUE",
            )
        return compiled


def _outcome(compile_text: Compile, text: str) -> Compiled | Exception:
    try:
        return compile_text(text)
    except (FederatorError, ExceptionGroup) as error:
        return error


def _words(rules: Sequence[PolicyRule]) -> list[str]:
    return list(dict.fromkeys(in_words(rule) for rule in rules))


def _changed(before: Sequence[PolicyDocument], after: Sequence[PolicyDocument]) -> Iterator[DocumentChange]:
    """Documents that differ, each by itself: the order of documents means nothing."""
    old = {f"{each.kind}/{each.name}": each.text for each in before}
    new = {f"{each.kind}/{each.name}": each.text for each in after}
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) == new.get(name):
            continue
        change = "added" if name not in old else "removed" if name not in new else "changed"
        was, becomes = old.get(name, "").splitlines(), new.get(name, "").splitlines()
        lines = tuple(difflib.unified_diff(was, becomes, lineterm="", n=2))[2:]
        yield DocumentChange(name, change, lines)


def _titles(compiled: Compiled) -> tuple[str, ...]:
    return tuple(f"{document.kind}/{document.name}" for document in compiled.documents)


def _problem(error: BaseException) -> Problem:
    if isinstance(error, FederatorError):
        return Problem(
            "about:blank", "policy refused", 422, error.message, error.code, error.field, error.remedy
        )
    raise error
