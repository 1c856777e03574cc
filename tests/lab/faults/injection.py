"""How each single fault of a plan is injected, and how all of them are made good again."""

from collections.abc import Callable

from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.clusters import Cluster
from tests.lab.faults.data import lose_what_is_kept
from tests.lab.faults.plan import FaultKind, InjectedFault
from tests.lab.faults.processes import Process
from tests.lab.faults.world import World


def inject(world: World, fault: InjectedFault) -> None:
    """Inject one fault, unless all is calm by now."""
    if not world.calm:
        world.journal.note(
            "FATE",
            f"{fault.kind} {fault.who} {fault.lasts_s:.0f} s, {fault.steps} steps {fault.deed}".rstrip(),
        )
        _INJECTED[fault.kind](world, fault)


def calm(world: World) -> None:
    """Nothing goes wrong any more: links are whole, what was stopped goes on, and nobody is going to die."""
    world.journal.note("WATCH", "from now on nothing goes wrong")
    world.calm = True
    world.profile.settle()
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


def _kill(world: World, fault: InjectedFault) -> None:
    """Not now but in a few steps of its own: most deaths are between two of them, and idle processes take none."""
    for process in _of(world, fault.who):
        if fault.deed:
            process.doomed = (fault.deed, fault.steps)
        else:
            process.steps_left = fault.steps


def _stop(world: World, fault: InjectedFault) -> None:
    for process in _of(world, fault.who):
        process.stop()
        world.loop.later(fault.lasts_s, process.go_on)


def _reboot(world: World, fault: InjectedFault) -> None:
    world.reboot(fault.who, wiped=fault.kind is FaultKind.WIPE)


def _jump(world: World, fault: InjectedFault) -> None:
    _clock(world, fault.who).ahead_s += fault.lasts_s


def _clock(world: World, who: str) -> MachineClock:
    host = world.hosts.get(who)
    return (
        host.clock if host is not None else next(each.clock for each in world.dispatchers if each.name == who)
    )


def _drop(world: World, fault: InjectedFault) -> None:
    world.network.drop(fault.who)


def _cut(world: World, fault: InjectedFault) -> None:
    up, down = (fault.who, ""), ("", fault.who)
    ways = {FaultKind.CUT_UP: (up,), FaultKind.CUT_DOWN: (down,)}.get(fault.kind, (up, down))
    for way in ways:
        world.network.cut(*way)
        world.loop.later(fault.lasts_s, world.network.heal, *way)


def _interrupt(world: World, fault: InjectedFault) -> None:
    living = world.cloud.living()
    if living:
        world.cloud.take_back(living[fault.steps % len(living)])


def _vanish(world: World, fault: InjectedFault) -> None:
    living = world.cloud.living()
    if living:
        world.cloud.lose(living[fault.steps % len(living)])


def _tidy(world: World, fault: InjectedFault) -> None:
    lose_what_is_kept(world.hosts[fault.who].folder)


def _strike(world: World, fault: InjectedFault) -> None:
    host = world.hosts[fault.who]
    assert isinstance(host, Cluster)
    host.strike(fault.kind, fault.steps)


def _nonsense(world: World, fault: InjectedFault) -> None:
    if fault.who == "user":
        world.loop.create_task(world.users.submit_nonsense())
    elif fault.who in world.lives:
        world.lives[fault.who].say_nonsense()


_INJECTED: dict[FaultKind, Callable[[World, InjectedFault], None]] = {
    FaultKind.KILL: _kill,
    FaultKind.STOP: _stop,
    FaultKind.REBOOT: _reboot,
    FaultKind.WIPE: _reboot,
    FaultKind.JUMP: _jump,
    FaultKind.CUT: _cut,
    FaultKind.CUT_UP: _cut,
    FaultKind.CUT_DOWN: _cut,
    FaultKind.DROP: _drop,
    FaultKind.INTERRUPT: _interrupt,
    FaultKind.VANISH: _vanish,
    FaultKind.NONSENSE: _nonsense,
    FaultKind.TIDY: _tidy,
    FaultKind.EVICT: _strike,
    FaultKind.REQUEUE: _strike,
    FaultKind.FORGET: _strike,
}
