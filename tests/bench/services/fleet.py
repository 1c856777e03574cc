"""A service's replicas in virtual time: they start, work on requests, drain and go; what is beyond what they are sent at a time waits at the gateway."""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec.structs import replace

from federator.model.services import Health, Replica, Revision, Scale, Service, Standing, steps
from federator.wire.services import SeenReplica
from tests.bench.services.requests import START_S, Request, prompt_s, token_s


@dataclass
class Machine:
    """One replica: prompts one after the other, and between them a token of every request in turn."""

    replica: Replica
    ready_s: float
    at_s: float = 0.0
    """So far it has been followed; a prompt that it has taken is done by then."""
    turns: float = 0.0
    """Tokens that each request could have got since the start."""
    running: list[tuple[float, Request]] = field(default_factory=list)
    """Each with the turn in which it is answered; the next first."""

    def take(self, request: Request, now_s: float) -> None:
        """Begin with a request."""
        self.at_s = max(self.at_s, now_s) + prompt_s(request.prompt)
        heappush(self.running, (self.turns + request.tokens, request))

    def follow(self, until_s: float) -> list[tuple[Request, float]]:
        """What is answered until then, and when."""
        answered = list[tuple[Request, float]]()
        while self.running and self.at_s < until_s:
            turn_s = token_s(len(self.running))
            ends_s = self.at_s + (self.running[0][0] - self.turns) * turn_s
            if ends_s > until_s:
                self.turns += (until_s - self.at_s) / turn_s
                break
            self.at_s = ends_s
            self.turns, request = heappop(self.running)
            answered.append((request, ends_s))
        self.at_s = max(self.at_s, until_s)
        return answered


class Fleet:
    """All replicas of one service."""

    def __init__(self, scale: Scale, begin: int, start_s: float = START_S) -> None:
        """At time 0, when so many of them are ready."""
        self._start_s = start_s
        self._service = Service(
            id="service", name="service", owner="", queue="", scale=scale, revision=Revision(number=1, file=""),
            wanted=begin, created_at=0.0, changed_at=0.0,
        )  # fmt: skip
        self._machines: dict[str, Machine] = {}
        self._waiting = deque[Request]()
        self._most = round(2 * scale.requests_per_replica)
        self._started = 0
        self.held_s = 0.0
        """Seconds of replicas, added up."""
        self._start(begin, -start_s)

    @property
    def at_once(self) -> int:
        """Requests that are worked on or wait."""
        return len(self._waiting) + sum(len(each.running) for each in self._machines.values())

    @property
    def active(self) -> int:
        """Replicas that are not drained, those that start among them."""
        return sum(each.replica.drained_at is None for each in self._machines.values())

    def seen(self, now_s: float) -> tuple[SeenReplica, ...]:
        """What a gateway sees of them."""
        return tuple(
            SeenReplica(job, each.ready_s <= now_s and each.replica.drained_at is None, len(each.running))
            for job, each in self._machines.items()
        )

    def ask(self, request: Request) -> None:
        """A request comes in."""
        self._waiting.append(request)

    def work(self, now_s: float, for_s: float) -> list[tuple[Request, float]]:
        """Let so much time pass: each request that waits goes to the replica with the fewest. What was answered, and when."""
        self.held_s += for_s * len(self._machines)
        open_ = [each for each in self._machines.values() if each.ready_s <= now_s and not each.replica.drained_at]  # fmt: skip
        while self._waiting and open_:
            machine = min(open_, key=lambda each: len(each.running))
            if len(machine.running) >= self._most:
                break
            machine.take(self._waiting.popleft(), now_s)
        return [each for machine in self._machines.values() for each in machine.follow(now_s + for_s)]

    def scale_to(self, wanted: int, now_s: float) -> None:
        """Start, drain and end replicas so that there are so many, as the dispatcher does."""
        self._service = replace(self._service, wanted=wanted)
        standings = [
            Standing(
                each.replica,
                Health.READY if each.ready_s <= now_s else Health.STARTING,
                idle=not each.running,
            )
            for each in self._machines.values()
        ]
        todo = steps(self._service, standings, now_s)
        for job in todo.drains:
            machine = self._machines[job]
            machine.replica = replace(machine.replica, drained_at=now_s)
        for job in todo.cancels:
            # Drains are long enough for what the replica works on: nothing is lost.
            self._machines.pop(job)
        self._start(len(todo.starts), now_s)

    def _start(self, many: int, now_s: float) -> None:
        for _ in range(many):
            self._started += 1
            job = str(self._started)
            self._machines[job] = Machine(Replica(job, 1), now_s + self._start_s)
