"""`federator site upgrade`: the agents of many hosts are exchanged, a few at a time, and no more once one has failed.

The administrator's own command does it at each host, with the administrator's own rights there. The dispatcher only tells which agent has come back in which
version: if it could bring programs to sites itself, whoever takes it over would have every host of the federation.
"""

import re
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

from federator.cli.phrases import counted, plain, seconds_in
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Conflict, Invalid, NotFound
from federator.model.sites import SiteStatus
from federator.wire.http import MemberRow

HOST = "{host}"
LOOK_S = 2.0
MOST_AT_ONCE = 100
PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
"""What a host can be called."""


def upgrade(
    version: str,
    *command: str,
    site: tuple[str, ...] = (),
    at_once: int = 5,
    within: str = "15m",
    connection: Connection = HERE,
) -> None:
    """Exchange agents a few at a time, by a command of yours; the first alone, and no more once one has failed.

    `site upgrade 0.2.0 --site 'store-*' -- ssh root@{host} federator-0.2.0/install.sh agent`. A host is done when its agent is connected in that version.
    Hosts that have it already, or are not connected, are left out: run the same command again for them.

    Parameters
    ----------
    version:
        Which version the agents shall have.
    command:
        What upgrades one host, after `--`; it is run here, and `{host}` in it is the host's name. Without it, something else upgrades them, and it is only looked on.
    site:
        Sites whose hosts are meant, by name or by a pattern such as 'store-*'; may be given several times. Else all.
    at_once:
        How many hosts at a time, after the first.
    within:
        How long each may take.
    """
    if not version[:1].isdigit():
        raise Invalid(
            f"{version!r} is not a version", field="VERSION", remedy="write it before --, such as 0.2.0"
        )
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise Invalid(f"cannot be {at_once}", field="--at-once", remedy=f"write 1 to {MOST_AT_ONCE}")
    limit_s = seconds_in(within, "--within")
    known = _hosts(connection, site)
    if not known:
        raise NotFound("no host of these sites is known", remedy="federator sites lists the sites")
    behind = [host for host in known if host.version != version]
    there = [host.name for host in behind if host.status == SiteStatus.READY]
    for host in behind:
        if host.name not in there:
            print(f"{plain(host.name)} is {plain(host.status)}: left out")
    done = 0
    for wave in (there[:1], *(there[at : at + at_once] for at in range(1, len(there), at_once))):
        failed = _run(wave, command, limit_s)
        failed |= _awaited(connection, site, version, [name for name in wave if name not in failed], limit_s)
        for name in wave:
            print(f"{plain(name)}: {plain(failed.get(name, f'runs {version}'))}")
        done += len(wave) - len(failed)
        if failed:
            raise Conflict(
                f"{counted(len(failed), 'host')} failed, {done} of {len(there)} are done, and no more are begun",
                remedy="look at what failed, then run the same command again: it goes on with the rest",
            )
    print(f"{counted(done, 'host')} upgraded to {plain(version)}; {len(known) - len(behind)} had it already")


def _hosts(connection: Connection, patterns: Sequence[str]) -> list[MemberRow]:
    """The hosts of these sites, by name; machines that are rented begin and end with a version. Raises `Invalid` for a name that none can have."""
    rows, _ = ask(connection, lambda client: client.sites(), follows=True)
    hosts = sorted(
        (
            host
            for row in rows
            if not patterns or any(fnmatchcase(row.name, pattern) for pattern in patterns)
            for host in row.hosts
            if not host.lease
        ),
        key=lambda host: host.name,
    )
    for host in hosts:
        if not PLACE.fullmatch(host.name):  # it goes into the command, as a word or into a shell
            raise Invalid(f"the dispatcher names a host {plain(host.name)!r}, and none can be called so")
    return hosts


def _run(names: Sequence[str], command: Sequence[str], limit_s: float) -> dict[str, str]:
    """Run the command for all of them at a time; what went wrong at which."""

    def one(name: str) -> str:
        words = [word.replace(HOST, name) for word in command]
        try:
            ran = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the command has not ended after {limit_s:g} s"
        except OSError as error:
            return f"{words[0]}: {error.strerror}"
        last = ran.stdout.strip().rpartition("\n")[2]
        return f"exit code {ran.returncode}: {last}".rstrip(": ") if ran.returncode else ""

    if not command or not names:
        return {}
    with ThreadPoolExecutor(len(names)) as threads:
        return {name: fault for name, fault in zip(names, threads.map(one, names), strict=True) if fault}


def _awaited(
    connection: Connection, patterns: Sequence[str], version: str, names: Sequence[str], limit_s: float
) -> dict[str, str]:
    """Wait until the agents of these hosts are connected in that version; which are not in time, and how they are."""
    ends_at = time.monotonic() + limit_s
    while names:
        hosts = {host.name: host for host in _hosts(connection, patterns)}
        rest = {
            name: f"is not connected in version {version} after {limit_s:g} s: it is {hosts[name].status}, in version {hosts[name].version or 'not known'}"
            if name in hosts
            else "is gone"
            for name in names
            if name not in hosts
            or (hosts[name].version, hosts[name].status) != (version, SiteStatus.READY.value)
        }
        if not rest or time.monotonic() >= ends_at:
            return rest
        time.sleep(LOOK_S)
    return {}
