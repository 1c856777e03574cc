"""Runs of the demonstration: the folder that everything happens in, and an end that leaves nothing behind."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.processes import Processes
from federator.cli.demo.report import heading, next_steps, own_command, show_checks, show_compared, show_end
from federator.cli.demo.result import Check, write_result
from federator.cli.demo.screen import open_screen
from federator.cli.demo.story import SPEED, StoryResult, play
from federator.cli.demo.world import DemoWorld, load_world, tightened, without_deadlines
from federator.cli.exit_codes import FAILED, OK
from federator.cli.explain import drawn
from federator.cli.output import console, show
from federator.kernel.errors import Invalid

T = TypeVar("T")
SIGN = "demo-folder"
"""File by which a folder of the demonstration is known."""


class AttemptPlace(NamedTuple):
    """Where it happens. `ours`: we have made the folder, and remove it again."""

    folder: Path
    ours: bool


def demonstrate(
    *, no_deadlines: bool, tighten: tuple[str, ...], keep: bool, state_dir: Path | None, json: Path | None
) -> int:
    """The demonstration; its exit code."""
    world = load_world()
    for given in tighten:
        world = tightened(world, given)
    if no_deadlines:
        world = without_deadlines(world)
    place = _make_folder(state_dir)
    return _interruptibly(place, _demonstrate(place, world, json, keep=keep), keep=keep)


def stop(folder: Path) -> int:
    """End a demonstration that was left up, and remove its folder."""
    folder = folder.expanduser().resolve()
    if not (folder / SIGN).is_file():
        raise Invalid(
            f"{folder} is not a folder of a demonstration",
            field="--stop",
            remedy="name the one that it printed",
        )
    Processes(folder).end_all()
    shutil.rmtree(folder)
    print(f"stopped; {folder} is removed")
    return OK


async def _demonstrate(place: AttemptPlace, world: DemoWorld, json: Path | None, *, keep: bool) -> int:
    federation = DemoFederation(place.folder, SPEED)
    out = console()
    try:
        with open_screen(out) as screen:
            told = await play(federation, world, screen)
    finally:
        await federation.close()
    if not keep:
        told = _with_end(told, federation.processes)
    _show(told, out.width)
    told = await _with_others(told, world)
    show_compared(told.result.compared, out.width)
    if json is not None:
        write_result(json, told.result)
    if keep:
        show(heading("It is still up. Type next"))
        for line in next_steps(federation.server, federation.admin_token, federation.console, place.folder):
            print(f"  {line}")
    else:
        show(heading("Type next"))
        print(
            f"  {own_command()} demo --keep    # the same, left up for you to look round and submit your own"
        )
    return OK if told.result.ok else FAILED


def _with_end(told: StoryResult, processes: Processes) -> StoryResult:
    """End everything, and add to the result whether that went in good order."""
    forced = processes.end_all()
    left = len(processes.living())
    seen = (
        f"{forced} had to be killed, {left} are left"
        if forced or left
        else "all ended when they were asked to"
    )
    check = Check("no process is left", not forced and not left, seen)
    result = msgspec.structs.replace(told.result, checks=(*told.result.checks, check))
    return told._replace(result=result)


async def _with_others(told: StoryResult, world: DemoWorld) -> StoryResult:
    """Add what the same work comes to under other schedulers, on virtual time."""
    from federator.cli.demo.side_by_side import compare, offers_of_the_provider

    compared = await asyncio.to_thread(compare, world, await offers_of_the_provider())
    return told._replace(result=msgspec.structs.replace(told.result, compared=compared))


def _show(told: StoryResult, width: int) -> None:
    for job in told.result.jobs:
        if job.name in told.explanations:
            show(heading(f"federator explain {job.name}"))
            show(*drawn(told.explanations[job.name], told.now, width))
    show_end(told, width)
    if not told.result.ok:
        show_checks(tuple(check for check in told.result.checks if not check.holds))


def _interruptibly(place: AttemptPlace, work: Coroutine[Any, Any, int], *, keep: bool) -> int:
    """Run it so that every way of ending, also a signal, leaves no process and no folder of ours behind.

    After a failure the folder stays: it has the logs.
    """
    code, interrupted = FAILED, False
    try:
        code = asyncio.run(_cancelled_by_signals(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = True
        raise KeyboardInterrupt from None
    finally:
        if not (keep and code == OK):
            Processes(place.folder).end_all()
            if place.ours and (code == OK or interrupted):
                shutil.rmtree(place.folder, ignore_errors=True)
            elif code != OK:
                print(f"What the processes have said is in {place.folder / 'logs'}.")
    return code


async def _cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """SIGTERM and a closed terminal end it as Ctrl-C does."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    return await task


def _make_folder(state_dir: Path | None) -> AttemptPlace:
    if state_dir is None:
        folder = Path(tempfile.mkdtemp(prefix="federator-demo-")).resolve()
    else:
        folder = state_dir.expanduser().resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Invalid(
                f"{folder} is not an empty folder",
                field="--state-dir",
                remedy="name a new one, or leave it out",
            )
        folder.mkdir(parents=True, exist_ok=True)
    (folder / SIGN).write_text(
        "A folder of `federator demo`. To end what runs here: federator demo --stop FOLDER\n"
    )
    return AttemptPlace(folder, ours=state_dir is None)
