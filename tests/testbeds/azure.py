"""Azure Resource Manager for tests: the few calls that Federator makes, as its public description has them, and as strict.

It refuses unknown fields, and calls without a token that its own sign-in has given. A launch is an operation that may fail late, and leaves a failed record of that name then; a
deletion is done by the time of the next look. It knows quotas, zones without room, lost replies, listings that are late, and spot machines that are evicted. Its
times are those of the test's clock, so that bills are exact.
"""

import base64
import json
import uuid
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from federator.kernel.clock import Clock

SUBSCRIPTION, GROUP, REGION = "00000000-1111-2222-3333-444444444444", "burst", "eastus"
IMAGE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/images/providers/Microsoft.Compute/images/federator"
SUBNET = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/burst"
TENANT, CLIENT, SECRET = "tenant-1", "client-1", "hush-hush-client-secret"
MACHINES = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines"
FIELDS = {
    "": {"location", "tags", "properties", "zones"},
    "properties": {
        "hardwareProfile", "storageProfile", "osProfile", "networkProfile", "priority", "evictionPolicy", "billingProfile",
        "primary", "deleteOption", "ipConfigurations", "subnet",
    },
    "hardwareProfile": {"vmSize"},
    "storageProfile": {"imageReference", "osDisk"},
    "imageReference": {"id"},
    "osDisk": {"createOption", "deleteOption", "diskSizeGB", "managedDisk"},
    "managedDisk": {"storageAccountType"},
    "osProfile": {"computerName", "adminUsername", "customData", "linuxConfiguration"},
    "linuxConfiguration": {"disablePasswordAuthentication", "ssh"},
    "ssh": {"publicKeys"},
    "publicKeys": {"path", "keyData"},
    "networkProfile": {"networkApiVersion", "networkInterfaceConfigurations"},
    "networkInterfaceConfigurations": {"name", "properties"},
    "ipConfigurations": {"name", "properties"},
    "subnet": {"id"},
    "billingProfile": {"maxPrice"},
}  # fmt: skip
Body = dict[str, Any]


class AzureServer:
    """One resource group. Set the switches at any time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[tuple[str, str, Body]] = []
        """Method, name of the machine, and body."""
        self.machines: dict[str, Body] = {}
        self.tokens: set[str] = set()
        self.signed_in: list[str] = []
        """How: `secret` or `identity`."""
        self.sold_out: set[str] = set()
        """Zones whose launches fail late."""
        self.no_spot = False
        """Whether those of spot machines do everywhere."""
        self.refuses: tuple[int, str, str] | None = None
        """What each call answers: status, code and message;"""
        self.refuses_launches: tuple[int, str, str] | None = None
        """what launches do;"""
        self.refuses_machines: tuple[int, str, str] | None = None
        """and what calls about a machine do."""
        self.errors: list[object] = []
        """What the next calls answer as their error, of whatever shape."""
        self.lost = 0
        """How many of the next launches take effect without an answer."""
        self.hides_new = False
        self.circles = False
        """Whether a listing's link leads back to its first page."""
        self.forgets_operations = False
        self.page_size = 100
        self._operations: dict[str, Body] = {}

    async def start(self) -> None:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_post(f"/{TENANT}/oauth2/v2.0/token", self._by_secret)
        application.router.add_get("/metadata/identity/oauth2/token", self._by_identity)
        application.router.add_get("/operations/{name}", self._operation)
        application.router.add_get(MACHINES, self._list)
        application.router.add_route("*", MACHINES + "/{name}", self._machine)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """With which a client signs in by a secret."""
        return {
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": SECRET,
            "AZURE_AUTHORITY_HOST": self.url,
        }

    def living(self) -> list[str]:
        """Names of the machines that cost."""
        return [name for name, each in self.machines.items() if _state(each) in ("Creating", "Succeeded")]

    def launches(self) -> list[Body]:
        """The bodies of all launches."""
        return [body for method, _, body in self.calls if method == "PUT"]

    def scripts(self) -> list[bytes]:
        """What each machine that was asked for runs at its first boot."""
        return [base64.b64decode(body["properties"]["osProfile"]["customData"]) for body in self.launches()]

    def evict(self, name: str) -> None:
        """A spot machine is taken back: it is gone."""
        del self.machines[name]

    async def _by_secret(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        right = {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "scope": "https://management.azure.com/.default",
        }
        if form != right:
            return web.json_response({"error": "invalid_client"}, status=401)
        return self._token("secret")

    async def _by_identity(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true" or "resource" not in request.query:
            return web.json_response({"error": "invalid_request"}, status=400)
        return self._token("identity")

    def _token(self, how: str) -> web.Response:
        token = f"token-{uuid.uuid4()}"
        self.tokens.add(token)
        self.signed_in.append(how)
        lives = 3600 if how == "secret" else "3600"  # the metadata service writes it as text
        return web.json_response({"access_token": token, "expires_in": lives, "token_type": "Bearer"})

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _refused(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if "api-version" not in request.query:
            return _refused(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        if self.errors:
            return web.json_response({"error": self.errors.pop()}, status=400)
        return _refused(*self.refuses) if self.refuses else None

    async def _list(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        for name, machine in list(self.machines.items()):
            if _state(self._settled(machine)) == "Deleting":
                del self.machines[name]
        names = [] if self.hides_new else sorted(self.machines)
        begin = int(request.query.get("$skiptoken", "0"))
        page = names[begin : begin + self.page_size]
        answer: Body = {"value": [_shown(self.machines[name]) for name in page]}
        if begin + self.page_size < len(names):
            rest = f"api-version={request.query['api-version']}&$skiptoken={begin + self.page_size}"
            answer["nextLink"] = f"{self.url}{MACHINES}?{rest}"
        if self.circles:
            answer["nextLink"] = f"{self.url}{MACHINES}?api-version={request.query['api-version']}"
        return web.json_response(answer)

    async def _machine(self, request: web.Request) -> web.StreamResponse:
        name, text = request.match_info["name"], await request.text()
        body: Body = json.loads(text) if text else {}
        self.calls.append((request.method, name, body))
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if self.refuses_machines:
            return _refused(*self.refuses_machines)
        if request.method == "PUT":
            return self._create(request, name, body)
        machine = self.machines.get(name)
        if machine is None:
            missing = web.Response(status=204)
            return missing if request.method == "DELETE" else _refused(404, "ResourceNotFound", f"'{name}'")
        if request.method == "DELETE":
            machine["properties"]["provisioningState"] = "Deleting"
            return web.Response(status=202)
        if _state(machine) == "Deleting":
            del self.machines[name]
        return web.json_response(self._settled(machine))

    def _create(self, request: web.Request, name: str, body: Body) -> web.StreamResponse:
        assert request.headers.get("If-None-Match") == "*", "what is there is not to be changed"
        if self.refuses_launches:
            return _refused(*self.refuses_launches)
        if name in self.machines:
            return _refused(412, "PreconditionFailed", "The condition is not met.")
        if wrong := _wrong(body, ""):
            return _refused(400, "InvalidParameter", f"Could not find member '{wrong}'.")
        spot = body["properties"].get("priority") == "Spot"
        if (body["properties"].get("evictionPolicy") == "Delete") != spot:
            return _refused(400, "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines", "no")
        properties = body["properties"] | {"provisioningState": "Creating", "timeCreated": self._now()}
        self.machines[name] = body | {"name": name, "properties": properties}
        operation = f"operation-{len(self._operations)}"
        self._operations[operation] = self.machines[name]
        if self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.close()
        headers = {"Azure-AsyncOperation": f"{self.url}/operations/{operation}?api-version=2024-07-01"}
        return web.json_response(_shown(self.machines[name]), status=201, headers=headers)

    async def _operation(self, request: web.Request) -> web.Response:
        """Whoever looks finds room, or none."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if self.forgets_operations:
            return _refused(404, "ResourceNotFound", "no such operation")
        machine = self._operations[request.match_info["name"]]
        zone = (machine.get("zones") or [""])[0]
        gone = self.no_spot and machine["properties"].get("priority") == "Spot"
        if zone not in self.sold_out and not gone:
            return web.json_response({"status": "Succeeded"})
        machine["properties"]["provisioningState"] = "Failed"
        error = {"code": "ZonalAllocationFailed", "message": "Allocation failed."}
        return web.json_response({"status": "Failed", "error": error})

    def _settled(self, machine: Body) -> Body:
        """After two minutes a machine has booted."""
        booted = datetime.fromisoformat(machine["properties"]["timeCreated"]).timestamp() + 120
        if _state(machine) == "Creating" and booted <= self.clock.now():
            machine["properties"]["provisioningState"] = "Succeeded"
        return _shown(machine)

    def _now(self) -> str:
        """As Azure writes it: seven digits after the point."""
        at = datetime.fromtimestamp(self.clock.now(), UTC)
        return f"{at:%Y-%m-%dT%H:%M:%S.%f}0+00:00"


def _state(machine: Body) -> str:
    return str(machine["properties"]["provisioningState"])


def _shown(machine: Body) -> Body:
    """What answers have of it: never the user data."""
    properties = {key: value for key, value in machine["properties"].items() if key != "osProfile"}
    return machine | {"properties": properties}


def _wrong(value: Any, where: str) -> str:
    """The first field that the API does not know."""
    if isinstance(value, list):
        return next((found for each in value if (found := _wrong(each, where))), "")
    if not isinstance(value, dict) or where == "tags":
        return ""
    if strange := value.keys() - FIELDS[where]:
        return str(min(strange))
    return next((found for key, each in value.items() if (found := _wrong(each, key))), "")


def _refused(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)
