"""The `gce` provider: machines of Google Compute Engine, rented by name, on demand and as spot machines.

It speaks Google's REST API over aiohttp, which is there anyway, for it needs six calls; google-auth, which signs in, comes with the extra
`federator[gcp]`, and is imported only where such a provider is configured.
"""

from typing import TYPE_CHECKING

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid

if TYPE_CHECKING:
    from federator_providers.gce.adapter import GceProvider

__all__ = ["provider"]


def provider(name: str, settings: dict[str, object], clock: Clock) -> "GceProvider":
    """The entry point. Raises `Invalid` that names the key in `settings`, or says that google-auth is missing."""
    try:
        from federator_providers.gce.adapter import GceProvider  # noqa: PLC0415 - google-auth is an extra
    except ModuleNotFoundError as error:
        raise Invalid(
            f"needs {error.name}, which is not installed",
            field=f"$.providers.{name}.type",
            remedy="pip install 'federator[gcp]'",
        ) from None
    from federator_providers.gce.settings import read_settings  # noqa: PLC0415 - beside it

    return GceProvider(name, read_settings(name, settings), clock)
