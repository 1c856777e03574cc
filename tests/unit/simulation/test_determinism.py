"""One seed, one schedule: also in another process, whose hashes of words are others."""

import os
import subprocess
import sys

PROGRAM = """
import random
from federator.simulation.clouds import Mood
from federator.simulation.schedule import attempts_csv, leases_csv
from tests.unit.simulation.tiny import OFFER, job, renting_world, run, site

chance = random.Random(5)
jobs = []
for n in range(40):
    submit_s, run_s = chance.uniform(0, 20_000), chance.uniform(30, 9_000)
    due = submit_s + chance.uniform(1.2, 4.0) * run_s if n % 2 else None
    jobs.append(job(f"job{n}", submit_s, run_s, gpus=chance.choice((1, 2, 4)), nodes=chance.choice((1, 1, 2)),
                    deadline_s=due, value_usd=due and 100.0, home=chance.choice("ab"), priority=chance.choice((30, 50, 70))))
where = renting_world(mood=Mood(sold_out=0.3))
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
