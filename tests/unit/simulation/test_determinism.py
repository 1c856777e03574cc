"""One seed, one schedule: also in another process, whose hashes of words are others."""

import os
import random
import subprocess
import sys

import msgspec
import pytest

from federator.simulation import sites
from federator.simulation.running import simulate
from federator.wire import link
from tests.lab.schedulers import scheduler
from tests.unit.simulation.tiny import job, renting_world, site, slow

PROGRAM = """
import random
from federator.simulation.clouds import OfferRisk
from federator.simulation.schedule import attempts_csv, leases_csv
from tests.unit.simulation.tiny import OFFER, job, renting_world, run, site

chance = random.Random(5)
jobs = []
for n in range(40):
    submit_s, run_s = chance.uniform(0, 20_000), chance.uniform(30, 9_000)
    due = submit_s + chance.uniform(1.2, 4.0) * run_s if n % 2 else None
    jobs.append(job(f"job{n}", submit_s, run_s, gpus=chance.choice((1, 2, 4)), nodes=chance.choice((1, 1, 2)),
                    deadline_s=due, value_usd=due and 100.0, home=chance.choice("ab"), priority=chance.choice((30, 50, 70))))
where = renting_world(risk=OfferRisk(sold_out=0.3))
where = type(where)(**{**{f: getattr(where, f) for f in where.__struct_fields__}, "sites": (site("a", 2), site("b", 2), site("c", 1))})
for scheduler, seed in (("ours", 1), ("race", 1), ("race", 2)):
    outcome = run(where, *jobs, by=scheduler, seed=seed)
    print("====")
    print(attempts_csv(outcome.schedule.attempts) + leases_csv(outcome.schedule.leases))
"""


def schedules(hash_seed: int) -> list[str]:
    """What a process of its own writes: ours, and the race with two seeds."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split("====")[1:]


def test_two_processes_write_the_same_bytes_and_another_seed_is_another_schedule() -> None:
    first = schedules(hash_seed=1)
    assert len(first) == 3
    assert all(text.count("\n") > 40 for text in first)
    assert schedules(hash_seed=2) == first
    assert first[1] != first[2]


def test_what_goes_as_records_comes_to_what_goes_as_text() -> None:
    """With latency and clouds, and every message that the hub or an agent says is the same once it has been encoded and decoded."""
    said: list[link.Up | link.Down] = []

    class Overheard(sites.RecordPipe):
        def deliver(self, message: link.Down) -> None:
            said.append(message)
            super().deliver(message)

        def say(self, message: link.Up) -> None:
            said.append(message)
            super().say(message)

    chance = random.Random(3)
    jobs = [
        job(f"job{n}", chance.uniform(0, 20_000), chance.uniform(30, 9_000), gpus=chance.choice((1, 2, 4)))
        for n in range(40)
    ]
    jobs += [
        job("late", 10_000.0, 3_000.0, gpus=4, deadline_s=14_500.0, value_usd=500.0),
        job("gang", 12_000.0, 900.0, gpus=4, nodes=2),
    ]
    where = msgspec.structs.replace(renting_world(), sites=(site("a", 2), site("b")))
    where = slow(where, latency_s=0.3, staging_s=20.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sites, "RecordPipe", Overheard)
        direct = simulate(where, jobs, scheduler("race"), seed=1)
    assert simulate(where, jobs, scheduler("race"), seed=1, encoded=True) == direct
    ups = {type(message) for message in said if isinstance(message, link.Up)}
    assert {link.Report, link.Statuses, link.DesiredAck} <= ups
    for message in said:
        decode = link.decode_up if isinstance(message, link.Up) else link.decode_down
        assert decode(link.encode(message)) == message
