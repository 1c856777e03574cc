"""The `azure` provider: virtual machines of Azure, rented by name, on demand and as spot machines.

It speaks the REST API of Azure Resource Manager over aiohttp, which is there anyway, for it needs four calls and two ways to sign in: Azure's own libraries
would be 30 MB more for an installation to carry. So there is no extra.
"""

from federator.kernel.clock import Clock
from federator_providers.azure.adapter import AzureProvider
from federator_providers.azure.settings import read_settings

__all__ = ["provider"]


def provider(name: str, settings: dict[str, object], clock: Clock) -> AzureProvider:
    """The entry point. Raises `Invalid` that names the key in `settings`."""
    return AzureProvider(name, read_settings(name, settings), clock)
