"""The spot market of local machines: who is taken back and when, and what is sold out.

Chance is drawn from the seed and the number of the launch, so that a trial can be repeated. A person decides otherwise with
`interrupt` and `sell_out`, or from a shell with `python -m federator_providers.local`.
"""

import math
import random
from pathlib import Path
from typing import NamedTuple

from federator.kernel.errors import NotFound
from federator_providers.local.folder import InstanceFolder

_LAUNCHES = ".spot-launches"
_SOLD_OUT = ".sold-out"


class LaunchFate(NamedTuple):
    """What the market has in store for one launch. `life_s` is clock time until the notice; infinite: no interruption."""

    refused: bool
    life_s: float


def next_fate(state_dir: Path, seed: int, interruptions_per_h: float, no_capacity_share: float) -> LaunchFate:
    """Draw for the next spot launch. The caller holds the state folder's lock."""
    counter = state_dir / _LAUNCHES
    number = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(number))
    chance = random.Random(f"{seed}/{number}")
    refused = chance.random() < no_capacity_share
    life_s = chance.expovariate(interruptions_per_h) * 3600.0 if interruptions_per_h > 0 else math.inf
    return LaunchFate(refused, life_s)


def sold_out(state_dir: Path) -> frozenset[str]:
    """Names of offers that a person has declared sold out."""
    file = state_dir / _SOLD_OUT
    return frozenset(file.read_text().split("\n")) - {""} if file.exists() else frozenset()


def sell_out(state_dir: Path, offer: str, *, on: bool = True) -> None:
    """Let every launch of an offer find no capacity, and its listing show none, from now on; or no longer (`on=False`)."""
    names = sold_out(state_dir) | {offer} if on else sold_out(state_dir) - {offer}
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = state_dir / f"{_SOLD_OUT}.draft"
    draft.write_text("\n".join(sorted(names)))
    draft.rename(state_dir / _SOLD_OUT)


def interrupt(state_dir: Path, name: str) -> None:
    """Give a machine its notice, in whatever market it is: it dies when the notice is over. Raises `NotFound`."""
    folder = InstanceFolder(state_dir / name)
    if not folder.record_file.exists():
        raise NotFound(f"there is no machine {name} in {state_dir}", field="name")
    folder.give_notice()
