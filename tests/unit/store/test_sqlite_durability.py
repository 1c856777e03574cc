"""What `commit` has returned for survives a kill at any moment, and a transaction is there whole or not at all."""

import subprocess
import sys
from pathlib import Path

from federator.kernel.clock import ManualClock
from federator.store.sqlite import SqliteStore

CHILD = Path(__file__).with_name("committing_child.py")


def commit_until_killed(path: Path, life: str, acknowledgements: int) -> dict[str, int]:
    """Names and revisions that the child had acknowledged when it was killed."""
    with subprocess.Popen([sys.executable, str(CHILD), str(path), life], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            lines = [child.stdout.readline() for _ in range(acknowledgements)]
        finally:
            child.kill()
        # What it said before it died counts too; the last line may be cut.
        lines += [line for line in child.stdout if line.endswith(b"\n")]
    acknowledged = {}
    for line in lines:
        name, revision = line.decode().split()
        acknowledged[name] = int(revision)
    return acknowledged


async def test_what_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged: dict[str, int] = {}
    # Killed early, later, and again on a file that was left by a kill.
    for life, count in enumerate((1, 40, 300)):
        acknowledged |= commit_until_killed(path, f"life{life}", count)
    assert len(acknowledged) >= 341
    store = SqliteStore.open(path, ManualClock())
    for name, revision in acknowledged.items():
        for side in ("left", "right"):
            item = await store.get(f"{side}/{name}")
            assert item is not None, f"{side}/{name} was acknowledged and is lost"
            assert (item.value, item.revision) == (name.encode(), revision)
    left = await store.range("left/", limit=1_000_000)
    right = await store.range("right/", limit=1_000_000)
    halves = [{item.key.partition("/")[2] for item in page.items} for page in (left, right)]
    assert halves[0] == halves[1], "half a transaction survived"
    assert left.revision >= max(acknowledged.values())
    await store.close()
