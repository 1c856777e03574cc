"""What moves a pod's data, as it runs beside the job: without a pod, in a folder that stands for the one that both containers share."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.model.placements import PlacementStatus
from federator_agent.data.carrier import Load
from federator_agent.kube.data_mover import STALE_S, DataMover, Order, inputs_of
from tests.support.waiting import until


class Pod:
    """The shared folder of a pod, and a process that stands for its job."""

    def __init__(self, folder: Path, name: str = "p1-0", **fields: Any) -> None:
        self.gate = folder / "gate"
        self.gate.mkdir(parents=True)
        (self.gate / "notes").touch()
        own = {name: str(folder / name) for name in ("gate", "job", "cache", "checkpoints", "memory")}
        self.order = Order(pod=name, **{**own, **fields})
        self.job = subprocess.Popen(["sleep", "1000"])
        self._processes = [self.job]
        (folder / "job").mkdir()
        (folder / "job" / "pid").write_text(str(self.job.pid))

    def begin(self) -> subprocess.Popen[bytes]:
        """As `side.sh` does."""
        bare = msgspec.structs.replace(self.order, load=msgspec.structs.replace(self.order.load, inputs=()))
        words = (msgspec.json.encode(bare).decode(), *self.order.load.inputs)
        process = subprocess.Popen([sys.executable, "-m", "federator_agent.kube.data_mover", *words])
        self._processes.append(process)
        return process

    async def brought(self) -> None:
        await until((self.gate / "brought").exists, "its data")

    def end(self) -> None:
        """The job is over."""
        self.job.kill()
        self.job.wait()

    def close(self) -> None:
        """Nothing of it is left."""
        for process in self._processes:
            process.kill()
            process.wait()

    def save(self, text: str, name: str = "step") -> None:
        folder = Path(self.order.checkpoints)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def saved(self, name: str = "step") -> str:
        return (Path(self.order.checkpoints) / name).read_text()

    def said(self, mark: str) -> str:
        return (self.gate / mark).read_text()


Pods = Callable[..., Pod]


@pytest.fixture
def pods() -> Iterator[Pods]:
    """Makes pods, of which nothing is left in the end."""
    made: list[Pod] = []

    def make(folder: Path, *words: Any, **fields: Any) -> Pod:
        made.append(Pod(folder, *words, **fields))
        return made[-1]

    yield make
    for pod in made:
        pod.close()


def _load(epoch: int = 1, **fields: Any) -> Load:
    return Load(job="job", epoch=epoch, **{"every_s": 0.2, **fields})


async def _over(*carrying: "asyncio.Task[None]") -> None:
    await asyncio.wait_for(asyncio.gather(*carrying), 60)


async def test_inputs_of_a_store_lie_where_the_job_looks_and_its_log_tells(
    s3: Any, pods: Pods, tmp_path: Path
) -> None:
    s3.put_object(Bucket="team", Key="sets/a/one", Body=b"1")
    s3.put_object(Bucket="team", Key="sets/word", Body=b"word")
    pod = pods(tmp_path / "pod", load=_load(inputs=("s3://team/sets/a", "s3://team/sets/word")))
    process = pod.begin()
    await pod.brought()
    inputs = Path(inputs_of(pod.order.pod, pod.order.cache))
    assert ((inputs / "a" / "one").read_text(), (inputs / "word").read_text()) == ("1", "word")
    assert "s3://team/sets/word: 0.004 kB brought" in pod.said("notes")
    pod.end()
    assert process.wait(60) == 0
    assert not inputs.exists()


async def test_what_cannot_be_had_is_said_and_how_bad_that_is(s3: Any, pods: Pods, tmp_path: Path) -> None:
    del s3
    pod = pods(tmp_path / "pod", load=_load(inputs=("s3://team/nothing",)))
    await DataMover(pod.order).run()
    pod.end()
    status, _, message = pod.said("unbrought").partition("\n")
    assert status == PlacementStatus.FAILED
    assert "s3://team/nothing" in message
    forbidden = pods(tmp_path / "other", load=_load(uri="ftp://nowhere/x"))
    await asyncio.wait_for(DataMover(forbidden.order).run(), 60)
    forbidden.end()
    assert forbidden.said("unbrought").startswith(
        f"{PlacementStatus.REFUSED}\nits checkpoint cannot be brought"
    )


async def test_a_checkpoint_goes_from_pod_to_pod(pods: Pods, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/kept"
    first = pods(tmp_path / "first", load=_load(uri=uri))
    carrying = asyncio.create_task(DataMover(first.order).run())
    await first.brought()
    assert not (first.gate / "resumes").exists()
    (first.gate / "go").touch()
    first.save("1")
    await until(lambda: [*Path(tmp_path, "kept", "job").glob("latest-*")], "a push while it runs")
    first.save("2", "last")
    first.end()
    await _over(carrying)
    assert first.said("saved") == ""
    second = pods(tmp_path / "second", load=_load(2, uri=uri))
    carrying = asyncio.create_task(DataMover(second.order).run())
    await second.brought()
    second.end()
    await _over(carrying)
    assert (second.gate / "resumes").exists()
    assert (second.saved(), second.saved("last")) == ("1", "2")


async def test_killed_it_goes_on_where_it_was(pods: Pods, tmp_path: Path) -> None:
    pod = pods(tmp_path / "pod", load=_load(uri=f"file://{tmp_path}/kept", every_s=1000.0))
    process = pod.begin()
    await pod.brought()
    (pod.gate / "go").touch()
    pod.save("1")
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = pod.begin()
    pod.end()
    assert again.wait(60) == 0
    assert pod.saved() == "1", "what the job has saved is not replaced"
    assert pod.said("saved") == ""
    assert [*Path(tmp_path, "kept", "job").glob("latest-*")]


async def test_behind_a_shut_gate_nothing_is_pushed(pods: Pods, tmp_path: Path) -> None:
    pod = pods(tmp_path / "pod", load=_load(uri=f"file://{tmp_path}/kept", every_s=1000.0))
    carrying = asyncio.create_task(DataMover(pod.order).run())
    await pod.brought()
    pod.save("of its set-up")
    pod.end()
    await _over(carrying)
    assert not Path(tmp_path, "kept", "job").exists()


async def test_of_a_directory_that_all_ranks_have_one_moves_the_checkpoints(
    pods: Pods, tmp_path: Path
) -> None:
    """Those that come before it wait; and its last word waits for what the others write."""
    shared = {
        "checkpoints": str(tmp_path / "claim" / "job"),
        "memory": str(tmp_path / "claim" / ".federator"),
    }
    load = _load(uri=f"file://{tmp_path}/kept", every_s=1000.0)
    second = pods(tmp_path / "second", "p1-1", load=load, follows=True, **shared)
    following = asyncio.create_task(DataMover(second.order).run())
    first = pods(tmp_path / "first", "p1-0", load=load, leads=True, **shared)
    assert not (second.gate / "brought").exists()
    leading = asyncio.create_task(DataMover(first.order).run())
    for pod in (first, second):
        await pod.brought()
        (pod.gate / "go").touch()
    first.end()
    second.save("of the second rank")
    second.end()
    await _over(following)
    assert not leading.done()
    (first.gate / "over").touch()
    await _over(leading)
    after = pods(tmp_path / "after", load=_load(2, uri=load.uri))
    carrying = asyncio.create_task(DataMover(after.order).run())
    await after.brought()
    after.end()
    await _over(carrying)
    assert after.saved() == "of the second rank"


async def test_pods_that_share_a_cache_fetch_once_and_keep_what_others_read(
    s3: Any, pods: Pods, tmp_path: Path
) -> None:
    for name in "ab":
        s3.put_object(Bucket="team", Key=name, Body=name.encode() * 400_000)

    def pod(name: str, reads: str) -> Pod:
        load = _load(inputs=(f"s3://team/{reads}",))
        return pods(
            tmp_path / name, f"{name}-0", load=load, cache=str(tmp_path / "cache"), limit_bytes=500_000
        )

    readers = [pod("one", "a"), pod("two", "a")]
    processes = [each.begin() for each in readers]
    for each in readers:
        await each.brought()
    notes = [each.said("notes") for each in readers]
    assert sorted("are here already" in note for note in notes) == [False, True]
    full = pod("three", "b")
    await DataMover(full.order).run()
    assert full.said("unbrought").startswith(PlacementStatus.REFUSED)
    for each in readers:
        each.end()
    assert [process.wait(60) for process in processes] == [0, 0]


async def test_links_of_a_pod_that_was_torn_away_hold_nothing_for_ever(pods: Pods, tmp_path: Path) -> None:
    left = tmp_path / "pod" / "cache" / "placements" / "gone-0"
    left.mkdir(parents=True)
    long_ago = left.stat().st_mtime - STALE_S - 60
    os.utime(left, (long_ago, long_ago))
    pod = pods(tmp_path / "pod", load=_load(inputs=(f"file://{tmp_path}",)))
    carrying = asyncio.create_task(DataMover(pod.order).run())
    await pod.brought()
    assert not left.exists()
    pod.end()
    await _over(carrying)


def test_the_order_comes_through_the_pods_arguments(pods: Pods, tmp_path: Path) -> None:
    """Inputs may be many, and their addresses long: each is a word of its own."""
    load = _load(inputs=tuple(f"file://{tmp_path}/{'x/' * 900}{number}" for number in range(100)))
    pod = pods(tmp_path / "pod", load=load)
    process = pod.begin()
    assert process.wait(60) == 0
    pod.end()
    assert pod.said("unbrought").startswith(PlacementStatus.FAILED)
