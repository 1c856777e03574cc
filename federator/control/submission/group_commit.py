"""Group commit: jobs that are submitted at the same moment are accepted as one transaction, whoever submits them.

A transaction costs its comparisons, a write, a note of the ledger's lines and a word to every listener, whatever is in it. So while as many as may be
are on their way to the store, those that come gather, and the next takes all of them. A lone one waits for nobody.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from federator.control.record.holders import OnTheWay
from federator.control.record.records import Changes, Records
from federator.control.submission.acceptance import Acceptance, Entry, Submission
from federator.kernel.errors import FederatorError, TooLarge, Unavailable
from federator.model.identity import Caller
from federator.wire.http import Submitted

GROUP = 20
"""Jobs per transaction where many come at once: up to five rows each."""
IN_FLIGHT = 4
"""Transactions of single jobs that are on their way at once."""

AGAIN = "submit it again with the same client id"


class _Faulty(Exception):
    """A fault of ours with one of a group; nothing of it has been written."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


class Asked(NamedTuple):
    """A single job that somebody submits. `folders`: as `Acceptance.folders` has found them for it."""

    caller: Caller
    folders: frozenset[str]
    submission: Submission


class GroupCommit:
    """Writes single jobs, several as one. Used from one event loop."""

    def __init__(self, records: Records, acceptance: Acceptance) -> None:
        self._records = records
        self._acceptance = acceptance
        self._waiting: deque[tuple[Asked, asyncio.Future[Submitted]]] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()

    async def submit(self, asked: Asked) -> Submitted:
        """Accept it, with those that come meanwhile. A caller that is cancelled does not take it back. Raises the named refusal."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Submitted] = loop.create_future()
        self._waiting.append((asked, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)  # so that what comes at the same moment is one group
        return await answer

    async def write(self, group: Sequence[Asked]) -> list[Submitted | FederatorError]:
        """Accept these as one transaction, or as several where the store does not take so much at once; each is accepted or refused by itself. At most `GROUP`, with client ids that differ."""
        answers: list[Submitted | FederatorError] = []
        try:
            with OnTheWay(self._records.held_counts) as way:
                await self._records.transact(partial(self._computed, group, answers, way))
        except TooLarge as error:
            if len(group) == 1:
                return [error]
            # Each may be small enough, and nobody's is to be refused for the size of another's.
            half = len(group) // 2
            return [*await self.write(group[:half]), *await self.write(group[half:])]
        except FederatorError as error:
            return [error] * len(group)
        return answers

    def _computed(
        self, group: Sequence[Asked], answers: list[Submitted | FederatorError], way: OnTheWay
    ) -> Changes:
        """The rows; `answers` is what became of each. Who is refused has left nothing in them."""
        changes = Changes()
        answers.clear()
        way.clear()
        folders = frozenset[str]().union(*(each.folders for each in group))
        entries: dict[Caller, Entry] = {}
        for caller, _, submission in group:
            try:
                if caller not in entries:
                    entries[caller] = self._acceptance.entry(caller, folders)
                accepted = self._acceptance.accept(changes, entries[caller], submission)
            except FederatorError as error:
                answers.append(error)
            except Exception as error:
                raise _Faulty(error) from error
            else:
                self._acceptance.write(changes, accepted)
                way.add(accepted.rows)
                answers.append(accepted.answer)
        return changes

    def _begin(self) -> None:
        """Send what waits, if there is room."""
        while self._waiting and len(self._in_flight) < IN_FLIGHT:
            taken = self._take()
            task = asyncio.create_task(self._answer(taken))
            self._in_flight.add(task)
            task.add_done_callback(partial(self._sent, taken))

    def _sent(self, taken: list[tuple[Asked, asyncio.Future[Submitted]]], task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            self._begin()
            return
        for _, answer in (*taken, *self._waiting):
            _tell(answer, Unavailable("this dispatcher ends, and may have accepted it", remedy=AGAIN))
        self._waiting.clear()

    def _take(self) -> list[tuple[Asked, asyncio.Future[Submitted]]]:
        """The first that wait, up to one whose client id is among them: that is a repeated one, once the first is on record."""
        taken, names = list[tuple[Asked, asyncio.Future[Submitted]]](), set[tuple[str, str]]()
        while self._waiting and len(taken) < GROUP:
            asked = self._waiting[0][0]
            if (client_id := asked.submission.client_id) is not None:
                name = asked.caller.name, client_id
                if name in names:
                    break
                names.add(name)
            taken.append(self._waiting.popleft())
        return taken

    async def _answer(self, taken: list[tuple[Asked, asyncio.Future[Submitted]]]) -> None:
        try:
            answers: Sequence[Submitted | Exception] = await self.write([asked for asked, _ in taken])
        except _Faulty as error:
            if len(taken) > 1:  # it is not to cost the others
                for each in taken:
                    await self._answer([each])
                return
            answers = [error.fault]
        except Exception as error:  # noqa: BLE001 - each is told; it may be written, so nothing is tried again
            answers = [error] * len(taken)
        for (_, answer), said in zip(taken, answers, strict=True):
            _tell(answer, said)


def _tell(answer: asyncio.Future[Submitted], said: Submitted | Exception) -> None:
    """Give the answer to who asked."""
    if answer.done():  # its caller has gone
        return
    if isinstance(said, Exception):
        answer.set_exception(said)
    else:
        answer.set_result(said)
