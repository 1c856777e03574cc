"""Many changes as few transactions: each is written whole, as many together as the store takes, and one that cannot be written stops no other.

A count of things per transaction is no bound on what they write: four rentals of eight machines are 76 rows, twenty plain starts are 60. So what is
counted is the rows themselves, after each change. Bytes need no count: a store keeps large values outside its transactions, and keys are short
(`federator.store.transactions`), so that a number of operations bounds them.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from federator.control.record.records import Changes, Records
from federator.kernel.errors import FederatorError, TooLarge, Transient
from federator.telemetry import METRICS

log = logging.getLogger(__name__)

TOGETHER = 40
"""Most pieces of one transaction: what is computed again when a row moves meanwhile, or when one of them is at fault."""
Piece = TypeVar("Piece")


class Refused(NamedTuple, Generic[Piece]):
    """A piece that was not written, and the error that says why."""

    piece: Piece
    error: Exception


async def write_each(
    records: Records,
    pieces: Iterable[Piece],
    write: Callable[[Changes, Piece], object],
    *,
    prepare: Callable[[Sequence[Piece]], object] | None = None,
    together: int = TOGETHER,
) -> list[Refused[Piece]]:
    """Write each piece, whole or not at all, in order; returns those that could not be written. All others are.

    `write` adds a piece's rows to a `Changes` that may have those of earlier pieces; it may be called again for the same piece. `prepare` is called
    before the first piece of each attempt at a transaction, with all that may come into it. A piece is refused when it alone is larger than the
    store takes, when `write` or `prepare` raises for it, or when the store refuses it. Raises `Transient` (`NotLeading` among it): that is no
    piece's fault, and what is not written yet may be tried again.
    """
    left, refused, alone = list(pieces), list[Refused[Piece]](), 0
    while left:
        batch = _Batch(records, left[: 1 if alone else together], write, prepare)
        try:
            await records.transact(batch.compute)
        except Transient:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one is not wrong with the others
            if len(batch.pieces) > 1:  # one of them is at fault: each by itself, then
                alone = len(batch.pieces)
                continue
            batch.refused, batch.handled = [Refused(batch.pieces[0], error)], 1
        for each in batch.refused:
            METRICS.count("federator_changes_refused_total")
            log.error("not written: %s", each.error, exc_info=_trace(each.error))
        refused += batch.refused
        left, alone = left[batch.handled :], max(0, alone - batch.handled)
    return refused


def _trace(error: Exception) -> Exception | None:
    """The trace of what was not foreseen."""
    return None if isinstance(error, FederatorError) else error


class _Batch(Generic[Piece]):
    """One transaction: as many of these pieces, from the first, as fit."""

    def __init__(
        self,
        records: Records,
        pieces: Sequence[Piece],
        write: Callable[[Changes, Piece], object],
        prepare: Callable[[Sequence[Piece]], object] | None,
    ) -> None:
        self._records = records
        self._write = write
        self._prepare = prepare
        self.pieces = pieces
        self.handled = 0
        """So many of the pieces are in the transaction or refused."""
        self.refused: list[Refused[Piece]] = []

    def compute(self) -> Changes:
        """What `transact` asks for; again from the start when a row has moved."""
        self.handled, self.refused = 0, []
        if self._prepare is not None:
            self._prepare(self.pieces)
        changes = Changes()
        for piece in self.pieces:
            more = Changes(dict(changes.rows), list(changes.deletes), list(changes.relies_on))
            try:
                self._write(more, piece)
            except Transient:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self.refused.append(Refused(piece, error))
            else:
                if self._records.takes(more):
                    changes = more
                elif changes or changes.relies_on:
                    break  # it begins the next one: alone it may fit
                else:
                    self.refused.append(Refused(piece, self._too_large(more)))
            self.handled += 1
        return changes

    def _too_large(self, changes: Changes) -> TooLarge:
        return TooLarge(
            f"it is {len(changes.rows) + len(changes.deletes)} rows that belong together, "
            f"and a transaction takes {self._records.store.MAX_OPERATIONS}",
            remedy="ask for fewer machines at once: a smaller gang, or larger machines",
        )
