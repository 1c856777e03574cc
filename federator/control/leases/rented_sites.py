"""The cloud sites that providers rent for: a name of theirs is nobody else's, or the agents of rented machines could never join."""

from collections.abc import Mapping

from federator.control.record.records import Records
from federator.kernel.errors import Invalid
from federator.model.sites import SiteKind
from federator.settings import ProviderSettings


def rented_sites(providers: Mapping[str, ProviderSettings]) -> dict[str, str]:
    """Each such site, with its provider's name."""
    return {provider.site: name for name, provider in providers.items()}


def check_rented_sites(records: Records, providers: Mapping[str, ProviderSettings]) -> None:
    """Raise `Invalid` where a provider rents for a site that is on record as something else."""
    for name, provider in rented_sites(providers).items():
        site = records.sites.get(name)
        if site is not None and site.kind is not SiteKind.CLOUD:
            raise Invalid(
                f"{name} is the cloud site of provider {provider}, and the name of an {site.kind} site that has joined",
                field=f"$.providers.{provider}.site",
                remedy="give the provider's site a name of its own",
            )
