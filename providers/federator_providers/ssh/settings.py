"""Settings of the `ssh` provider, and the offers that they make. Keys and passwords are none of them: the `ssh` command finds its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.fields import written
from federator_providers.offers import Described, Span, Usd, described, offers_by_name
from federator_providers.ssh.address import Address, address

MAX_MACHINES = 1000
Machine = Annotated[Address, written(address, minLength=1)]
Words = Annotated[tuple[fields.Text, ...], Meta(max_length=100)]


class SshOfferSettings(Described, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Machines that are alike: one offer, of which there are as many as have nobody on them."""

    machines: Annotated[tuple[Machine, ...], Meta(min_length=1, max_length=MAX_MACHINES)]
    """Where they are: `HOST`, `USER@HOST`, `HOST:PORT`, or a name of the ssh configuration."""
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
        given.offers,
        lambda each, at: [_offer(provider, given, each, at)],
        f"{path}.offers",
    )
    return SshConfiguration(given, offers, machines)


def _machines(given: SshSettings, entries: dict[str, SshOfferSettings]) -> Iterator[tuple[str, Address, str]]:
    for path, entry in entries.items():
        for index, machine in enumerate(entry.machines):
            yield f"{path}.machines[{index}]", machine, _name(given, entry)


def _name(settings: SshSettings, given: SshOfferSettings) -> str:
    return f"{settings.region}/{given.instance_type}/{Market.ON_DEMAND}"


def _offer(provider: str, settings: SshSettings, given: SshOfferSettings, path: str) -> Offer:
    return described(
        given,
        path,
        region=settings.region,
        market=Market.ON_DEMAND,
        provider=provider,
        delay_s=given.boot_delay_s,
        teardown_s=10.0,
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
