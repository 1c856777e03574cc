"""EC2 for tests: moto's server in a process of its own, a proxy before it that adds what moto lacks, and the service that machines ask about themselves.

The proxy knows client tokens, zones that are sold out, throttling, replies that get lost after the request took effect, machines that are not listed
yet, spot prices, AWS's price list, and spot machines that are taken back. It also turns moto's times into those of the test's clock, so that bills are exact.
"""

import asyncio
import atexit
import json
import subprocess
import sys
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import aiohttp
from aiohttp import web

from federator.kernel.clock import Clock
from tests.support.waiting import wait_until
from tests.testbeds.ports import free_ports

IMAGE = "ami-12c6146b"
"""One that moto brings along."""
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=proxy/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"
)
"""Moto looks for region and service there, and checks nothing."""
Form = dict[str, str]


class MetadataService:
    """What a machine of EC2 may ask about itself, behind tokens, and one of Compute Engine. `notice` is what the first is told of an interruption, once there is one."""

    def __init__(self) -> None:
        self.notice: dict[str, str] | None = None
        self.preempted, self.maintenance = "FALSE", "NONE"
        """What a machine of Compute Engine is told."""
        self.events: list[dict[str, object]] = []
        """What a machine of Azure is told."""
        self.asked = 0
        """How often there was a question with a good token."""
        self.refused = 0
        self._tokens: set[str] = set()

    async def start(self) -> None:
        """Listen on a free port; `url` says where."""
        application = web.Application()
        application.router.add_put("/latest/api/token", self._token)
        application.router.add_get("/latest/meta-data/spot/instance-action", self._action)
        application.router.add_get("/metadata/scheduledevents", self._by_azure)
        application.router.add_get("/computeMetadata/v1/instance/{what}", self._by_google)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def give_notice(self, at: float, action: str = "terminate") -> None:
        """The machine will be taken back then."""
        self.notice = {"action": action, "time": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"}

    def forget_tokens(self) -> None:
        """All that were given have run out."""
        self._tokens.clear()

    async def _token(self, request: web.Request) -> web.Response:
        lives_s = int(request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0"))
        if not 1 <= lives_s <= 21600:
            return web.Response(status=400)
        token = f"token-{len(self._tokens)}-{self.asked}"
        self._tokens.add(token)
        return web.Response(text=token)

    async def _by_azure(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true" or "api-version" not in request.query:
            return web.Response(status=400)
        self.asked += 1
        return web.json_response({"DocumentIncarnation": 1, "Events": self.events})

    async def _by_google(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        self.asked += 1
        said = {"preempted": self.preempted, "maintenance-event": self.maintenance}
        return web.Response(text=said[request.match_info["what"]])

    async def _action(self, request: web.Request) -> web.Response:
        if request.headers.get("X-aws-ec2-metadata-token") not in self._tokens:
            self.refused += 1
            return web.Response(status=401)
        self.asked += 1
        return web.Response(status=404) if self.notice is None else web.json_response(self.notice)


class MotoServer:
    """A process, one for all tests of a run: each test begins with `reset`."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self._process.kill)
        wait_until(self._answers, "moto's server")

    def _answers(self) -> bool:
        assert self._process.poll() is None, "moto's server has ended"
        try:
            self.reset()
        except OSError:  # not there yet, or not in time
            return False
        return True

    def reset(self) -> None:
        """Forget everything."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        urllib.request.urlopen(request, timeout=60).close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


class Ec2Proxy:
    """What boto3 talks to. Set the switches at any time."""

    def __init__(self, moto: str, clock: Clock) -> None:
        self._moto = moto
        self._clock = clock
        self.calls: list[Form] = []
        """Every request's parameters, in order."""
        self.sold_out: set[str] = set()
        """Zones that answer `InsufficientInstanceCapacity`."""
        self.no_spot = False
        """Whether each zone answers that to whoever asks for a spot machine."""
        self.refusals: dict[str, list[tuple[int, str]]] = {}
        """By action: status and code of the next answers, instead of the effect."""
        self.lost: Counter[str] = Counter()
        """By action: how many of the next replies are lost, after the effect."""
        self.unlisted: set[str] = set()
        """Ids of machines that `DescribeInstances` does not show yet."""
        self.hides_new = False
        """Whether machines launched from now on are unlisted."""
        self.spot_usd_h: dict[tuple[str, str], float] = {}
        """By type and zone."""
        self.on_demand_usd_h: dict[str, float] = {}
        """What the price list says, by type; it has no others."""
        self._launching = asyncio.Lock()
        self._notices: dict[str, float] = {}
        self._taken: set[str] = set()
        self._tokens: dict[str, tuple[Form, bytes]] = {}
        self._launched_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}

    async def start(self) -> None:
        """Listen on a free port; `url` says where."""
        self._session = aiohttp.ClientSession()
        application = web.Application()
        application.router.add_post("/", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    @property
    def addresses(self) -> dict[str, object]:
        """The settings by which a provider comes here."""
        return {"endpoint_url": self.url, "pricing_endpoint_url": self.url}

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()
        await self._session.close()

    def count(self, action: str) -> int:
        """How often this was asked."""
        return sum(call["Action"] == action for call in self.calls)

    async def machines(self) -> list[dict[str, str]]:
        """What moto itself has: id, zone and state of each machine."""
        _, body = await self._ask({"Action": "DescribeInstances"})
        return [
            {
                "id": _text(item, "instanceId"),
                "zone": _text(item, "placement/availabilityZone"),
                "state": _text(item, "instanceState/name"),
            }
            for item in _machines(_parsed(body))
        ]

    async def living(self) -> list[dict[str, str]]:
        """Those that cost money."""
        return [each for each in await self.machines() if each["state"] != "terminated"]

    async def id_of(self, name: str) -> str:
        """The machine that was launched under that name."""
        _, body = await self._ask({"Action": "DescribeInstances"})
        found = _machines(_parsed(body))
        (machine,) = [_text(item, "instanceId") for item in found if _name(item) == name]
        return machine

    def give_notice(self, machine: str) -> None:
        """The spot market is about to take it back."""
        self._notices.setdefault(machine, self._clock.now())

    async def take_back(self, machine: str) -> None:
        """It does."""
        self._taken.add(machine)
        self._ended_at.setdefault(machine, self._clock.now())
        await self._ask({"Action": "TerminateInstances", "InstanceId.1": machine})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "X-Amz-Target" in request.headers:
            return self._products(json.loads(await request.read()))
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        action = form["Action"]
        self.calls.append(form)
        if left := self.refusals.get(action):
            status, code = left.pop(0)
            return _refusal(code, status)
        status, body = await self._act(action, form)
        if self.lost[action] > 0 and status == 200:
            self.lost[action] -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status, body=body, content_type="text/xml")

    def _products(self, asked: dict[str, Any]) -> web.Response:
        """The price list, which has an API of its own kind."""
        filters = {each["Field"]: each["Value"] for each in asked["Filters"]}
        self.calls.append({"Action": "GetProducts", "ServiceCode": asked["ServiceCode"], **filters})
        if left := self.refusals.get("GetProducts"):
            status, code = left.pop(0)
            return web.json_response({"__type": code, "message": "so it is"}, status=status)
        usd_h = self.on_demand_usd_h.get(filters["instanceType"])
        entries = [] if usd_h is None else [json.dumps(_product(filters, usd_h))]
        return web.json_response({"FormatVersion": "aws_v1", "PriceList": entries})

    async def _act(self, action: str, form: Form) -> tuple[int, bytes]:
        if action == "DescribeSpotPriceHistory":
            return 200, self._price_history()
        if action == "DescribeSpotInstanceRequests":
            return 200, self._spot_requests()
        if action == "RunInstances":
            return await self._launch(form)
        if action == "TerminateInstances":
            for key, value in form.items():
                if key.startswith("InstanceId"):
                    self._ended_at.setdefault(value, self._clock.now())
        status, body = await self._ask(form)
        return status, self._stamped(body) if action == "DescribeInstances" else body

    async def _launch(self, form: Form) -> tuple[int, bytes]:
        token = form["ClientToken"]
        gone = self.no_spot and "InstanceMarketOptions.MarketType" in form
        if (gone or form["Placement.AvailabilityZone"] in self.sold_out) and token not in self._tokens:
            return 500, _error("InsufficientInstanceCapacity")
        async with self._launching:
            if token not in self._tokens:
                self._tokens[token] = form, (await self._ask(form))[1]
                for item in _machines(_parsed(self._tokens[token][1])):
                    self._launched_at[_text(item, "instanceId")] = self._clock.now()
                    if self.hides_new:
                        self.unlisted.add(_text(item, "instanceId"))
        before, body = self._tokens[token]
        if before != form:
            return 400, _error("IdempotentParameterMismatch")
        return 200, self._stamped(body, listing=False)

    async def _ask(self, form: Form) -> tuple[int, bytes]:
        headers = {"Authorization": AUTHORIZATION, "Content-Type": "application/x-www-form-urlencoded"}
        async with self._session.post(self._moto, data=urlencode(form), headers=headers) as answer:
            return answer.status, await answer.read()

    def _stamped(self, body: bytes, *, listing: bool = True) -> bytes:
        """With the clock's times, and what the market has done; less what is not listed yet."""
        root = _parsed(body)
        for parent in list(root.iter("instancesSet")):
            for item in list(parent):
                machine = _text(item, "instanceId")
                if listing and machine in self.unlisted:
                    parent.remove(item)
                    continue
                _set(item, "launchTime", _iso(self._launched_at[machine]))
                if machine in self._ended_at:
                    when = datetime.fromtimestamp(self._ended_at[machine], UTC).strftime("%Y-%m-%d %H:%M:%S")
                    _set(item, "reason", f"User initiated ({when} GMT)")
                if machine in self._taken:
                    _set(item, "stateReason/code", "Server.SpotInstanceTermination")
        return ET.tostring(root)

    def _price_history(self) -> bytes:
        now = _iso(self._clock.now())
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{usd_h}</spotPrice><timestamp>{now}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
            for (kind, zone), usd_h in self.spot_usd_h.items()
        )
        return f"<R><spotPriceHistorySet>{items}</spotPriceHistorySet></R>".encode()

    def _spot_requests(self) -> bytes:
        items = "".join(
            f"<item><instanceId>{machine}</instanceId><status><code>marked-for-termination</code>"
            f"<updateTime>{_iso(at)}</updateTime></status></item>"
            for machine, at in self._notices.items()
            if machine not in self._taken
        )
        return f"<R><spotInstanceRequestSet>{items}</spotInstanceRequestSet></R>".encode()


def _product(attributes: dict[str, str], usd_h: float) -> dict[str, Any]:
    """An entry as the price list has it, with its rate for begun reservations beside that of hours."""
    rates = {
        "SKU.JRTCKXETXF.6YS6EN2CT7": {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd_h:.10f}"}},
        "SKU.JRTCKXETXF.2TG2D8R56U": {"unit": "Quantity", "pricePerUnit": {"USD": "99999"}},
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": "SKU"},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU.JRTCKXETXF": {"priceDimensions": rates, "sku": "SKU"}}},
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _error(code: str) -> bytes:
    return f"<Response><Errors><Error><Code>{code}</Code><Message>so it is</Message></Error></Errors></Response>".encode()


def _refusal(code: str, status: int) -> web.Response:
    return web.Response(status=status, body=_error(code), content_type="text/xml")


def _parsed(body: bytes) -> ET.Element:
    """Without namespaces, which boto3 does not look at."""
    root = ET.fromstring(body)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _machines(root: ET.Element) -> Iterator[ET.Element]:
    for parent in root.iter("instancesSet"):
        yield from parent


def _name(item: ET.Element) -> str:
    tags = {_text(tag, "key"): _text(tag, "value") for tag in item.iterfind("tagSet/item")}
    return tags.get("Name", "")


def _text(item: ET.Element, path: str) -> str:
    return item.findtext(path) or ""


def _set(item: ET.Element, path: str, value: str) -> None:
    found: Any = item.find(path)
    assert found is not None, f"moto answers without {path}"
    found.text = value
