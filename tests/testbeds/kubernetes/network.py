"""What a cluster's network does for pods: whoever asks for the address of a Service is led to a pod that is ready, or to the API server. A stand-in for kube-proxy, without its rules in the kernel.

The host has the addresses of the Services on the bridge of its pods and forwards from there. Names are not resolved.
"""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Self

from tests.testbeds.kubernetes.cluster import Admin
from tests.testbeds.kubernetes.node import RealNode

Place = tuple[str, int]


class Network:
    """Of one node. `with Network(node, "10.213.9.1/24") as network`, before the first pod."""

    def __init__(self, node: RealNode, gateway: str) -> None:
        """`gateway`: the address of the host among its pods, by which it reaches them and they reach Services."""
        self._node, self._gateway = node, gateway
        self._listening: list[socket.socket] = []

    def __enter__(self) -> Self:
        _ip("link", "add", self._node.bridge, "type", "bridge")
        _ip("address", "add", self._gateway, "dev", self._node.bridge)
        _ip("link", "set", self._node.bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._listening:
            each.shutdown(socket.SHUT_RDWR)  # who waits for a connection would keep the address
            each.close()

    def serve(self, service: str, namespace: str) -> str:
        """Forward what comes to a Service of one port; its address."""
        admin = self._node.admin
        spec = admin.ask("GET", f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]
        port = spec["ports"][0]["port"]
        self._forward((spec["clusterIP"], port), lambda: _ready(admin, service, namespace))
        return f"{spec['clusterIP']}:{port}"

    def serve_api(self, api_server: Place) -> None:
        """Forward what comes to the Service `kubernetes`, which pods find in their environment."""
        spec = self._node.admin.ask("GET", "/api/v1/namespaces/default/services/kubernetes")["spec"]
        self._forward((spec["clusterIP"], spec["ports"][0]["port"]), lambda: api_server)

    def _forward(self, place: Place, target: Callable[[], Place]) -> None:
        _ip("address", "add", f"{place[0]}/32", "dev", self._node.bridge)
        listening = socket.create_server(place)
        self._listening.append(listening)
        threading.Thread(target=_accept, args=(listening, target), daemon=True).start()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _ready(admin: Admin, service: str, namespace: str) -> Place:
    """A pod behind a Service. Raises `OSError` when none is ready."""
    found = admin.ask("GET", f"/api/v1/namespaces/{namespace}/endpoints/{service}")
    for subset in found.get("subsets", ()):
        for address in subset.get("addresses", ()):
            return address["ip"], subset["ports"][0]["port"]
    raise ConnectionRefusedError(f"no pod behind {service} is ready")


def _accept(listening: socket.socket, target: Callable[[], Place]) -> None:
    with contextlib.suppress(OSError):
        while True:
            near, _ = listening.accept()
            threading.Thread(target=_join, args=(near, target), daemon=True).start()


def _join(near: socket.socket, target: Callable[[], Place]) -> None:
    with near, contextlib.suppress(OSError), socket.socket() as far:
        super(socket.socket, far).connect(
            target()
        )  # a pod of this machine: what keeps tests to loopback may not know it
        threading.Thread(target=_copy, args=(far, near), daemon=True).start()
        _copy(near, far)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Until either ends; then both do."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
