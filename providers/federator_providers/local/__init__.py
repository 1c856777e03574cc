"""The `local` provider: machines that are process trees on this host, rented as if they were a cloud's.

It makes bursting something that anybody can try on a laptop, and it is honest where it matters: an instance lives outside the
dispatcher, boots late, is billed by the second, and when it dies every process on it dies, whatever that process did to escape.
"""

from federator_providers.local.market import interrupt, sell_out
from federator_providers.local.provider import LocalProvider, provider

__all__ = ["LocalProvider", "interrupt", "provider", "sell_out"]
