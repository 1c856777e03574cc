"""What reads from outside, beside documents that people write: archives, tables, notes that are damaged, queries, and what other programs answer.

Each reader takes bytes, as they are made of an entry of its corpus. It raises a named error, or what the one who calls it expects and handles.
"""

import base64
import contextlib
import csv
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from aiohttp import ClientResponse
from aiohttp.web import Request
from multidict import CIMultiDict, MultiDict

from federator import oidc
from federator.api.exchange import read_query
from federator.api.routes import ROUTES
from federator.client import workdir
from federator.kernel.errors import FederatorError
from federator.kube.api import decoded
from federator.kube.objects import Node, Pod
from federator.simulation.traces import read_trace
from federator.wire import link
from federator.wire.decoding import decode
from federator.wire.jsontext import decode_json, read
from federator.wire.solver_files import read_plan, read_problem
from federator_agent import archives, home, ownership
from federator_agent.data.sources import ANY_PUBLIC
from federator_agent.data.web import WebSource, _length, _tag
from federator_agent.keys import STEPS, Keys
from federator_agent.kube import outputs, pod_status
from federator_agent.kube.capacity import NodesAndPods
from federator_agent.kube.settings import KubeSettings
from federator_agent.spool import Spool
from federator_providers.aws.prices import _usd_h

Reads = Callable[[bytes], object]


def _in_folder(use: Callable[[bytes, Path], object]) -> Reads:
    def reads(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            use(data, Path(folder))

    return reads


def _unpacked(data: bytes, folder: Path) -> None:
    """By the agent, by the client, and as what a pod has packed. Each says what it finds; the first is told."""
    (folder / "x").write_bytes(data)
    refused: list[FederatorError] = []

    def of_pod() -> None:
        outputs.check(folder / "x")
        outputs.merge([folder / "x"], folder / "merged")

    for unpack in (
        lambda: archives.unpack(folder / "x", folder / "agent"),
        lambda: workdir.unpack(io.BytesIO(data), folder / "client"),
        of_pod,
    ):
        try:
            unpack()
        except FederatorError as error:
            refused.append(error)
        except OSError as error:
            if error.errno is None:  # else it is the system's word on a name that is too long
                raise
    if refused:
        raise refused[0]


def _trace(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    read_trace(folder / "x.csv")


def _notes(data: bytes, folder: Path) -> None:
    """Each file of the agent's, damaged on its own."""
    spool = Spool(folder)
    for name in ("identity.json", "home", ownership.FILE, STEPS):
        (folder / name).write_bytes(data)
    (folder / "journal").write_bytes(data + b"\n")
    for look in (
        spool.identity,
        spool.read,
        lambda: home.settle(folder),
        lambda: ownership.mark_of(folder, "lab"),
        lambda: Keys(folder).request("lab-1"),
    ):
        try:
            look()
        except FederatorError:
            continue


def _queries(data: bytes) -> None:
    """Of all routes, so that a new one is tried by itself."""
    value = json.loads(data)
    pairs = [(str(key), str(each)) for key, each in value.items()] if isinstance(value, dict) else []
    for route in ROUTES:
        known = {field.encode_name for field in msgspec.structs.fields(route.query)} if route.query else set()
        for query in (pairs, [(key, each) for key, each in pairs if key in known]):
            try:
                read_query(cast("Request", SimpleNamespace(query=MultiDict(query))), route.query)
            except FederatorError:
                continue


def _pod(data: bytes) -> None:
    pod = decoded(data, Pod)
    pod_status.end_of(pod, 1e9)
    pod_status.trouble_of(pod)
    pod_status.unscheduled(pod)
    NodesAndPods(KubeSettings(image="x"), "lab").use(pod)


def _node(data: bytes) -> None:
    node = decoded(data, Node)
    cluster = NodesAndPods(KubeSettings(image="x"), "lab")
    cluster.device_sets(node)
    cluster.machine(node)


def _provider_of_identity(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError):
        read(data, oidc.Discovery)
    with contextlib.suppress(msgspec.DecodeError):
        oidc.usable(read(data, dict[str, Any]))
    for header in (data.decode(), base64.urlsafe_b64encode(data).decode()):
        try:
            oidc.header_of(header)
        except FederatorError:
            continue


def _web_answer(data: bytes) -> None:
    value = json.loads(data)
    headers = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
    for status in (200, 206, 416):
        answer = SimpleNamespace(status=status, headers=CIMultiDict(headers), content_length=None)
        size = _length(cast("ClientResponse", answer))
        with contextlib.suppress(FederatorError):
            WebSource(ANY_PUBLIC).next_address("http://x/y", "http://x/y", headers.get("Location", ""))
        msgspec.json.encode([size, _tag(cast("ClientResponse", answer))])


def _prices(data: bytes) -> None:
    _usd_h([data.decode()])


OUTSIDE: dict[str, Reads] = {
    "problem": read_problem,
    "plan": read_plan,
    "trace.csv": _in_folder(_trace),
    "archive.tar": _in_folder(_unpacked),
    "notes": _in_folder(_notes),
    "queries": _queries,
    "key": lambda data: decode(decode_json(data), link.KeyRequest, "$"),
    "pod": _pod,
    "node": _node,
    "provider": _provider_of_identity,
    "web": _web_answer,
    "prices": _prices,
}


def table(value: object) -> bytes:
    """Rows as CSV, whatever they are."""
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, [str(key) for key in rows[0]], extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow({str(key): str(each) for key, each in row.items()})
    return out.getvalue().encode()


def archive(value: object) -> bytes:
    """A gzipped tar of members as they are described; the last of them may say at which byte the whole is cut or changed."""
    out = io.BytesIO()
    members = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for each in members:
            info = tarfile.TarInfo(str(each.get("name", "x")))
            content = str(each.get("content", "")).encode("utf-8", "replace")
            kind = each.get("type")
            info.type = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE}.get(str(kind), tarfile.REGTYPE)  # fmt: skip
            info.linkname = str(each.get("linkname", ""))
            info.size = len(content) if info.isreg() else 0
            extra = each.get("headers")
            info.pax_headers = {str(k): str(v) for k, v in extra.items()} if isinstance(extra, dict) else {}
            tar.addfile(info, io.BytesIO(content))
    data = out.getvalue()
    at = members[-1].get("damaged_at") if members else None
    if isinstance(at, int) and at:
        at %= len(data)
        data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    return data
