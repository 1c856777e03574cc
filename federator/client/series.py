"""The verbs about series: jobs that are submitted again and again."""

from urllib.parse import quote

from federator.client.transport import Transport
from federator.wire.http import SeriesDetail, SeriesRow


class SeriesVerbs:
    """What users do with series. One is named by its name: the caller's own first, or that of `owner`. `submit` begins them."""

    transport: Transport

    async def all_series(self, *, mine: bool = False, ended: bool = False) -> list[SeriesRow]:
        """All series, by name; with `ended` also those of which no runs come any more."""
        query = {"mine": mine, "ended": ended}
        return await self.transport.call("GET", "/v1/series", list[SeriesRow], query=query)

    async def series(self, name: str, *, owner: str = "") -> SeriesDetail:
        """When its runs are due, and what became of those that were."""
        return await self._ask("GET", name, "", owner)

    async def pause_series(self, name: str, *, owner: str = "") -> SeriesDetail:
        """Submit no runs for now; one that is there goes on."""
        return await self._ask("POST", name, "/pause", owner)

    async def resume_series(self, name: str, *, owner: str = "") -> SeriesDetail:
        """Submit runs again, from the next that is due."""
        return await self._ask("POST", name, "/resume", owner)

    async def end_series(self, name: str, *, owner: str = "") -> SeriesDetail:
        """No more runs; one that is there goes on."""
        return await self._ask("DELETE", name, "", owner)

    async def _ask(self, method: str, name: str, verb: str, owner: str) -> SeriesDetail:
        path = f"/v1/series/{quote(name, safe='')}{verb}"
        return await self.transport.call(method, path, SeriesDetail, query={"owner": owner or None})
