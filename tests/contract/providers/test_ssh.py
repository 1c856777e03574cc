"""The `ssh` provider beside real servers, and what it believes of machines that do not answer.

Its promises as a provider are in `test_provider_contract`; there the questions take no connection.
"""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Invalid, NoCapacity, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from federator_providers.ssh import SshProvider
from federator_providers.ssh import provider as ssh_provider
from federator_providers.ssh.address import Address
from federator_providers.ssh.host import Answer, Question
from federator_providers.ssh.login import MAX_ANSWER
from federator_providers.ssh.provider import SILENT_S
from federator_providers.ssh.settings import SshConfiguration, read_settings
from tests.support.waiting import until
from tests.testbeds.required import need
from tests.testbeds.ssh import SshMachines


async def launch(provider: Provider, name: str) -> Instance:
    (offer,) = await provider.offers()
    request = LaunchRequest(
        name=name, offer=offer, federation="lab", tags={"lease": name}, user_data="secret"
    )
    return await provider.launch(request)


async def status(provider: Provider, name: str) -> InstanceStatus:
    (found,) = [each for each in await provider.instances("lab") if each.name == name]
    return found.status


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[SshMachines]:
    need("" if shutil.which("ssh") else "ssh is not installed (Debian: openssh-client)")
    made = SshMachines(tmp_path / "ssh")
    yield made
    await made.close()
    for machine in made.machines:
        for taken in (machine.home / "federator-machines").glob("*"):
            kill_tagged(TAG, str(taken))


async def test_a_machine_is_taken_and_given_back_over_ssh(machines: SshMachines) -> None:
    machine = await machines.add()
    clock = ManualClock()
    settings = machines.settings(sys.executable, "/bin/sh", "-c", "cat $FEDERATOR_USER_DATA_FILE; sleep 300")
    provider = ssh_provider("p", settings, clock)
    await launch(provider, "a")

    async def runs() -> bool:
        return await status(provider, "a") is InstanceStatus.RUNNING

    await until(runs)
    folder = machine.home / "federator-machines" / "a"
    await until(lambda: _soon((folder / "console.log").read_text() == "secret"))
    assert not any("secret" in command for command in machine.commands), "it went through standard input"
    with pytest.raises(NoCapacity, match="no machine of ssh/box/on-demand is free"):
        await launch(provider, "b")

    await machine.stop()
    clock.advance(3600)
    (cut_off,) = await provider.instances("lab")
    assert cut_off.status is InstanceStatus.RUNNING
    assert cut_off.billed_usd == pytest.approx(3.6)
    with pytest.raises(Unavailable, match="does not answer, so a goes on"):
        await provider.terminate("a")
    again = ssh_provider("p", settings, clock)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+ has not answered yet"):
        await again.instances("lab")

    await machine.start()
    clock.advance(SILENT_S)
    await again.terminate("a")

    async def ended() -> bool:
        return await status(again, "a") is InstanceStatus.ENDED

    await until(ended)
    (offer,) = await again.offers()
    assert offer.available == 1


async def _soon(value: bool) -> bool:
    return value


async def test_machines_that_cannot_be_believed_are_not_offered(
    machines: SshMachines, caplog: pytest.LogCaptureFixture
) -> None:
    """One after the other: an unknown host key, a shell that talks, one without Federator, one without end."""
    await machines.add()
    machines.known_hosts.write_text("")
    talks = await machines.add(prints="echo welcome")
    endless = await machines.add(prints=f"head -c {2 * MAX_ANSWER} /dev/zero")
    (offer,) = await ssh_provider("p", machines.settings(sys.executable), ManualClock()).offers()
    assert offer.available == 0
    assert "Host key verification failed" in caplog.text
    assert f"{talks.address} answered something else than Federator does" in caplog.text
    assert f"{endless.address} says more than Federator does" in caplog.text
    caplog.clear()
    (offer,) = await ssh_provider("p", machines.settings("/no/python"), ManualClock()).offers()
    assert offer.available == 0
    assert "install Federator there" in caplog.text


class Scripted:
    """Machines in memory. `cut_off`: nothing is heard of them. `deaf`: they launch, and their answer is lost. `sly`: they say that they are free, and taken once they are asked."""

    def __init__(self) -> None:
        self.instances: dict[Address, list[Instance]] = {}
        self.cut_off: set[str] = set()
        self.deaf = self.sly = False
        self.launches = 0

    async def ask(self, machine: Address, question: Question) -> Answer:
        """As a machine would."""
        if machine.host in self.cut_off:
            raise Unavailable("no route")
        answer = self._answer(self.instances.setdefault(machine, []), question)
        if self.deaf and question.request is not None:
            raise Unavailable("hung up")
        return answer

    def _answer(self, instances: list[Instance], question: Question) -> Answer:
        self.launches += question.request is not None
        if self.sly and question.request is not None:
            return Answer(refused="busy", taken=True)
        living = [each for each in instances if each.status is not InstanceStatus.ENDED]
        if question.terminate:
            self.end(question.terminate, at=question.at)
        elif question.request is None:
            return Answer(not living, tuple(instances))
        elif not any(each.name == question.request.name for each in instances):
            if living:
                return Answer(refused="busy", taken=True)
            instances.append(_instance(question.request, question.at))
        return Answer(instances=tuple(instances[-1:]))

    def end(self, name: str, *, at: float, at_host: str = "") -> None:
        """What is called so, at one machine or all that are heard of, has ended."""
        for machine, instances in self.instances.items():
            if machine.host in self.cut_off or (at_host and machine.host != at_host):
                continue
            instances[:] = [
                msgspec.structs.replace(each, status=InstanceStatus.ENDED, ended_at=at)
                if each.name == name
                else each
                for each in instances
            ]

    def holders(self, name: str) -> set[str]:
        """Where it lives."""
        return {
            machine.host
            for machine, instances in self.instances.items()
            for each in instances
            if each.name == name and each.status is not InstanceStatus.ENDED
        }


def _instance(request: LaunchRequest, at: float) -> Instance:
    tags = request.tags | {"federation": request.federation}
    return Instance(
        name=request.name,
        offer=request.offer.name,
        status=InstanceStatus.RUNNING,
        launched_at=at,
        ended_at=None,
        tags=tags,
        billed_usd=0.0,
    )


def configuration(*hosts: str) -> SshConfiguration:
    box = {"instance_type": "box", "machines": list(hosts), "cpus": 4, "memory": "16GiB", "price_usd_h": 3.6}
    return read_settings("p", {"offers": [box]})


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


def make(scripted: Scripted, clock: ManualClock, *hosts: str) -> SshProvider:
    return SshProvider("p", configuration(*(hosts or ("a", "b", "c"))), clock, scripted)


async def test_a_launch_whose_answer_is_lost_is_found_again(scripted: Scripted, clock: ManualClock) -> None:
    provider = make(scripted, clock)
    scripted.deaf = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="hung up"):
            await launch(provider, "lease")
    scripted.deaf = False
    instance = await launch(provider, "lease")
    assert len(scripted.holders("lease")) == 1
    assert await launch(make(scripted, clock), "lease") == instance, "another dispatcher finds it too"
    assert await provider.instances("lab") == [instance]


async def test_what_runs_on_a_machine_that_is_cut_off_is_listed_and_billed(
    scripted: Scripted, clock: ManualClock
) -> None:
    provider = make(scripted, clock)
    await launch(provider, "lease")
    (holder,) = scripted.holders("lease")
    scripted.cut_off = {holder}
    clock.advance(3600)
    (listed,) = await provider.instances("lab")
    assert listed.status is InstanceStatus.RUNNING
    assert listed.billed_usd == pytest.approx(3.6)
    assert (await provider.offers())[0].available == 2
    scripted.cut_off = {"a", "b", "c"} - {holder}
    assert len(await provider.instances("lab")) == 1, "what was empty is empty"


async def test_nothing_is_listed_before_each_machine_has_answered_once(
    scripted: Scripted, clock: ManualClock
) -> None:
    await launch(make(scripted, clock), "lease")
    scripted.cut_off = scripted.holders("lease")
    again = make(scripted, clock)
    with pytest.raises(Unavailable, match="take it out of `machines`"):
        await again.instances("lab")
    scripted.cut_off = set()
    with pytest.raises(Unavailable):
        await again.instances("lab")  # who is silent is left alone for a while
    clock.advance(SILENT_S)
    assert len(await again.instances("lab")) == 1


async def test_of_two_machines_by_one_name_neither_has_ended_before_both_have(
    scripted: Scripted, clock: ManualClock
) -> None:
    """The first was launched by a dispatcher that is gone, and could not be asked."""
    provider = make(scripted, clock)
    scripted.deaf = True
    with pytest.raises(Unavailable):
        await launch(provider, "lease")
    scripted.deaf, scripted.cut_off = False, scripted.holders("lease")
    (first,) = scripted.cut_off
    again = make(scripted, clock)
    clock.advance(10)
    await launch(again, "lease")
    assert len(scripted.holders("lease")) == 2
    scripted.cut_off = set()
    clock.advance(SILENT_S)
    (listed,) = await again.instances("lab")
    assert listed.launched_at == clock.now() - SILENT_S - 10
    scripted.end("lease", at_host=first, at=clock.now())
    (listed,) = await again.instances("lab")
    assert listed.status is InstanceStatus.RUNNING
    await again.terminate("lease")
    (listed,) = await again.instances("lab")
    assert listed.status is InstanceStatus.ENDED
    assert scripted.holders("lease") == set()


async def test_a_machine_that_is_taken_after_all_leaves_the_launch_to_another_lease(
    scripted: Scripted, clock: ManualClock
) -> None:
    """It may keep the join token that it was given."""
    provider = make(scripted, clock)
    scripted.sly = True
    with pytest.raises(NoCapacity, match="is taken"):
        await launch(provider, "lease")
    assert scripted.launches == 1


async def test_a_machine_cannot_bill_otherwise_than_the_settings(
    scripted: Scripted, clock: ManualClock
) -> None:
    provider = make(scripted, clock)
    instance = await launch(provider, "lease")
    (machine,) = (each for each, instances in scripted.instances.items() if instances)
    later = clock.now() + 1e9
    scripted.instances[machine] = [
        msgspec.structs.replace(
            instance,
            offer="gold",
            status=InstanceStatus.ENDED,
            launched_at=later,
            ended_at=later + 1e9,
            billed_usd=1e9,
        )
    ]
    (listed,) = await provider.instances("lab")
    assert (listed.launched_at, listed.ended_at) == (clock.now(), clock.now())
    assert listed.billed_usd == pytest.approx(0.06), "the minimum"


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"machines": ["-oProxyCommand=x"]}, "machines[0]", "is not the address"),
        ({"machines": ["a", "me@a:70000"]}, "machines[1]", "is not the address"),
        ({"machines": ["a", "a"]}, "machines[1]", "listed twice"),
        ({"model": "A100"}, "gpus", "write model and gpus, or neither"),
        ({"machines": []}, "machines", "at least 1"),
    ],
)
def test_a_mistake_in_the_settings_names_its_key(changes: dict[str, object], field: str, says: str) -> None:
    box = {
        "instance_type": "box",
        "machines": ["a"],
        "cpus": 4,
        "memory": "16GiB",
        "price_usd_h": 0,
    } | changes
    with pytest.raises(Invalid, match=says) as error:
        read_settings("p", {"offers": [box]})
    assert error.value.field == f"$.providers.p.settings.offers[0].{field}"


def test_addresses_are_read_as_ssh_takes_them() -> None:
    configured = configuration("gpu1", "ada@gpu2.lab:2222", "[::1]:22")
    assert [each.words for each in configured.machines] == [
        ("--", "gpu1"),
        ("-l", "ada", "-p", "2222", "--", "gpu2.lab"),
        ("-p", "22", "--", "::1"),
    ]
