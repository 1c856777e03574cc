"""The provider's side of EC2: offers, launch, list, bill, end.

A machine is known by its tags, and rented once per name: a launch looks for the name first, and asks with a client token made of the
name and the zone, so that a request repeated after a lost reply finds the first machine. What neither can rule out – a dispatcher that
dies between two zones' answers while EC2 does not list the machine yet – the next listing finds: of two machines with one name it ends the younger.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from federator.kernel.clock import Clock
from federator.kernel.errors import NotFound, Unavailable
from federator.model.capacity import Instance, LaunchRequest, Market, Offer
from federator_providers.aws.calls import FAULT_S, MISMATCH, QUOTA, Api
from federator_providers.aws.machines import (
    FEDERATION,
    NAME,
    NOTICE_S,
    OFFER,
    alive,
    instance,
    oldest,
    tagged,
    tags,
)
from federator_providers.aws.prices import Prices
from federator_providers.aws.quotas import counted
from federator_providers.aws.settings import AwsConfiguration
from federator_providers.boot import boot_script
from federator_providers.ended import EndedMachines
from federator_providers.stocks import as_left, take_one
from federator_providers.zones import CloudRefusal, Zones

PAGE_SIZE = 500
UNLISTED_S = 5.0


class AwsProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: AwsConfiguration, clock: Clock) -> None:
        self.name = name
        self._configuration = configuration
        self._settings = configuration.given
        self._clock = clock
        self.ec2 = Api(name, configuration.given)
        self._prices = Prices(name, configuration, self.ec2, clock)
        self._zones = Zones(clock, QUOTA)
        self._notices: dict[str, float] = {}
        """When machines are taken back, by id."""
        self._ended = EndedMachines(clock)

    async def offers(self) -> Sequence[Offer]:
        """What the settings allow, at the prices of now, each with how many more there may be."""
        await self._prices.refresh()
        _, left = await self._left()
        return [self._prices.priced(offer) for offer in left.values()]

    async def launch(self, request: LaunchRequest) -> Instance:
        """Rent a machine of that name, in the first zone that has one, unless there is or was one."""
        if ended := self._ended.get(request.name):
            return ended
        offer = self._configuration.offers.get(request.offer.name)
        if offer is None:
            raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
        machines, left = await self._left()
        known = oldest(machines).get(request.name)
        if known is not None:
            self._zones.unsure.pop(request.name, None)
            return self._instance(known)
        take_one(left[offer.name])
        run = partial(self._run, request)
        return await self._zones.launch(left[offer.name], request, self._zones_usd_h(request.offer), run)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Machines of that federation; on the way, an end to every second machine of one name."""
        machines = await self._machines(Name=f"tag:{FEDERATION}", Values=[federation])
        await self._notice(machines)
        first = oldest(machines)
        await self._end([m for m in machines if alive(m) and m is not first[tagged(m, NAME)]])
        found = [self._instance(machine) for machine in first.values()]
        return found + self._ended.beside(first, federation)

    async def terminate(self, name: str) -> None:
        """Have all machines of that name ended, and see that EC2 has begun to."""
        machines = await self._machines(Name=f"tag:{NAME}", Values=[name])
        await self._end([machine for machine in machines if alive(machine)])

    async def close(self) -> None:
        """Let go of threads and connections."""
        await self.ec2.close()

    async def _run(self, request: LaunchRequest, zone: str) -> Instance:
        """One machine in this zone. Raises `Refusal` when there is none to be had."""
        ceiling_usd_h = request.offer.price_usd_h
        usd_h = min(ceiling_usd_h, self._prices.in_zone(request.offer, zone) or ceiling_usd_h)
        spot = request.offer.market is Market.SPOT
        own = {"ResourceType": "instance", "Tags": tags(request, usd_h if spot else ceiling_usd_h)}
        arguments: dict[str, Any] = {
            "ClientToken": f"{request.name}/{zone}",
            "ImageId": self._settings.image,
            "InstanceType": request.offer.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "Placement": {"AvailabilityZone": zone},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required"},
            "TagSpecifications": [own],
            "UserData": boot_script(request.user_data, self._settings.boot, "ec2"),
        }
        if zone in self._settings.subnets:
            arguments["SubnetId"] = self._settings.subnets[zone]
        if self._settings.security_groups:
            arguments["SecurityGroupIds"] = list(self._settings.security_groups)
        if self._settings.instance_profile:
            arguments["IamInstanceProfile"] = {"Name": self._settings.instance_profile}
        if spot:
            options = {"SpotInstanceType": "one-time", "MaxPrice": f"{ceiling_usd_h:.5f}"}
            arguments["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        self._zones.unsure[request.name] = zone
        try:
            answer = await self.ec2.call("run_instances", **arguments)
        except CloudRefusal as refusal:
            if refusal.code == MISMATCH:  # an earlier request, with another join token, has got there
                raise Unavailable(
                    f"{request.name} has been asked for in {zone} before, and is not listed yet",
                    retry_after_s=UNLISTED_S,
                ) from None
            self._zones.unsure.pop(request.name, None)
            raise
        self._zones.unsure.pop(request.name, None)
        return self._instance(answer["Instances"][0])

    def _zones_usd_h(self, offer: Offer) -> dict[str, float]:
        """What it costs in each zone; on demand everywhere the same."""
        spot, usd_h = offer.market is Market.SPOT, offer.price_usd_h
        return {zone: (spot and self._prices.in_zone(offer, zone)) or usd_h for zone in self._settings.zones}

    async def _machines(self, **only: object) -> list[Any]:
        """Those that we have rented, ended ones included for as long as EC2 knows them."""
        return await self._listed([only or {"Name": "tag-key", "Values": [NAME]}])

    async def _listed(self, filters: list[dict[str, object]]) -> list[Any]:
        pages = await self.ec2.pages(
            "describe_instances", "Reservations", Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
        )
        return [machine for reservation in pages for machine in reservation["Instances"]]

    async def _left(self) -> tuple[list[Any], dict[str, Offer]]:
        """Our machines, and the offers beside them. Where quotas are known, others' machines count towards these."""
        if self._settings.quotas:
            listed = await self._listed([])
            machines = [machine for machine in listed if tagged(machine, NAME)]
            others = counted(self._settings.quotas, (m for m in listed if not tagged(m, NAME)))
        else:
            machines, others = await self._machines(), Counter()
        live = Counter(tagged(machine, OFFER) for machine in machines if alive(machine))
        left = as_left(self._configuration.offers.values(), live, others)
        return machines, {offer.name: offer for offer in left}

    async def _notice(self, machines: list[Any]) -> None:
        """Ask which spot machines EC2 is about to take back. It says so once, and then ends them."""
        if not any(alive(machine) and machine.get("InstanceLifecycle") == "spot" for machine in machines):
            return
        requests = await self.ec2.pages(
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=[{"Name": "status-code", "Values": ["marked-for-termination", "marked-for-stop"]}],
        )
        for each in requests:
            if "InstanceId" in each:
                at = each["Status"]["UpdateTime"].timestamp() + NOTICE_S
                self._notices.setdefault(each["InstanceId"], at)

    async def _end(self, machines: list[Any]) -> None:
        ids = [machine["InstanceId"] for machine in machines]
        if not ids:
            return
        answer = await self.ec2.call("terminate_instances", InstanceIds=ids)
        states = {each["InstanceId"]: each["CurrentState"]["Name"] for each in answer["TerminatingInstances"]}
        if left := [each for each in ids if states.get(each) not in ("shutting-down", "terminated")]:
            raise Unavailable(f"EC2 has not begun to end {', '.join(left)}", retry_after_s=FAULT_S)

    def _instance(self, machine: Any) -> Instance:
        """What it is now. The first that is heard of its end stays."""
        made = instance(machine, self._clock.now(), self._notices.get(machine["InstanceId"]))
        if made.ended_at is None:
            return made
        self._notices.pop(machine["InstanceId"], None)
        return self._ended.remember(made)
