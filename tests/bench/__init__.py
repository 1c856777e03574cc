"""What the everyday paths cost on this machine: `python -m tests.bench [SCENARIO ...] [--runs 3] [--report FILE]`.

A scenario is a module of `tests/bench/scenarios/`; its file's name is its name. It has

    async def run(bench: Bench) -> list[Figure]      one run, measured once; a fresh `bench.folder` each time

and may have `MOST_RUNS = 1` where a run takes minutes, and `NOTE = "..."`, a sentence or two that the report puts above its figures. The
harness calls it `--runs` times, scenarios in turn (A B C A B C), so that a drift of the machine's speed hits all alike; it times a
pure-CPU loop and an fsync loop right before and after each call, and reports the median of each figure with its least and most. A scenario only
measures: it asserts nothing about speed, and raises when the work itself was not done.

    Figure(name, value, unit, aim=None, better=Better.MORE, note="", against="")

`aim` is in the figure's own unit; `against` names another figure, of any scenario, with which the report shows the ratio, run by run.
`Bench` (tests/bench/harness.py) gives:

    bench.folder                       an empty folder for this run, removed afterwards
    bench.many(10_000)                 that many times the run's scale, at least 1: tests run the same scenarios at a tiny scale
    bench.say("...")                   progress, for whoever watches
    async with bench.federation(sites) as world:   a dispatcher and agents, real processes; `world.admin` is a client
    bench.pid(world, "dispatcher")     a process of it, also by a site's name
    cpu_s(pid), resident_mb(pid), median(...), percentile(...)    in tests/bench/measuring.py

No test asserts how fast anything is: tests/system/test_bench.py runs every scenario at a tiny scale and looks whether the figures are there.
"""
