"""Requests through a real HAProxy to replicas at a real agent, by tunnels: more replicas for more load, and no request lost with a replica."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.integration.command.conftest import Federation
from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds.haproxy import lack
from tests.testbeds.required import need

SERVER = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path != "/health":
            time.sleep(0.1)
        said = (WORD + " " + os.environ["PORT"]).encode()
        self.send_response(500 if WORD == "bad" and self.path != "/health" else 200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""

KILL = """
import os, pathlib, signal
for each in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if b"serve_forever" in (each / "cmdline").read_bytes() and f"PORT={os.environ['PORT']}".encode() in (each / "environ").read_bytes().split(b"\\0"):
            os.kill(int(each.name), signal.SIGKILL)
    except OSError:
        pass
"""
"""Kills the replica that it is run in."""


class Gateway:
    """`federator gateway` in a folder."""

    def __init__(self, federation: Federation, folder: Path, ports: str = "18100-18199") -> None:
        self.federation = federation
        self.folder = folder
        self.range = ports
        self.process = self.start()
        self.ports: dict[str, int] = {}

    def start(self) -> "subprocess.Popen[bytes]":
        return self.federation.serve("federator", "gateway", "-d", str(self.folder), "--ports", self.range)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def port(self, service: str) -> int:
        lines = (self.folder / "ports").read_text().splitlines() if (self.folder / "ports").exists() else []
        return next((int(line.split()[1]) for line in lines if line.split()[0] == service), 0)

    def retry_after(self, service: str) -> str | None:
        """What an answer without a replica says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(service), timeout=PATIENCE_S)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            return (
                answer.headers["Retry-After"]
                if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE
                else None
            )
        finally:
            connection.close()

    def ask(self, service: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port(service), timeout=PATIENCE_S)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def until_found(self, service: str) -> None:
        """Wait until HAProxy takes its requests."""

        def takes() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port(service)), 1.0).close()
                return True
            return False

        wait_until(takes, "HAProxy to listen")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder / "haproxy.pid").read_text()), signal.SIGTERM)


@pytest.fixture(scope="module")
def gateway(federation: Federation) -> Iterator[Gateway]:
    need(lack())
    with tempfile.TemporaryDirectory(prefix="gw", dir="/tmp") as folder:
        made = Gateway(federation, Path(folder))
        yield made
        made.end()


@contextlib.contextmanager
def service(federation: Federation, name: str, **fields: Any) -> Iterator[None]:
    apply(federation, name, **fields)
    try:
        yield
    finally:
        federation.run("service", "delete", name)
        wait_until(lambda: name not in federation.run("service", "list").stdout, "it to be gone")


def apply(federation: Federation, name: str, word: str = "one", *options: str, **fields: Any) -> None:
    file = federation.folder / f"{name}.yaml"
    given = {
        "kind": "service", "name": name, "port": "auto", "command": ["python3", "-c", f"WORD = {word!r}\n{SERVER}"], "ready": {"http": "/health"},
        "drain": "2s", "retry": {"max": 0}, "checkpoint": {"grace": "1s"}, **fields,
    }  # fmt: skip
    file.write_text(json.dumps(given))
    done = federation.run("service", "apply", "-f", str(file), *options)
    assert not done.returncode, done.stderr


def shown(federation: Federation, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(federation.run("service", "show", name, "-o", "json").stdout)
    return found


class Load:
    """Some who ask again and again, each once it is answered."""

    def __init__(self, gateway: Gateway, name: str, people: int) -> None:
        self.answers: Counter[int | str] = Counter()
        self.words: Counter[str] = Counter()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(gateway, name)) for _ in range(people)]

    def _ask(self, gateway: Gateway, name: str) -> None:
        status: int | str
        while not self._over.is_set():
            try:
                status, said = gateway.ask(name)
            except OSError as error:
                status, said = repr(error), ""
            self.answers[status] += 1
            self.words[said] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_more_load_brings_more_replicas_and_nothing_is_lost_with_one(
    gateway: Gateway, federation: Federation
) -> None:
    target = {"requests_per_replica": 2, "p95_latency": "5s", "down_after": "3s"}
    with service(federation, "busy", replicas={"min": 1, "max": 3}, target=target):
        gateway.until_found("busy")
        with Load(gateway, "busy", 6) as load:
            wait_until(lambda: shown(federation, "busy")["service"]["ready"] >= 2, "more replicas")
            wait_until(lambda: len(load.words) >= 2, "another replica to answer")
            (one, *_) = (each for each in shown(federation, "busy")["replicas"] if each["health"] == "ready")
            federation.run("exec", one["job"], "--", "python3", "-c", KILL)
            before = sum(load.answers.values())
            wait_until(lambda: sum(load.answers.values()) > before + 100, "more answers")
        assert set(load.answers) == {200}, load.answers
        row = shown(federation, "busy")["service"]
        assert row["attained"] > 0.9
        assert row["p95_s"] is None or row["p95_s"] > 0.05
        wait_until(lambda: len(shown(federation, "busy")["replicas"]) == 1, "fewer replicas")
        table = federation.run("service", "list").stdout
        assert "busy" in table


def test_a_request_waits_for_the_first_replica_and_a_new_gateway_takes_over(
    gateway: Gateway, federation: Federation
) -> None:
    with service(federation, "lazy", replicas={"min": 0, "max": 1}):
        assert not shown(federation, "lazy")["replicas"]
        gateway.until_found("lazy")
        assert gateway.ask("lazy")[0] == 200
        proxy = (gateway.folder / "haproxy.pid").read_text()
        gateway.kill()
        wait_until(lambda: gateway.retry_after("lazy") == "5", "a 503 that says when to ask again")
        gateway.process = gateway.start()
        wait_until(lambda: gateway.ask("lazy")[0] == 200, "answers again")
        assert (gateway.folder / "haproxy.pid").read_text() == proxy


def test_a_changed_file_takes_over_without_a_gap_and_a_canary_gets_its_part(
    gateway: Gateway, federation: Federation
) -> None:
    with service(federation, "changing", replicas=1):
        gateway.until_found("changing")
        with Load(gateway, "changing", 2) as load:
            apply(federation, "changing", "two", "--canary", "50", replicas=1)
            wait_until(lambda: any(word.startswith("two") for word in load.words), "the canary")
            federation.run("service", "promote", "changing")
            wait_until(lambda: len(shown(federation, "changing")["replicas"]) == 1, "the former to go")
        assert set(load.answers) == {200}, load.answers
        assert gateway.ask("changing")[1].startswith("two")
        assert shown(federation, "changing")["service"]["revision"] == 2


def test_a_canary_with_errors_is_rolled_back_and_asked_no_more(
    gateway: Gateway, federation: Federation
) -> None:
    with service(federation, "tried", replicas=1):
        gateway.until_found("tried")
        with Load(gateway, "tried", 2) as load:
            wait_until(lambda: load.answers[200], "answers")
            apply(federation, "tried", "bad", "--canary", "50", replicas=1)
            wait_until(lambda: shown(federation, "tried")["fault"], "the canary to be rolled back")
            wait_until(lambda: len(shown(federation, "tried")["replicas"]) == 1, "it to go")
        assert 500 in load.answers
        assert "answers were errors" in shown(federation, "tried")["fault"]
        assert {gateway.ask("tried")[0] for _ in range(5)} == {200}


def test_two_gateways_serve_one_service_and_one_of_them_may_end(
    gateway: Gateway, federation: Federation
) -> None:
    target = {"requests_per_replica": 4, "down_after": "1h"}
    with (
        service(federation, "both", replicas={"min": 1, "max": 2}, target=target),
        tempfile.TemporaryDirectory(prefix="gw", dir="/tmp") as folder,
    ):
        other = Gateway(federation, Path(folder), "18200-18299")
        try:
            for each in (gateway, other):
                each.until_found("both")
            with Load(gateway, "both", 3) as one, Load(other, "both", 3) as two:
                wait_until(lambda: shown(federation, "both")["service"]["wanted"] == 2, "both loads to count")
            assert set(one.answers) == set(two.answers) == {200}
        finally:
            other.end()
        assert gateway.ask("both")[0] == 200
