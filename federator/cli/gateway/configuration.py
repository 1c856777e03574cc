"""The configuration of HAProxy for the services that there are. Pure: the same services give the same text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from federator.wire.services import RoutedService

DOOR = "door"
"""The server that is used while no replica is ready: there the gateway itself holds requests until one is."""
HOLD_S = 300
"""So long a request waits for a replica."""
AGAIN_S = 5
"""After so long whoever got 503 may ask again."""
ANSWER_S = 3600
"""So long a replica may be silent before it answers, or while it does."""


def socket_of(folder: Path, service: str, slot: str) -> Path:
    """Where the gateway listens for a slot of a service."""
    return folder / f"{service}.{slot}"


def slots_of(service: RoutedService) -> tuple[str, ...]:
    """The names of its slots."""
    return tuple(f"r{number}" for number in range(1, service.most + 1))


def configuration(
    services: Sequence[RoutedService], ports: Mapping[str, int], folder: Path, *, bind: str, hosts: str
) -> str:
    """What HAProxy is to do. `ports`: where each service is found; `hosts`: an address and port where all are, each by its name as the first part of the host; empty: none."""
    parts = [_ALL.format(folder=folder, hold=HOLD_S, answer=ANSWER_S, again=AGAIN_S)]
    if hosts:
        lines = [
            f"    use_backend {each.name} if {{ req.hdr(host),field(1,.) -i {each.name} }}"
            for each in services
        ]
        parts.append("\n".join(("frontend hosts", f"    bind {hosts}", *lines)))
    for each in services:
        parts += [
            f"frontend to:{each.name}\n    bind {bind}:{ports[each.name]}\n    default_backend {each.name}",
            _backend(each, folder),
        ]
    return "\n\n".join(parts) + "\n"


def _backend(service: RoutedService, folder: Path) -> str:
    check = (
        f"    option httpchk GET {service.ready_path}\n    http-check expect status 200-399\n"
        if service.ready_path
        else ""
    )
    safe = (
        ""
        if service.resend
        else "    http-request disable-l7-retry unless METH_GET or { method HEAD OPTIONS }\n"
    )
    servers = [
        f"    server {slot} unix@{socket_of(folder, service.name, slot)} check inter 2s fastinter 500ms downinter 1s"
        f" rise 1 fall 2 maxconn {service.at_once_each} weight 100 disabled"
        for slot in slots_of(service)
    ]
    door = f"    server {DOOR} unix@{socket_of(folder, service.name, DOOR)} backup maxconn {service.at_once_each * 4}"
    return f"backend {service.name}\n{check}{safe}" + "\n".join((*servers, door))


_ALL = """\
# Written by federator gateway: changes are lost.
global
    stats socket {folder}/haproxy.sock mode 600 level admin expose-fd listeners
    log {folder}/log.sock len 512 format raw local0
    hard-stop-after {answer}s
    maxconn 4000

defaults
    mode http
    log global
    log-format "%b %s %ST %Ta"
    balance leastconn
    http-reuse safe
    option redispatch 1
    option abortonclose
    retries 10
    retry-on conn-failure empty-response
    timeout connect 30s
    timeout check 5s
    timeout client {answer}s
    timeout server {answer}s
    timeout queue {hold}s
    http-error status 503 content-type text/plain string "no replica answers: ask again" hdr Retry-After {again}"""
