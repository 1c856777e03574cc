"""A GPU model that nobody has: said at once, with the one that was probably meant."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from federator.cli.phrases import when
from federator.kernel.errors import FederatorError
from federator.wire.nearest import nearest

if TYPE_CHECKING:
    from federator.client.verbs import Verbs

NEAR = 0.75


async def model_note(client: "Verbs", document: Mapping[str, object], job: str) -> str:
    """`no site has A1000; A100 would start now`; empty where a site or an offer has a model that the job asks for, or asks for none."""
    resources = document.get("resources")
    asked = resources.get("gpus", resources.get("accelerators")) if isinstance(resources, Mapping) else None
    if not isinstance(asked, str) or not any(letter.isalpha() for letter in asked):
        return ""
    with suppress(FederatorError):
        # The job is accepted: whatever goes wrong from here on is no fault of it.
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
        return (
            f"{missing}; {near} would {'wait' if starts is None else f'start {when(starts, client.now())}'}"
        )
    return ""
