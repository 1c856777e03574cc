"""The verbs about services: replicas that answer requests."""

from collections.abc import Mapping
from urllib.parse import quote

from federator.client.transport import Transport
from federator.wire.services import GatewayReport, Routed, ServiceDetail, ServiceRow


class ServiceVerbs:
    """What users do with services. One is named by its name: the caller's own first, or that of `owner`."""

    transport: Transport

    async def apply_service(self, file: Mapping[str, object], *, canary: int = 0) -> ServiceDetail:
        """Begin a service, or give the one of that name another file; with `canary` so many of a hundred requests go to the new revision. `workdir` is the hash of a folder that `upload` has taken."""
        query = {"canary": canary or None}
        return await self.transport.call("POST", "/v1/services", ServiceDetail, sends=file, query=query)

    async def services(self, *, mine: bool = False) -> list[ServiceRow]:
        """All services, by name."""
        return await self.transport.call("GET", "/v1/services", list[ServiceRow], query={"mine": mine})

    async def service(self, name: str, *, owner: str = "") -> ServiceDetail:
        """A service with its replicas."""
        return await self._of("GET", name, "", owner)

    async def promote_service(self, name: str, *, owner: str = "") -> ServiceDetail:
        """Let its canary take the place of the former revision."""
        return await self._of("POST", name, "/promote", owner)

    async def rollback_service(self, name: str, *, owner: str = "") -> ServiceDetail:
        """Return to the former revision."""
        return await self._of("POST", name, "/rollback", owner)

    async def delete_service(self, name: str, *, owner: str = "") -> ServiceDetail:
        """End it: its replicas finish what they work on."""
        return await self._of("DELETE", name, "", owner)

    async def tell_gateway(self, report: GatewayReport) -> Routed:
        """What a gateway has seen of the caller's services; where it sends requests from now on."""
        return await self.transport.call("POST", "/v1/gateway", Routed, sends=report)

    async def _of(self, method: str, name: str, verb: str, owner: str) -> ServiceDetail:
        path = f"/v1/services/{quote(name, safe='')}{verb}"
        return await self.transport.call(method, path, ServiceDetail, query={"owner": owner or None})
