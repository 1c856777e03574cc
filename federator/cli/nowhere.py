"""A site that there is not, a GPU model that nobody has: said at once, with the one that was probably meant."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from federator.cli.phrases import when
from federator.kernel.errors import FederatorError
from federator.wire.nearest import nearest

if TYPE_CHECKING:
    from federator.client.verbs import Verbs

NEAR = 0.75
MOST_NAMED = 10


async def nowhere_note(client: "Verbs", document: Mapping[str, object], job: str) -> str:
    """What keeps a job that was just accepted from running anywhere, as far as its file alone shows it; empty: nothing does."""
    with suppress(FederatorError):
        # The job is accepted: whatever goes wrong from here on is no fault of it.
        return await _site_note(client, document) or await _model_note(client, document, job)
    return ""


async def _site_note(client: "Verbs", document: Mapping[str, object]) -> str:
    """`there is no site nroth (did you mean north?)`; empty where there is one of those that the job names, or it names none."""
    placement = document.get("placement")
    named = placement.get("sites") if isinstance(placement, Mapping) else None
    if not isinstance(named, list | tuple) or not named:
        return ""
    known = [row.name for row in await client.sites()]
    if not known or set(known).intersection(named):
        return ""
    near = nearest(str(named[0]), known)
    told = f"did you mean {near}?" if near else f"there are {', '.join(sorted(known)[:MOST_NAMED])}"
    return f"there is no site {' or '.join(map(str, named))} ({told})"


async def _model_note(client: "Verbs", document: Mapping[str, object], job: str) -> str:
    """`no site has A1000; A100 would start now`; empty where a site or an offer has a model that the job asks for, or asks for none."""
    resources = document.get("resources")
    asked = resources.get("gpus", resources.get("accelerators")) if isinstance(resources, Mapping) else None
    if not isinstance(asked, str) or not any(letter.isalpha() for letter in asked):
        return ""
    models = (await client.job(job)).spec.resources.gpus.models
    known = {pool.pool.model for site in await client.sites() for pool in site.pools}
    known |= {offer.model for offer in await client.offers()}
    if not models or not known or known & set(models):
        return ""
    missing = f"no site has {' or '.join(models)}"
    near = nearest(models[0], sorted(known), NEAR)
    if near is None or models[0] not in asked:
        return f"{missing}; there are {', '.join(sorted(known))}"
    other = {**document, "resources": {"gpus": asked.replace(models[0], near)}}
    sites = (await client.preview(other)).explanation.sites
    starts = min((site.start_at for site in sites if not site.filter and site.start_at), default=None)
    return f"{missing}; {near} would {'wait' if starts is None else f'start {when(starts, client.now())}'}"
