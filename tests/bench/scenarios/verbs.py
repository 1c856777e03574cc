"""What the verbs of the command cost as a whole, as a person types them: from the start of the program to its end."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from federator.cli.demo.federation import DemoFederation
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import median
from tests.bench.scenarios.start import SITE

NOTE = """\
Each verb is a program of its own, against a dispatcher on the same machine that has nothing else to do; they take turns, and `python -c pass` with them.
It is the installed program, with its modules compiled as pip leaves them. The CPU is that of the program, which does not change much when the machine is shared;
the time does. `wait` waits for a job that has ended, `exec` runs `true` in one that runs.
"""
VERBS: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "show": ("show", "ended"),
    "explain": ("explain", "ended"),
    "logs": ("logs", "ended"),
    "usage": ("usage",),
    "submit": ("submit", "job.yaml"),
    "wait": ("wait", "ended"),
    "exec": ("exec", "running", "--", "true"),
    "cancel": ("cancel", "held"),
}
PASS = "python -c pass"
FEDERATOR = str(Path(sys.executable).with_name("federator"))
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""With it each program would compile a checkout's modules anew. The first round writes what is missing."""
AIM_MS = 250.0


async def run(bench: Bench) -> list[Figure]:
    """All verbs in turn, several times."""
    (bench.folder / "job.yaml").write_text("run: 'true'\n")
    took_ms = dict[str, list[float]]()
    cpu_ms = dict[str, list[float]]()
    async with bench.federation([SITE]) as world:
        ended = await world.admin.submit({"name": "ended", "command": ["echo", "done"]})
        await world.admin.wait(ended.jobs[0])
        running = await world.admin.submit({"name": "running", "command": ["sleep", "3600"]})
        await world.admin.wait(running.jobs[0], running=True)
        for _ in range(bench.many(15)):
            held = await world.admin.submit({"name": "held", "command": ["sleep", "3600"]})
            await world.admin.act("hold", held.jobs)
            programs: dict[str, tuple[str, ...]] = {PASS: (sys.executable, "-c", "pass")}
            programs |= {name: (FEDERATOR, *words) for name, words in VERBS.items()}
            for name, words in programs.items():
                wall_s, cpu_s = await asyncio.to_thread(_timed, bench, world, words)
                took_ms.setdefault(name, []).append(wall_s * 1000)
                cpu_ms.setdefault(name, []).append(cpu_s * 1000)
        await world.admin.cancel(running.jobs[0])
    figures = [Figure(f"the program `{PASS}`", median(took_ms[PASS]), "ms")]
    for name in VERBS:
        verb = f"the verb `{name}`"
        figures += [
            Figure(verb, median(took_ms[name]), "ms", AIM_MS, Better.LESS, against=f"the program `{PASS}`"),
            Figure(f"{verb}, CPU", median(cpu_ms[name]), "ms"),
        ]
    return figures


def _timed(bench: Bench, world: DemoFederation, words: tuple[str, ...]) -> tuple[float, float]:
    """How long a program takes, and the processor's time for it, in seconds."""
    environment = world.processes.environment | {
        "FEDERATOR_SERVER": world.server,
        "FEDERATOR_TOKEN": world.admin_token,
    }
    environment.pop(UNCOMPILED, None)
    begun = time.perf_counter()
    process = subprocess.Popen(
        words, env=environment, cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} has failed")
    return wall_s, used.ru_utime + used.ru_stime
