"""What every store refuses before it touches anything.

Why one place: a transaction that one store takes and another refuses would be found only on the day of the move from the
embedded store to the replicated one. So all of them have the limits of the narrowest.
"""

from federator.kernel.errors import Bug, TooLarge
from federator.ports import Transaction

MAX_OPERATIONS = 120
"""Puts and deletes in one transaction. etcd refuses more than 128 requests unless it is configured otherwise."""

MAX_KEY_BYTES = 1024
"""Of one key. With values over 8 KiB kept outside etcd, this bounds what any transaction weighs: etcd takes 1.5 MiB in one request."""


def check_key(key: str) -> None:
    """Raise `Bug` unless `key` is one that every store can hold."""
    if len(key) > MAX_KEY_BYTES:
        raise Bug(
            f"a store key of {len(key)} characters, beginning {key[:40]!r}",
            remedy=f"keys have at most {MAX_KEY_BYTES}; shorten or hash names before they become keys",
        )
    if not key or not key.isascii():
        raise Bug(
            f"{key!r} is not a store key",
            remedy="keys are non-empty ASCII; encode names before they become keys",
        )


def check_range(prefix: str, after: str | None, limit: int) -> None:
    """Raise `Bug` for a range that no store can serve. The empty prefix is every key."""
    if not prefix.isascii() or not (after or "").isascii():
        raise Bug(f"the range {prefix!r} after {after!r} is not ASCII", remedy="keys are ASCII")
    if limit < 1:
        raise Bug(f"a page of {limit} keys", remedy="ask for one key or more")


def check_transaction(transaction: Transaction) -> None:
    """Raise `TooLarge` over the limit, `Bug` for keys or expiries that make no sense."""
    written = [put.key for put in transaction.puts]
    written += transaction.deletes
    if len(written) > MAX_OPERATIONS or len(transaction.compares) > MAX_OPERATIONS:
        raise TooLarge(
            f"a transaction of {len(written)} writes and {len(transaction.compares)} comparisons; "
            f"{MAX_OPERATIONS} of each are allowed",
            remedy="split it into several transactions",
        )
    for key in written:
        check_key(key)
    for compare in transaction.compares:
        check_key(compare.key)
    if len(set(written)) != len(written):
        twice = next(key for key in written if written.count(key) > 1)
        raise Bug(f"{twice} is written twice in one transaction", remedy="keep the last write only")
    for put in transaction.puts:
        if put.expires_in_s is not None and not put.expires_in_s > 0:
            raise Bug(
                f"{put.key} is to expire in {put.expires_in_s} s",
                remedy="give a positive time, or None for never",
            )
