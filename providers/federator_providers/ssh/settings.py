"""Settings of the `ssh` provider, and the offers that they make. Keys and passwords are none of them: the `ssh` command finds its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire import fields
from federator.wire.fields import written
from federator.wire.records import decode
from federator_providers.offers import Many, Span, Usd, offers_by_name
from federator_providers.ssh.address import Address, address

MAX_MACHINES = 1000
MAX_GPU_MEMORY_MIB = 2**20
MAX_MEMORY_MIB = 2**26
Machine = Annotated[Address, written(address, minLength=1)]
Words = Annotated[tuple[fields.Text, ...], Meta(max_length=100)]


class SshOfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Machines that are alike: one offer, of which there are as many as have nobody on them."""

    instance_type: fields.Name
    """What they are called together, such as `lab-a100`."""
    machines: Annotated[tuple[Machine, ...], Meta(min_length=1, max_length=MAX_MACHINES)]
    """Where they are: `HOST`, `USER@HOST`, `HOST:PORT`, or a name of the ssh configuration."""
    model: str = ""
    """GPU model as users write it. Left out: they have no GPUs."""
    gpu_memory_mib: Annotated[int, fields.size("80GiB", high_mib=MAX_GPU_MEMORY_MIB)] = field(
        name="gpu_memory", default=0
    )
    """Memory of one GPU."""
    gpus: Many = 0
    """GPUs of one machine."""
    cpus: Annotated[float, Meta(gt=0, le=100_000)]
    """CPU cores of one machine."""
    memory_mib: Annotated[int, fields.size("512GiB", high_mib=MAX_MEMORY_MIB)] = field(name="memory")
    """Memory of one machine."""
    price_usd_h: Usd
    """What an hour of one machine costs, in USD; 0 where it is paid for already."""
    minimum_billing_s: Span = field(name="minimum_billing", default=60.0)
    """What is billed at least. Left out: `60s`."""
    boot_delay_s: Span = field(name="boot_delay", default=15.0)
    """From launch until the agent has joined. Left out: `15s`."""


class SshSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the provider needs to know."""

    offers: Annotated[tuple[SshOfferSettings, ...], Meta(min_length=1, max_length=MAX_MACHINES)]
    """What may be rented."""
    python: fields.Text = "python3"
    """The Python at the machines in which Federator is installed, such as `/opt/federator/bin/python`."""
    state_dir: fields.Text = "~/federator-machines"
    """A folder at each machine for what is taken there: records, and the agent's state and its jobs' folders."""
    command: Words = ()
    """What a machine runs while it is taken. Left out: the agent, by the same Python. When it ends, the machine is given back."""
    env: dict[str, str] = {}
    """Added to the environment of the command."""
    config_file: fields.FilePath | None = None
    """Configuration of the `ssh` command, on the dispatcher's host. Left out: the user's and the system's."""
    identity_file: fields.FilePath | None = None
    """Private key to sign in with. Left out: what the `ssh` command finds by itself."""
    known_hosts: fields.FilePath | None = None
    """Host keys of the machines. Left out: the user's and the system's. A machine whose key is not there is not believed."""
    region: fields.Text = "ssh"
    """The region that the offers are in."""
    egress_usd_per_gib: Usd = 0.0
    """Price of a GiB that leaves a machine."""


class SshConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    given: SshSettings
    offers: dict[str, Offer]
    machines: dict[Address, str]
    """The name of the offer that each machine is of."""


def read_settings(provider: str, settings: object) -> SshConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, SshSettings, path)
    entries = {f"{path}.offers[{index}]": each for index, each in enumerate(given.offers)}
    machines: dict[Address, str] = {}
    for where, machine, name in _machines(given, entries):
        if machine in machines:
            raise Invalid(f"{machine} is listed twice", field=where, remedy="keep one of them")
        machines[machine] = name
    if len(machines) > MAX_MACHINES:
        remedy = "make several providers of them"
        raise Invalid(
            f"there are {len(machines)} machines, more than {MAX_MACHINES}",
            field=f"{path}.offers",
            remedy=remedy,
        )
    offers = offers_by_name(
        [_Sold(each) for each in given.offers],
        lambda each, at: [_offer(provider, given, each.given, at)],
        f"{path}.offers",
    )
    return SshConfiguration(given, offers, machines)


class _Sold(msgspec.Struct, frozen=True):
    """An entry as `offers_by_name` takes it: sold in one market."""

    given: SshOfferSettings
    market: tuple[str, ...] = ("on-demand",)

    @property
    def instance_type(self) -> str:
        """Of the entry."""
        return self.given.instance_type


def _machines(given: SshSettings, entries: dict[str, SshOfferSettings]) -> Iterator[tuple[str, Address, str]]:
    for path, entry in entries.items():
        for index, machine in enumerate(entry.machines):
            yield f"{path}.machines[{index}]", machine, _name(given, entry)


def _name(settings: SshSettings, given: SshOfferSettings) -> str:
    return f"{settings.region}/{given.instance_type}/{Market.ON_DEMAND}"


def _offer(provider: str, settings: SshSettings, given: SshOfferSettings, path: str) -> Offer:
    if bool(given.model) != bool(given.gpus):
        missing = "gpus" if given.model else "model"
        raise Invalid("is missing", field=f"{path}.{missing}", remedy="write model and gpus, or neither")
    return Offer(
        name=_name(settings, given),
        provider=provider,
        region=settings.region,
        instance_type=given.instance_type,
        market=Market.ON_DEMAND,
        model=given.model,
        gpu_memory_mib=given.gpu_memory_mib,
        gpus=given.gpus,
        cpus_milli=int(given.cpus * 1000),
        memory_mib=given.memory_mib,
        price_usd_h=given.price_usd_h,
        delay_s=given.boot_delay_s,
        teardown_s=10.0,
        minimum_billing_s=given.minimum_billing_s,
        available=len(given.machines),
        egress_usd_per_gib=settings.egress_usd_per_gib,
    )


def file_options(given: SshSettings) -> Iterator[str]:
    """The words that tell `ssh` which files to read."""
    if given.config_file is not None:
        yield from ("-F", _path(given.config_file))
    if given.identity_file is not None:
        yield from ("-i", _path(given.identity_file), "-o", "IdentitiesOnly=yes")
    if given.known_hosts is not None:
        yield from ("-o", f'UserKnownHostsFile="{_path(given.known_hosts)}"')


def _path(path: Path) -> str:
    return str(path.expanduser().absolute())
