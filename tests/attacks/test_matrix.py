"""Routes × people, asked live: whoever may pass is written in one table here, and everybody else is refused and changes nothing.

The table is by hand on purpose: a new route, or one whose rule has changed, fails until somebody has said who may pass. What is asked has a body that
the handler takes, so that what handlers refuse by themselves (another's series, another's site) counts as well.
"""

from typing import Any

import msgspec
import pytest

from federator.api.routes import ROUTES
from federator.api.table import Gate, Route
from federator.model.jobs import Job
from federator.wire.http import TokenRequest
from tests.integration.api.rig import ROOT, Rig
from tests.integration.api.test_agents import placed

POLICIES = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada, ben], admins: [tess]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {allow: [{teams: [vision]}], admins: {users: [lea]}}
"""
PEOPLE = {
    "o": ("ada", "user", ""),  # the job's owner
    "m": ("ben", "user", ""),  # a member of its team
    "t": ("tess", "user", ""),  # an administrator of its team
    "q": ("lea", "user", ""),  # an administrator of its queue
    "x": ("eve", "user", ""),  # somebody else
    "s": ("sam", "site-admin", "north"),  # an administrator of the site where it is placed
    "S": ("sue", "site-admin", "south"),  # and of another site
    "p": ("pat", "platform", ""),
    "r": ("root", "admin", ""),
}
AGENTS = {"a": "north", "A": "south"}
"""Sessions: of the host where the job is placed, and of a host of another site."""
OUTSIDE = {"-": None, "z": "revoked"}
"""No credential, and one that was an admin's and is revoked."""
ANYBODY, PERSON = "-zomtqxsSpraA", "omtqxsSpr"
SUBMITS = "omtqpr"
CHANGES, READS = "otqpr", "omtqpr"

MATRIX = {
    "POST /v1/jobs": SUBMITS,
    "GET /v1/jobs": PERSON,
    "POST /v1/jobs/actions": CHANGES,
    "POST /v1/jobs/rerun": "omtqxsSpr",
    "GET /v1/jobs/{id}/array": PERSON,
    "GET /v1/jobs/{id}": PERSON,
    "PATCH /v1/jobs/{id}": CHANGES,
    "DELETE /v1/jobs/{id}": CHANGES,
    "POST /v1/jobs/{id}/preview": CHANGES,
    "GET /v1/jobs/{id}/events": PERSON,
    "GET /v1/events": PERSON,
    "GET /v1/changes": PERSON,
    "GET /v1/jobs/{id}/logs": READS,
    "GET /v1/jobs/{id}/outputs": READS,
    "GET /v1/jobs/{id}/outputs/files": READS,
    "GET /v1/jobs/{id}/tunnel": "o",
    "GET /v1/jobs/{id}/explain": PERSON,
    "GET /v1/jobs/{id}/forecasts": PERSON,
    "GET /v1/jobs/{id}/gpus": PERSON,
    "POST /v1/preview": SUBMITS,
    "PUT /v1/blobs/{hash}": PERSON,
    "HEAD /v1/blobs/{hash}": PERSON,
    "GET /v1/series": PERSON,
    "GET /v1/series/{name}": PERSON,
    "POST /v1/series/{name}/pause": CHANGES,
    "POST /v1/series/{name}/resume": CHANGES,
    "DELETE /v1/series/{name}": CHANGES,
    "POST /v1/services": SUBMITS,
    "GET /v1/services": PERSON,
    "GET /v1/services/{name}": PERSON,
    "POST /v1/services/{name}/promote": CHANGES,
    "POST /v1/services/{name}/rollback": CHANGES,
    "DELETE /v1/services/{name}": CHANGES,
    "POST /v1/gateway": PERSON,
    "GET /v1/plan": PERSON,
    "GET /v1/decisions/{id}/plan": PERSON,
    "GET /v1/sites": PERSON,
    "GET /v1/sites/{name}": PERSON,
    "POST /v1/sites/{name}/drain": "sr",
    "POST /v1/sites/{name}/drain/preview": "sr",
    "POST /v1/sites/{name}/undrain": "sr",
    "POST /v1/sites/{name}/evict": "sr",
    "POST /v1/sites/{name}/declare-dead": "sr",
    "POST /v1/sites/{name}/members/{member}/revoke": "sr",
    "POST /v1/sites/{name}/members/{member}/trust": "sr",
    "DELETE /v1/sites/{name}/members/{member}": "r",
    "DELETE /v1/sites/{name}": "r",
    "GET /v1/queues": PERSON,
    "GET /v1/offers": PERSON,
    "GET /v1/leases": PERSON,
    "GET /v1/budgets": PERSON,
    "GET /v1/spending": PERSON,
    "GET /v1/overview": PERSON,
    "GET /v1/burst": PERSON,
    "POST /v1/burst/approve": "pr",
    "POST /v1/burst/pause": "pr",
    "POST /v1/burst/resume": "pr",
    "GET /v1/policies": PERSON,
    "POST /v1/policies": "pr",
    "POST /v1/policies/validate": PERSON,
    "POST /v1/policies/diff": PERSON,
    "POST /v1/policies/rollback": "pr",
    "POST /v1/policies/replay": "pr",
    "GET /v1/policies/history": PERSON,
    "GET /v1/decisions": PERSON,
    "GET /v1/decisions/{id}": PERSON,
    "GET /v1/decisions/{id}/told": PERSON,
    "GET /v1/notifications": PERSON,
    "PUT /v1/notifications": PERSON,
    "POST /v1/decisions/{id}/replay": "pr",
    "GET /v1/recorded/jobs": "pr",
    "GET /v1/recorded/world": "pr",
    "GET /v1/ledger": "sSpr",  # a site's administrator: the lines of that site
    "GET /v1/ledger/export": "pr",
    "GET /v1/sites/{name}/statement": "sr",
    "GET /v1/usage": PERSON,
    "GET /v1/tokens": "r",
    "POST /v1/tokens": "sr",
    "DELETE /v1/tokens/{name}": "r",
    "POST /v1/tokens/{name}/rotate": "or",
    "GET /v1/waiting": PERSON,
    "GET /v1/alerts": PERSON,
    "GET /v1/whoami": PERSON,
    "GET /v1/teams": PERSON,
    "GET /v1/sign-in": ANYBODY,
    "POST /v1/session": "",
    "POST /v1/session/start": "",
    "DELETE /v1/session": "",
    "GET /healthz": ANYBODY,
    "GET /readyz": ANYBODY,
    "GET /metrics": ANYBODY,
    "GET /v1/schemas/job": PERSON,
    "GET /v1/openapi.json": ANYBODY,
    "POST /agent/v1/join": "",
    "POST /agent/v1/key": "",
    "GET /agent/v1/link": "",
    "GET /agent/v1/tunnels/{tunnel}": "",
    "GET /agent/v1/specs/{hash}": "a",
    "GET /agent/v1/blobs/{hash}": "",
    "GET /agent/v1/inputs/{placement}": "a",
    "GET /agent/v1/inputs/{placement}/{job}/{hash}": "",
    "PUT /agent/v1/logs/{placement}/{rank}": "a",
    "PUT /agent/v1/outputs/{placement}": "a",
}
"""Who may pass, by the letters above. Agents join by a token of their own, which is none of these; a browser's session is for the console's own page."""
JOB_FILE = {"run": "true"}
SERVICE = {"kind": "service", "name": "chat", "run": "true", "port": 80}
BODIES: dict[str, Any] = {
    "POST /v1/jobs": JOB_FILE,
    "POST /v1/preview": JOB_FILE,
    "POST /v1/services": SERVICE,
    "POST /v1/gateway": {},
    "POST /v1/jobs/actions": {"verb": "hold", "jobs": ["the-job"]},
    "PATCH /v1/jobs/{id}": {"priority": 10},
    "POST /v1/sites/{name}/drain": {},
    "POST /v1/sites/{name}/drain/preview": {},
    "POST /v1/sites/{name}/evict": {"why": "the power is cut"},
    "POST /v1/sites/{name}/declare-dead": {"reason": "it has burnt"},
    "POST /v1/burst/approve": {"job": "the-job", "reason": "yes", "usd": 1.0},
    "POST /v1/policies": {"text": POLICIES, "reason": "again"},
    "POST /v1/policies/validate": {"text": POLICIES},
    "POST /v1/policies/diff": {"text": POLICIES},
    "POST /v1/policies/replay": {"text": POLICIES},
    "POST /v1/policies/rollback": {"version": 99, "reason": "back"},
    "POST /v1/tokens": {"site": "north", "kind": "onprem"},
    "POST /v1/tokens/{name}/rotate": {},
    "POST /agent/v1/join": {"public_key": "00" * 32},
    "POST /agent/v1/key": {"member": "north", "public_key": "00" * 32, "steps": []},
}
NAMES = {"series": "nightly", "services": "chat", "sites": "north", "tokens": "ada"}


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


class Town:
    """A dispatcher with teams, everybody's credentials, and a job of ada's that is placed at north."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.secrets: dict[str, str | None] = {}
        self.path_parts: dict[str, str] = {}

    async def build(self) -> "Town":
        world, admission = self.rig.world, self.rig.world.core.admission
        await world.policies(POLICIES)
        agents = {letter: await self.rig.agent(site) for letter, site in AGENTS.items()}
        for letter, (name, role, site) in PEOPLE.items():
            if name not in self.rig.secrets:
                request = TokenRequest(name=name, role=role, site=site)
                self.rig.secrets[name] = (await admission.create_token(ROOT, request)).secret
            self.secrets[letter] = self.rig.secrets[name]
        out = (await admission.create_token(ROOT, TokenRequest(name="out", role="admin"))).secret
        await admission.revoke(ROOT, "out")
        self.secrets |= {"-": None, "z": out}
        for letter, agent in agents.items():
            assert agent.welcome is not None
            self.secrets[letter] = agent.welcome.ticket
        placement = await placed(self.rig, "north", name="the-job")
        await self.rig.ask("POST", "/v1/services", "ada", json=SERVICE)
        await self.rig.ask("POST", "/v1/jobs", "ada", json={**JOB_FILE, "name": "nightly", "every": "1h"})
        self.path_parts = {
            "{id}": placement.job,
            "{hash}": placement.spec_hash,
            "{placement}": placement.id,
            "{rank}": "0",
            "{tunnel}": "guessed",
            "{member}": "nobody",
        }
        return self

    @property
    def job(self) -> Job:
        return self.rig.world.job(self.path_parts["{id}"])

    async def passes(self, route: Route, letter: str) -> bool:
        """Whether the route lets them in, and does not change anything where it does not."""
        named = next((NAMES[part] for part in route.path.split("/") if part in NAMES), "x")
        path = route.path.replace("{name}", named)
        for part, value in self.path_parts.items():
            path = path.replace(part, value)
        secret, body = self.secrets[letter], BODIES.get(name_of(route))
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        options: dict[str, Any] = {"json": body} if body is not None else {}
        if route.path.startswith(("/v1/series/", "/v1/services/")):
            options["params"] = {"owner": "ada"}
        if route.path.endswith("/logs/{placement}/{rank}"):
            options["params"] = {"offset": "0"}
        before = self.rig.world.core.records.revision
        async with self.rig.open(route.method, path, None, headers=headers, **options) as answer:
            status = answer.status
            problem = await answer.read() if status >= 400 else b""
        refused = status in (401, 403) or (route.gate is Gate.SESSION and status == 404)
        if route.gate is Gate.AGENT:
            refused = status >= 400
        assert status < 500, (letter, problem)
        if refused:
            assert self.rig.world.core.records.revision == before, f"{letter} changed something"
            assert route.method == "HEAD" or msgspec.json.decode(problem)["detail"]
        return not refused


@pytest.fixture
async def town(rig: Rig) -> Town:
    return await Town(rig).build()


def test_the_table_has_every_route_and_no_other() -> None:
    assert set(MATRIX) == {name_of(route) for route in ROUTES}


def test_a_route_about_one_job_that_changes_it_names_who_may() -> None:
    """By how one stands to the job: a role alone would let every user in."""
    for route in ROUTES:
        if route.path.startswith("/v1/jobs/{id}") and route.method != "GET":
            assert route.gate is Gate.JOB, route.path
        assert (route.gate is Gate.JOB) is bool(route.allows), route.path


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
async def test_whoever_is_in_the_table_passes_and_nobody_else(town: Town, route: Route) -> None:
    allowed = MATRIX[name_of(route)]
    assert "vision" in town.job.team
    # Who is refused comes first: what those who pass do may end the job, the series or the site.
    for letter in sorted(ANYBODY, key=allowed.__contains__):
        assert await town.passes(route, letter) is (letter in allowed), letter
