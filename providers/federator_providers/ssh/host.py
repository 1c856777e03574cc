"""What the `ssh` provider runs at a machine: `python -m federator_providers.ssh.host`, one question on standard input, one answer on standard output.

The machine is one of the provider `local`: a folder that is its truth, and two processes that end everything on it when either ends. So what is said to
have ended has ended, whoever was cut off from whom meanwhile.
"""

import asyncio
import sys
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import FederatorError, NoCapacity
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator.wire.jsontext import read
from federator_providers.local import LocalProvider
from federator_providers.local.settings import LocalConfiguration

KEEP_ENDED_S = 7 * 86400.0
MAX_QUESTION = 4 * 2**20
_OFFER = "federator-offer"
"""Tag with the name of the offer. In the folder every offer has the same name, so that a machine is taken once, whatever it is offered as."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a machine: to launch, to terminate, or else what it has. `at` is the federation's time, of which one second takes `real_s_per_s`."""

    at: float
    real_s_per_s: float
    state_dir: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    request: LaunchRequest | None = None
    """What to launch."""
    terminate: str = ""
    """The name of what to end."""
    federation: str = ""
    """Whose instances are to be listed."""


class Answer(msgspec.Struct, frozen=True):
    """What the machine says. `free`: nobody has taken it."""

    free: bool = False
    instances: tuple[Instance, ...] = ()
    refused: str = ""
    """Why the question was not answered."""
    taken: bool = False
    """It was refused because somebody has the machine."""


def answer(question: Question) -> Answer:
    """Do what is asked."""
    try:
        return asyncio.run(_answer(question))
    except NoCapacity as error:
        return Answer(refused=error.describe(), taken=True)
    except FederatorError as error:
        return Answer(refused=error.describe())


class _FederationClock:
    """The federation's clock, from the time that came with the question."""

    def __init__(self, at: float, real_s_per_s: float) -> None:
        self._at, self._real_s_per_s, self._began_s = at, real_s_per_s, time.monotonic()

    def now(self) -> float:
        """Wall time."""
        elapsed_s = time.monotonic() - self._began_s
        return self._at + (elapsed_s / self._real_s_per_s if self._real_s_per_s > 0 else 0.0)

    def boot(self) -> float:
        """Since this program began; nothing here compares it with another's."""
        return time.monotonic()

    def real_delay_s(self, delay_s: float) -> float:
        """As the dispatcher's clock has it."""
        return max(0.0, delay_s * self._real_s_per_s)


async def _answer(question: Question) -> Answer:
    clock = _FederationClock(question.at, question.real_s_per_s)
    request = question.request
    offers = () if request is None else (_as_kept(request.offer),)
    machine = LocalProvider("ssh", _configuration(question, offers), clock)
    if request is not None:
        tags = request.tags | {_OFFER: request.offer.name}
        kept = replace(request, offer=_as_kept(request.offer), tags=tags)
        return Answer(instances=(_as_offered(await machine.launch(kept)),))
    if question.terminate:
        await machine.terminate(question.terminate)
        return Answer()
    listed = await machine.instances(question.federation)
    return Answer(machine.is_idle(), tuple(_as_offered(each) for each in listed))


def _configuration(question: Question, offers: tuple[Offer, ...]) -> LocalConfiguration:
    return LocalConfiguration(
        state_dir=Path(question.state_dir).expanduser().absolute(),
        command=question.command or (sys.executable, "-m", "federator_agent", "serve"),
        env=question.env,
        offers=offers,
        keep_ended_s=KEEP_ENDED_S,
    )


def _as_kept(offer: Offer) -> Offer:
    """One of it, there at once: the machine runs already."""
    return replace(offer, name="machine", available=1, delay_s=0.0)


def _as_offered(instance: Instance) -> Instance:
    tags = dict(instance.tags)
    return replace(instance, offer=tags.pop(_OFFER, instance.offer), tags=tags)


def main() -> int:
    """Read the question, write the answer; 2 where it is not understood."""
    given = sys.stdin.buffer.read(MAX_QUESTION + 1)
    try:
        question = read(given, Question)
    except msgspec.DecodeError:
        sys.stderr.write("this is not a question of Federator's provider ssh\n")
        return 2
    sys.stdout.buffer.write(msgspec.json.encode(answer(question)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
