"""The `aws` provider: machines of Amazon EC2, rented by tag and by name, on demand and on the spot market.

boto3 comes with the extra `federator[aws]`, and is imported only where such a provider is configured.
"""

from typing import TYPE_CHECKING

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid

if TYPE_CHECKING:
    from federator_providers.aws.adapter import AwsProvider

__all__ = ["provider"]


def provider(name: str, settings: dict[str, object], clock: Clock) -> "AwsProvider":
    """The entry point. Raises `Invalid` that names the key in `settings`, or says that boto3 is missing."""
    try:
        from federator_providers.aws.adapter import AwsProvider  # noqa: PLC0415 - boto3 is an extra
    except ModuleNotFoundError as error:
        raise Invalid(
            f"needs {error.name}, which is not installed",
            field=f"$.providers.{name}.type",
            remedy="pip install 'federator[aws]'",
        ) from None
    from federator_providers.aws.settings import read_settings  # noqa: PLC0415 - beside it

    return AwsProvider(name, read_settings(name, settings), clock)
