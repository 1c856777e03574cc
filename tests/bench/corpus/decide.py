"""Has the build of this environment decide a corpus: `PYTHON decide.py CORPUS PLANS`. Plans are those of `federator.solving.decide`.

Of a long line a turn sees what its window shows (`.seen`); `--as whole` gives a build without a window all of it, `--as blind` what there is
without a plan of the whole line. Seconds are of the processor, the least of the repetitions.
"""

import argparse
import gc
import time
from pathlib import Path
from typing import Any

import msgspec

from federator.model.snapshot import Problem
from federator.planning import kernels
from federator.solving.decide import decide

VARIANTS = (".seen", ".blind")


class Decided(msgspec.Struct):
    """A plan as its build encodes it, and what it took."""

    plan: msgspec.Raw
    cpu_s: float
    winner: str


def problems_of(corpus: Path, variant: str, only: str) -> list[tuple[str, Path]]:
    """Names of the whole problems, with the file that is to be decided."""
    found = []
    for path in sorted(corpus.glob("*/*.problem")):
        name = f"{path.parent.name}/{path.stem}"
        if name.endswith(VARIANTS) or not name.startswith(only):
            continue
        other = path.with_name(f"{path.stem}.{variant}.problem")
        found.append((name, other if other.exists() else path))
    return found


def decided(problem: bytes, stages: tuple[str, ...] | None, repeat: int) -> Decided:
    """One decision, with the collector of garbage between problems, as the solver's child has it."""
    asked: dict[str, Any] = {} if stages is None else {"stages": stages}
    least_s, plan = float("inf"), None
    for _ in range(repeat):
        given = msgspec.msgpack.decode(problem, type=Problem)
        gc.collect()
        gc.disable()
        begun = time.process_time()
        plan = decide(given, **asked)
        least_s = min(least_s, time.process_time() - begun)
        gc.enable()
    assert plan is not None, "it is decided once at least"
    return Decided(msgspec.Raw(msgspec.msgpack.encode(plan)), least_s, plan.winner)


def main() -> None:
    """Decide, and write the plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("plans", type=Path)
    parser.add_argument("--as", dest="variant", choices=("whole", "seen", "blind"), default="seen")
    parser.add_argument("--stages", help="with commas between; left out: the build's own")
    parser.add_argument("--only", default="", help="names that begin so, such as online/ or bench/100x10")
    parser.add_argument("--repeat", type=int, default=1)
    told = parser.parse_args()
    gc.collect()
    gc.freeze()
    stages = None if told.stages is None else tuple(told.stages.split(","))
    for name, path in problems_of(told.corpus, told.variant, told.only):
        place = told.plans / f"{name}.plan"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(msgspec.msgpack.encode(decided(path.read_bytes(), stages, told.repeat)))


if __name__ == "__main__":
    kernels.prepare()
    main()
