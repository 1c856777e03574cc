"""What the API's own description allows, and what it forbids, thrown at a real dispatcher: no fault of ours, nothing undocumented, nobody in
without a token.

Cases are made by schemathesis from `/v1/openapi.json`, from a fixed seed, so that a failure is the same failure tomorrow. Streams are asked for
without following, and the two routes that never end are left to the tests of streams and agents.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from federator.api.openapi import description
from federator.api.problems import CONTENT_TYPE as PROBLEM
from federator.api.routes import ROUTES
from tests.support.waiting import PATIENCE_S, wait_until

ENDLESS = {("GET", "/v1/events"), ("GET", "/v1/changes"), ("GET", "/agent/v1/link")}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    unsupported_method,
]
DOCUMENT = msgspec.json.decode(msgspec.json.encode(description(ROUTES)))
OPERATIONS = {
    f"{result.ok().method.upper()} {result.ok().path}": result.ok()
    for result in schemathesis.openapi.from_dict(deepcopy(DOCUMENT)).get_all_operations()
    if isinstance(result, Ok) and (result.ok().method.upper(), result.ok().path) not in ENDLESS
}


def _takes_something(name: str) -> bool:
    method, path = name.split()
    operation = DOCUMENT["paths"][path][method.lower()]
    return bool(operation["parameters"] or "requestBody" in operation)


THROWS = [(name, GenerationMode.POSITIVE) for name in OPERATIONS] + [
    (name, GenerationMode.NEGATIVE) for name in OPERATIONS if _takes_something(name)
]


class Server(NamedTuple):
    """A running dispatcher, its admin's token, and a job of its."""

    url: str
    headers: dict[str, str]
    job: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("dispatcher")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "federator", "serve", "--port", "0", "--state-dir", str(folder)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as process,
    ):
        try:
            token, url = _written(folder / "admin.token"), _written(folder / "address")
            headers = {"Authorization": f"Bearer {token}"}
            answer = requests.post(
                f"{url}/v1/jobs", json={"run": "true"}, headers=headers, timeout=PATIENCE_S
            )
            yield Server(url, headers, answer.json()["jobs"][0])
            assert process.poll() is None, "it must outlive whatever it was sent"
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (folder / "log").read_text()


def _written(path: Path) -> str:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), path.name)
    return path.read_text().strip()


def test_every_route_is_thrown_at() -> None:
    assert set(OPERATIONS) == {
        f"{route.method} {route.path}" for route in ROUTES if (route.method, route.path) not in ENDLESS
    }


def test_the_server_describes_itself_as_the_code_does(server: Server) -> None:
    assert requests.get(f"{server.url}/v1/openapi.json", timeout=PATIENCE_S).json() == DOCUMENT


@pytest.mark.parametrize(
    ("name", "mode"), THROWS, ids=[f"{name} {mode.name.lower()}" for name, mode in THROWS]
)
def test_every_operation_answers_as_described(server: Server, name: str, mode: GenerationMode) -> None:
    operation = OPERATIONS[name]
    cases = operation.as_strategy(generation_mode=mode)
    checks = [*CHECKS, *([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])]

    @seed(20261121)
    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, known=st.booleans())
    def throw(case: Any, known: bool) -> None:
        _tame(case, server, known=known)
        answer = case.call(base_url=server.url, headers=server.headers, timeout=PATIENCE_S)
        case.validate_response(answer, checks=checks, headers=server.headers)
        if answer.status_code >= HTTPStatus.BAD_REQUEST and case.method != "HEAD":
            assert answer.headers["content-type"][0].startswith(PROBLEM)
            problem = answer.json()
            assert problem["status"] == answer.status_code
            assert problem["detail"]

    throw()


def _tame(case: Any, server: Server, *, known: bool) -> None:
    """Ask about a job that there is, half of the time; do not follow streams; do not revoke the token that asks."""
    if known and "id" in (case.path_parameters or {}) and "/jobs/" in case.path:
        case.path_parameters["id"] = server.job
    if case.path.endswith(("/events", "/logs")):
        case.query = {**(case.query or {}), "follow": "false"}
    if case.path == "/v1/tokens/{name}" and case.path_parameters.get("name") == "admin":
        case.path_parameters["name"] = "nobody"
