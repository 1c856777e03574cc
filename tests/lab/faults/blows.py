"""How each single blow of a plan is dealt, and how all of them are made good again."""

from collections.abc import Callable

from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.plan import Blow, Strike
from tests.lab.faults.processes import Process
from tests.lab.faults.world import World


def strike(world: World, blow: Blow) -> None:
    """Let a blow fall, unless all is calm by now."""
    if not world.calm:
        world.journal.note(
            "FATE", f"{blow.strike} {blow.who} {blow.lasts_s:.0f} s, {blow.steps} steps {blow.deed}".rstrip()
        )
        _DEALT[blow.strike](world, blow)


def calm(world: World) -> None:
    """Nothing goes wrong any more: links are whole, what was stopped goes on, and nobody is going to die."""
    world.journal.note("WATCH", "from now on nothing goes wrong")
    world.calm = True
    world.weather.settle()
    world.network.heal_all()
    for process in processes(world):
        process.steps_left = process.doomed = None
        process.go_on()


def processes(world: World) -> list[Process]:
    """All that are alive."""
    lives = [life.process for life in world.lives.values()]
    return lives + [each.process for each in world.dispatchers if each.process is not None]


def _of(world: World, who: str) -> list[Process]:
    life = world.lives.get(who)
    found = [life.process] if life is not None else []
    return found + [
        each.process for each in world.dispatchers if each.name == who and each.process is not None
    ]


def _kill(world: World, blow: Blow) -> None:
    """Not now but in a few steps of its own: most deaths are between two of them, and idle processes take none."""
    for process in _of(world, blow.who):
        if blow.deed:
            process.doomed = (blow.deed, blow.steps)
        else:
            process.steps_left = blow.steps


def _stop(world: World, blow: Blow) -> None:
    for process in _of(world, blow.who):
        process.stop()
        world.loop.later(blow.lasts_s, process.go_on)


def _reboot(world: World, blow: Blow) -> None:
    world.reboot(blow.who, wiped=blow.strike is Strike.WIPE)


def _jump(world: World, blow: Blow) -> None:
    _clock(world, blow.who).ahead_s += blow.lasts_s


def _clock(world: World, who: str) -> MachineClock:
    host = world.hosts.get(who)
    return (
        host.clock if host is not None else next(each.clock for each in world.dispatchers if each.name == who)
    )


def _drop(world: World, blow: Blow) -> None:
    world.network.drop(blow.who)


def _cut(world: World, blow: Blow) -> None:
    up, down = (blow.who, ""), ("", blow.who)
    ways = {Strike.CUT_UP: (up,), Strike.CUT_DOWN: (down,)}.get(blow.strike, (up, down))
    for way in ways:
        world.network.cut(*way)
        world.loop.later(blow.lasts_s, world.network.heal, *way)


def _interrupt(world: World, blow: Blow) -> None:
    living = world.cloud.living()
    if living:
        world.cloud.take_back(living[blow.steps % len(living)])


def _vanish(world: World, blow: Blow) -> None:
    living = world.cloud.living()
    if living:
        world.cloud.lose(living[blow.steps % len(living)])


def _nonsense(world: World, blow: Blow) -> None:
    if blow.who == "user":
        world.loop.create_task(world.users.submit_nonsense())
    elif blow.who in world.lives:
        world.lives[blow.who].say_nonsense()


_DEALT: dict[Strike, Callable[[World, Blow], None]] = {
    Strike.KILL: _kill,
    Strike.STOP: _stop,
    Strike.REBOOT: _reboot,
    Strike.WIPE: _reboot,
    Strike.JUMP: _jump,
    Strike.CUT: _cut,
    Strike.CUT_UP: _cut,
    Strike.CUT_DOWN: _cut,
    Strike.DROP: _drop,
    Strike.INTERRUPT: _interrupt,
    Strike.VANISH: _vanish,
    Strike.NONSENSE: _nonsense,
}
