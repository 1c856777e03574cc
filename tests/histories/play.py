"""Histories played one after the other in one world; each is judged once its jobs are over, while the next is being played."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.histories.clients import LABEL, Clients, now_s
from tests.histories.judge import OVER, judge
from tests.histories.nemesis import Nemesis
from tests.histories.record import Attempt, History, Outcome
from tests.histories.world import HistoryWorld

CLIENTS = 5
WINDOW_S = 5.0
FAULTS = 3
CALM_S = 120.0
"""Within which all jobs of a history have to be over once it was played, although others are being played."""
QUIET_S = 1.0
"""Between two histories."""
UNFINISHED = 4
"""So many histories at most are waited for while the next one is played."""


@dataclass
class Figures:
    """What happened in all histories of a world."""

    histories: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    refused: int = 0
    jobs: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What the judge has found, with the seed of its history."""

    def add(self, history: History, refused: int, found: list[str]) -> None:
        """Count one."""
        self.histories += 1
        self.operations.update(each.kind for each in history.operations)
        self.unanswered += sum(not each.answered for each in history.operations)
        self.refused += refused
        self.jobs += len(history.outcomes)
        self.attempts += sum(len(outcome.attempts) for outcome in history.outcomes)
        self.wrong += [f"seed {history.seed}: {each}" for each in found]

    def __str__(self) -> str:
        asked = ", ".join(f"{count} {kind}" for kind, count in sorted(self.operations.items()))
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.histories} histories, {sum(self.operations.values())} requests ({asked}), of which {self.unanswered} without an answer, "
            f"beside {self.refused} refused; {self.jobs} jobs in {self.attempts} attempts; {sum(self.faults.values())} faults ({faults}); {len(self.wrong)} wrong"
        )


async def play(
    folder: Path, seeds: range, say: Callable[[str], None] = lambda _: None, window_s: float = WINDOW_S
) -> Figures:
    """Play these seeds in a new world, and judge each."""
    figures = Figures()
    async with HistoryWorld(folder) as world:
        if world.without_disks:
            say(f"no disk is stalled: {world.without_disks}")
        unfinished: set[asyncio.Task[None]] = set()
        for seed in seeds:
            clients = Clients(seed, world.addresses, world.token, world.work)
            nemesis = Nemesis(world, seed)
            until_s = now_s() + window_s
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(nemesis.rage(FAULTS, window_s * 0.8))
                for _ in range(CLIENTS):
                    tasks.create_task(clients.play(until_s))
            figures.faults += nemesis.done
            unfinished.add(asyncio.create_task(_finish(world, clients, figures, say)))
            await asyncio.sleep(QUIET_S)
            while len(unfinished) >= UNFINISHED:
                _, unfinished = await asyncio.wait(unfinished, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*unfinished)
    return figures


async def _finish(
    world: HistoryWorld, clients: Clients, figures: Figures, say: Callable[[str], None]
) -> None:
    """Wait until all is over, ask for everything that there is to know, and judge."""
    found: list[str] = []
    try:
        async with asyncio.timeout(CALM_S):
            await clients.settle()
            while not await _over(clients):
                await asyncio.sleep(0.5)
    except TimeoutError:
        found.append(f"not everything was answered and over within {CALM_S:.0f} s")
    outcomes = tuple([await _outcome(clients, row) for row in await _rows(clients)])
    ours = {outcome.job for outcome in outcomes} | set(clients.jobs.values())
    lines = tuple(line for line in await asyncio.to_thread(world.lines) if line.job in ours)
    history = History(clients.seed, tuple(clients.operations), lines, outcomes)
    found += judge(history)
    figures.add(history, clients.refused, found)
    if found:
        (world.folder / f"history-{clients.seed}.txt").write_text(
            "\n".join([*found, *map(str, (*history.operations, *lines, *outcomes))])
        )
    say(f"seed {clients.seed}: {len(history.operations)} requests, {len(outcomes)} jobs, {len(found)} wrong")
    for each in found:
        say(f"  seed {clients.seed}: {each}")


async def _rows(clients: Clients) -> list[dict[str, Any]]:
    page = await clients.fetch(f"/v1/jobs?limit=1000&label={LABEL}={clients.seed}")
    return list(page["jobs"])


async def _over(clients: Clients) -> bool:
    return all(row["status"] in OVER for row in await _rows(clients))


async def _outcome(clients: Clients, row: dict[str, Any]) -> Outcome:
    job = row["id"]
    detail = await clients.fetch(f"/v1/jobs/{job}")
    events = await clients.fetch(f"/v1/jobs/{job}/events?follow=false")
    ledger = await clients.fetch(f"/v1/ledger?job={job}&limit=1000")
    ran = row["status"] in ("SUCCEEDED", "FAILED")
    return Outcome(
        job,
        detail["job"]["status"],
        detail["job"]["client_id"],
        tuple(event["status"] for event in events),
        tuple(Attempt(each["placement"], each.get("exit_code")) for each in detail.get("attempts", ())),
        tuple((line["kind"], line["what"]) for line in ledger),
        await clients.fetch(f"/v1/jobs/{job}/logs?follow=false") if ran else "",
    )
