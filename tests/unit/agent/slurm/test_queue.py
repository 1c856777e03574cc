"""One look at the queue serves all who ask: never two at once, and each that is answered began after it was asked for."""

import asyncio

import pytest

from federator_agent.slurm.commands import Commands, Unreachable
from federator_agent.slurm.output import QUEUE_COLUMNS
from federator_agent.slurm.queue import Queue


class Squeue(Commands):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: asyncio.Queue[str | Exception] = asyncio.Queue()

    async def run(self, program: str, *arguments: str) -> str:
        assert program == "squeue"
        assert any(argument.startswith("--user=") for argument in arguments)
        self.asked += 1
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _line(number: str, name: str) -> str:
    return "".join(
        word.ljust(width)
        for word, (_, width) in zip((number, "RUNNING", "", "", "", "", name), QUEUE_COLUMNS, strict=True)
    )


async def test_many_share_a_look_and_later_ones_get_the_next() -> None:
    squeue = Squeue()
    queue = Queue(squeue, [])
    first = [asyncio.ensure_future(queue.look()) for _ in range(3)]
    while not squeue.asked:
        await asyncio.sleep(0)
    later = asyncio.ensure_future(queue.look())
    squeue.answers.put_nowait(_line("2", "a") + "\n" + _line("1", "a"))
    looks = await asyncio.gather(*first)
    assert looks[0] is looks[1] is looks[2]
    assert [job.id for job in looks[0]["a"]] == ["1", "2"]
    assert not later.done()
    squeue.answers.put_nowait(_line("3", "b"))
    assert set(await later) == {"b"}
    assert squeue.asked == 2
    queue.close()


async def test_who_is_in_a_hurry_hastens_the_others() -> None:
    squeue = Squeue()
    queue = Queue(squeue, [])
    patient = asyncio.ensure_future(queue.look(1e6))
    await asyncio.sleep(0)
    squeue.answers.put_nowait("")
    assert len(await queue.look()) == 0
    assert (await patient) is not None
    queue.close()


async def test_a_silent_slurm_is_told_to_all_and_asked_again() -> None:
    squeue = Squeue()
    queue = Queue(squeue, [])
    squeue.answers.put_nowait(Unreachable("away"))
    looks = [asyncio.ensure_future(queue.look()) for _ in range(2)]
    for look in looks:
        with pytest.raises(Unreachable):
            await look
    squeue.answers.put_nowait("")
    assert len(await queue.look()) == 0
    queue.close()
