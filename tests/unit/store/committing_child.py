"""Commits pairs of keys as fast as it can, says each on standard output once `commit` has returned; is killed meanwhile."""

import asyncio
import os
import sys
from pathlib import Path

from federator.kernel.clock import SystemClock
from federator.ports import Put, Transaction
from federator.store.sqlite import SqliteStore

WRITERS = 8


async def main(path: Path, life: str) -> None:
    store = SqliteStore.open(path, SystemClock())

    async def write(writer: int) -> None:
        for number in range(1_000_000):
            name = f"{life}-{writer}-{number}"
            value = name.encode()
            revision = await store.commit(
                Transaction(puts=(Put(f"left/{name}", value), Put(f"right/{name}", value)))
            )
            os.write(1, f"{name} {revision}\n".encode())

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
