"""Which computers of the network are asked for inputs: those of the public Internet, and those of networks that the site names.

A job names an address and the agent fetches it, from where the site's own services stand: a metadata service that hands out credentials, a database, the
agent's loopback. So the numbers that a name stands for are looked at, all of them, and the connection goes to those and no others: a name that stands for
something else a moment later changes nothing.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Annotated

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from federator.kernel.errors import Forbidden, Invalid
from federator.wire import fields

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
REMEDY = (
    "use a public address, or have the site's owner name its network under data_networks in the site file"
)


def _network(value: object, path: str) -> str:
    word = fields.text(value, path, limit=50)
    try:
        ipaddress.ip_network(word)
    except ValueError as error:
        remedy = "write for example 10.20.0.0/16"
        raise Invalid(f"is not a network: {error}", field=path, remedy=remedy) from None
    return word


Network = Annotated[str, fields.written(_network, "10.20.0.0/16")]


class Reach:
    """What may be asked. `networks`: beside the public Internet, such as `10.20.0.0/16`."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(each) for each in networks)

    def check(self, host: str, number: str) -> None:
        """Raise `Forbidden` unless that number, which `host` stands for, may be asked."""
        found = ipaddress.ip_address(number.partition("%")[0])
        if not all(self._admits(each) for each in {found, *_inside(found)}):
            stands = "" if number == host else f", which is {number}"
            raise Forbidden(f"this site fetches nothing from {host}{stands}: it is not public", remedy=REMEDY)

    def check_if_number(self, host: str) -> None:
        """The same for a host that is written as a number: no name is looked up for it.

        Systems also read `2130706433` and `127.1` as numbers, and each in its own way: such are refused.
        """
        if ":" not in host and not host.replace(".", "").isdigit():
            return
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            raise Forbidden(
                f"{host} is not an IP address in the usual notation",
                remedy="write all four numbers, or a name",
            ) from None
        self.check(host, host)

    def _admits(self, number: Address) -> bool:
        if any(number in network for network in self._networks):
            return True
        return number.is_global and not number.is_multicast


def _inside(number: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 one leads to."""
    if isinstance(number, ipaddress.IPv4Address):
        return []
    found = [number.ipv4_mapped, number.sixtofour, *(number.teredo or ())]
    if number in _NAT64:
        found.append(ipaddress.IPv4Address(int(number) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


class CheckedResolver(AbstractResolver):
    """Looks names up, and answers with numbers that were checked. The connection is made to one of these."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises `Forbidden` when any of the numbers may not be asked, `OSError` for an unknown name."""
        found = await self._resolver.resolve(host, port, family)
        for each in found:
            self._reach.check(host, each["host"])
        return found

    async def close(self) -> None:
        """Nothing is held."""
        await self._resolver.close()
