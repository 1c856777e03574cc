"""Pretended training, as a job of the demonstration: it finds its gang, prints its progress, and writes a result.

Everything around it is real: processes, ranks that meet over a socket, logs, exit codes, outputs. Each start and end is noted
in a journal, by which the demonstration proves afterwards that nothing ran twice. `DEMO_SPEED` says how much faster than life
time runs.
"""

# ruff: noqa: INP001 - a script that is uploaded with the job, and prints
import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path

STEPS = 8
MEETING_S = 30.0


def main() -> int:
    """Train for so many minutes of the demonstration's time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--fail-first", action="store_true", help="fail half-way the first time")
    options = parser.parse_args()
    seconds = options.minutes * 60 / float(os.environ["DEMO_SPEED"])
    rank, ranks = int(os.environ["FEDERATOR_NODE_RANK"]), int(os.environ["FEDERATOR_NUM_NODES"])
    fails = options.fail_first and not has_run_before()
    note("start")
    print(
        f"rank {rank} of {ranks} at {os.environ['FEDERATOR_SITE']}, GPUs [{os.environ['CUDA_VISIBLE_DEVICES']}]"
    )
    meet(rank, ranks)
    for number in range(1, STEPS + 1):
        time.sleep(seconds / STEPS)
        print(f"step {number}/{STEPS}  loss {2.5 / (1 + number):.3f}", flush=True)
        if fails and number == STEPS // 2:
            note("end")
            print("the data loader has died; trying again usually helps", file=sys.stderr)
            return 3
    results = Path("results")
    results.mkdir(exist_ok=True)
    (results / f"rank-{rank}.json").write_text(json.dumps({"steps": STEPS, "loss": 2.5 / (1 + STEPS)}))
    note("end")
    return 0


def meet(rank: int, ranks: int) -> None:
    """Return when all ranks of the gang are there, as torchrun's rendezvous would."""
    if ranks == 1:
        return
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(place) as door:
            door.settimeout(MEETING_S)
            guests = [door.accept()[0] for _ in range(ranks - 1)]
        for guest in guests:
            guest.close()
    else:
        until = time.monotonic() + MEETING_S
        while True:
            try:
                with socket.create_connection(place) as guest:
                    guest.recv(1)
                    break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
    print(f"all {ranks} ranks are here", flush=True)


def has_run_before() -> bool:
    """Whether the journal knows an earlier attempt of this job."""
    journal = Path(os.environ["DEMO_JOURNAL"])
    return journal.exists() and os.environ["FEDERATOR_JOB_ID"] in journal.read_text()


def note(what: str) -> None:
    """Append one line to the journal; a line this short is written in one piece."""
    line = {
        "what": what,
        "at": time.time(),
        "job": os.environ["FEDERATOR_JOB_ID"],
        "placement": os.environ["FEDERATOR_PLACEMENT_ID"],
        "rank": int(os.environ["FEDERATOR_NODE_RANK"]),
    }
    with Path(os.environ["DEMO_JOURNAL"]).open("a") as journal:
        journal.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
