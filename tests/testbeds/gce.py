"""Compute Engine for tests: the few calls of its API that Federator makes, as its public description has them, and as strict.

It refuses unknown fields, names, labels and zones, and calls without a token that its own sign-in has given. What it does it does later: a launch and an end are
operations, which are done when somebody waits for them or when a test says so, and may fail then. It knows request ids, quotas, sold-out zones, lost replies, listings that are
late, zones that do not answer, and spot machines that are taken back. Its times are those of the test's clock, so that bills are exact.
"""

import json
import re
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from federator.kernel.clock import Clock

PROJECT, REGION = "test-project", "us-central1"
ZONES = tuple(f"{REGION}-{letter}" for letter in "abc")
IMAGE = f"projects/{PROJECT}/global/images/family/federator"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
GPUS = {"g2-standard-4": ("L4", 1), "a2-highgpu-1g": ("A100", 1), "n1-standard-8": ("T4", 0)}
FIELDS = {
    "": {
        "name", "description", "labels", "machineType", "disks", "networkInterfaces", "scheduling", "metadata",
        "guestAccelerators", "tags", "serviceAccounts",
    },
    "disks": {"boot", "autoDelete", "initializeParams"},
    "initializeParams": {"sourceImage", "diskSizeGb", "diskType"},
    "networkInterfaces": {"network", "subnetwork", "accessConfigs"},
    "accessConfigs": {"type", "name"},
    "scheduling": {"onHostMaintenance", "automaticRestart", "provisioningModel", "instanceTerminationAction"},
    "metadata": {"items"},
    "items": {"key", "value"},
    "guestAccelerators": {"acceleratorType", "acceleratorCount"},
    "tags": {"items"},
    "serviceAccounts": {"email", "scopes"},
}  # fmt: skip
OPEN = {"labels"}
"""Mappings whose keys are the caller's."""
Body = dict[str, Any]


class GceServer:
    """One project. Set the switches at any time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[tuple[str, str, Body]] = []
        """Method, path below the project, and body with the query's parameters."""
        self.machines: dict[tuple[str, str], Body] = {}
        self.operations: dict[str, Body] = {}
        self.quotas: list[Body] = []
        self.sold_out: set[str] = set()
        """Zones whose launches fail late."""
        self.no_spot = False
        """Whether those of spot machines do everywhere."""
        self.refuses: dict[str, tuple[int, str]] = {}
        """What calls answer, by the first part of their path."""
        self.lost = 0
        """How many of the next launches take effect without an answer."""
        self.hides_new = False
        self.slow = False
        """Whether operations go on when somebody has waited for them."""
        self.unreachable = ""
        self._asked: dict[str, str] = {}
        self.tokens: set[str] = set()
        """All that were given, and have not run out."""

    async def start(self, folder: Path) -> None:
        """Listen on a free port; `credentials` is a key file that signs in here."""
        application = web.Application()
        application.router.add_post("/token", self._token)
        application.router.add_route("*", f"/compute/v1/projects/{PROJECT}/{{path:.*}}", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        pem = KEY.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.credentials = folder / "key.json"
        self.credentials.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": PROJECT,
                    "private_key_id": "1",
                    "private_key": pem.decode(),
                    "client_email": f"federator@{PROJECT}.iam.gserviceaccount.com",
                    "token_uri": f"{self.url}/token",
                }
            )
        )

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def count(self, method: str, part: str) -> int:
        """How many calls there were with that in their path."""
        return sum(call[0] == method and part in call[1] for call in self.calls)

    def living(self) -> list[tuple[str, str]]:
        """Zone and name of each machine that costs."""
        return [key for key, machine in self.machines.items() if machine["status"] != "TERMINATED"]

    def forget_tokens(self) -> None:
        """All that were given have run out."""
        self.tokens.clear()

    def preempt(self, zone: str, name: str) -> None:
        """A spot machine is about to be taken back."""
        self.machines[zone, name]["status"] = "STOPPING"

    def take_back(self, zone: str, name: str) -> None:
        """It is gone."""
        machine = self.machines.pop((zone, name))
        operation = self._operation(zone, "compute.instances.preempted", machine)
        operation |= {"status": "DONE", "endTime": self.now()}

    def power_off(self, zone: str, name: str) -> None:
        """Somebody has shut it down from within."""
        self.machines[zone, name] |= {"status": "TERMINATED", "lastStopTimestamp": self.now()}

    def now(self) -> str:
        """As Google writes it: local time of its head office, to the millisecond."""
        at = datetime.fromtimestamp(self.clock.now(), UTC).astimezone(timezone(timedelta(hours=-8)))
        return at.isoformat(timespec="milliseconds")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" or not form.get(
            "assertion"
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        token = f"token-{len(self.tokens)}-{uuid.uuid4()}"
        self.tokens.add(token)
        return web.json_response({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    async def _answer(self, request: web.Request) -> web.StreamResponse:  # noqa: C901, PLR0911 - a table of calls
        path, text = request.match_info["path"], await request.text()
        body: Body = json.loads(text) if text else {}
        self.calls.append((request.method, path, body | {"?": dict(request.query)}))
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _refused(401, "authError", "Invalid Credentials")
        if refusal := self.refuses.get(path.partition("/")[0]):
            return _refused(*refusal)
        match [request.method, *path.split("/")]:
            case ["GET", "regions", str(region)] if region == REGION:
                return web.json_response({"name": REGION, "quotas": self.quotas})
            case ["GET", "aggregated", "instances"]:
                return self._list(request)
            case [_, "zones", str(zone), *_] if zone not in ZONES:
                return _refused(404, "notFound", f"The resource '{zone}' was not found")
            case ["POST", "zones", str(zone), "instances"]:
                return self._insert(request, zone, body)
            case ["GET", "zones", str(zone), "instances", str(name)] if (zone, name) in self.machines:
                return web.json_response(self._settled(self.machines[zone, name]))
            case ["DELETE", "zones", str(zone), "instances", str(name)] if (zone, name) in self.machines:
                return web.json_response(self._delete(zone, name))
            case ["GET", "zones", str(zone), "operations"]:
                key, _, value = request.query["filter"].partition("=")
                found = [each for each in self.operations.values() if str(each[key]) == value]
                return web.json_response({"items": found} if found else {})
            case ["GET", "zones", _, "operations", str(name)] if name in self.operations:
                return web.json_response(self.operations[name])
            case ["POST", "zones", _, "operations", str(name), "wait"] if name in self.operations:
                return web.json_response(self.operations[name] if self.slow else self.finish(name))
        return _refused(404, "notFound", f"The resource '{path}' was not found")

    def _list(self, request: web.Request) -> web.Response:
        """A zone without machines says so. Deletions that are under way are done by the time of the next listing."""
        label = re.fullmatch(r"labels\.([a-z-]+):\*", request.query["filter"])
        assert label, "the only filter that is known here"
        assert 0 < int(request.query["maxResults"]) <= 500
        scopes: dict[str, Body] = {
            f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE"}} for zone in ZONES
        }
        if self.unreachable:
            scopes[f"zones/{self.unreachable}"] = {"warning": {"code": "UNREACHABLE"}}
        for (zone, _), machine in self.machines.items():
            if label[1] in machine["labels"] and not self.hides_new and zone != self.unreachable:
                scope = scopes[f"zones/{zone}"]
                scope.pop("warning", None)
                shown = {key: value for key, value in self._settled(machine).items() if key != "metadata"}
                scope.setdefault("instances", []).append(shown)
        if not self.slow:
            for name, operation in list(self.operations.items()):
                if operation["operationType"] == "delete":
                    self.finish(name)
        return web.json_response({"items": scopes})

    def _settled(self, machine: Body) -> Body:
        """After two minutes a machine has booted."""
        booted = datetime.fromisoformat(machine["creationTimestamp"]).timestamp() + 120 <= self.clock.now()
        if booted and machine["status"] in ("PROVISIONING", "STAGING"):
            machine["status"] = "RUNNING"
        return machine

    def _insert(self, request: web.Request, zone: str, body: Body) -> web.StreamResponse:
        request_id = request.query.get("requestId", "")
        assert str(uuid.UUID(request_id)) == request_id
        if request_id in self._asked:
            return web.json_response(self.operations[self._asked[request_id]])
        if (wrong := _wrong(body, zone)) is not None:
            return _refused(400, "invalid", wrong)
        if (zone, body["name"]) in self.machines:
            return _refused(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        machine = body | {
            "id": str(1000 + len(self.operations)),
            "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{zone}",
            "status": "PROVISIONING",
            "creationTimestamp": self.now(),
        }
        operation = self._operation(zone, "insert", machine)
        self._asked[request_id] = operation["name"]
        self.machines[zone, body["name"]] = machine
        if self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response(operation)

    def _delete(self, zone: str, name: str) -> Body:
        machine = self.machines[zone, name]
        if machine["status"] != "TERMINATED":
            machine["status"] = "STOPPING"
        return self._operation(zone, "delete", machine)

    def _operation(self, zone: str, kind: str, machine: Body) -> Body:
        made = {
            "name": f"operation-{len(self.operations)}",
            "operationType": kind,
            "status": "RUNNING",
            "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{zone}",
            "targetId": machine["id"],
            "insertTime": self.now(),
            "target": machine["name"],
        }
        self.operations[made["name"]] = made
        return made

    def finish(self, name: str) -> Body:
        """Let an operation come to its end: a launch in a zone that is sold out, or beyond a quota, fails only now."""
        operation = self.operations[name]
        if operation["status"] == "DONE":
            return operation
        operation |= {"status": "DONE", "endTime": self.now()}
        key = operation["zone"].rpartition("/")[2], operation["target"]
        if operation["operationType"] == "delete":
            self.machines.pop(key, None)
        elif code := self._failure(key):
            operation["error"] = {"errors": [{"code": code, "message": "That cannot be had."}]}
            self.machines.pop(key, None)
        elif key in self.machines:
            self.machines[key]["status"] = "STAGING"
        return operation

    def _failure(self, key: tuple[str, str]) -> str:
        scheduling = self.machines.get(key, {}).get("scheduling", {})
        gone = self.no_spot and scheduling.get("provisioningModel") == "SPOT"
        if gone or key[0] in self.sold_out:
            return "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
        taken, given = Counter[str](), {each["metric"] for each in self.quotas if each["limit"]}
        for machine in self.machines.values():
            spot = machine["scheduling"].get("provisioningModel") == "SPOT"
            model, gpus = GPUS[machine["machineType"].rpartition("/")[2]]
            gpus = gpus or machine["guestAccelerators"][0]["acceleratorCount"]
            own = f"PREEMPTIBLE_NVIDIA_{model}_GPUS"
            taken[own if spot and own in given else f"NVIDIA_{model}_GPUS"] += gpus
        full = any(taken[each["metric"]] + each["usage"] > each["limit"] for each in self.quotas)
        return "QUOTA_EXCEEDED" if full else ""


def _wrong(body: Body, zone: str) -> str | None:
    """What the API would say against a body."""
    if unknown := _unknown(body, ""):
        return f'Invalid JSON payload received. Unknown name "{unknown}": Cannot find field.'
    kind, scheduling = body["machineType"].rpartition("/")[2], body["scheduling"]
    disk = body["disks"][0]["initializeParams"]
    if kind not in GPUS or (kind == "a2-highgpu-1g" and zone.endswith("-c")):
        return f"Machine type with name '{kind}' does not exist in zone '{zone}'."
    right = {
        "name": re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", body["name"]),
        "labels": all(
            re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) and re.fullmatch(r"[a-z0-9_-]{0,63}", value)
            for key, value in body["labels"].items()
        ),
        "machineType": body["machineType"].startswith(f"zones/{zone}/machineTypes/"),
        "guestAccelerators": kind.startswith("n1-") == ("guestAccelerators" in body),
        "scheduling": scheduling["onHostMaintenance"] == "TERMINATE"
        and ("instanceTerminationAction" in scheduling) == (scheduling.get("provisioningModel") == "SPOT"),
        "disks[0]": isinstance(disk["diskSizeGb"], str)
        and disk["diskType"].startswith(f"zones/{zone}/diskTypes/"),
    }
    return next(
        (f"Invalid value for field 'resource.{field}'" for field, good in right.items() if not good), None
    )


def _unknown(value: Any, where: str) -> str:
    """The first field that the API does not know."""
    if isinstance(value, list):
        return next((found for each in value if (found := _unknown(each, where))), "")
    if not isinstance(value, dict) or where in OPEN:
        return ""
    if strange := value.keys() - FIELDS[where]:
        return str(min(strange))
    return next((found for key, each in value.items() if (found := _unknown(each, key))), "")


def _refused(status: int, reason: str, message: str = "no") -> web.Response:
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    return web.json_response({"error": error}, status=status)
