"""The `ssh` provider: machines that somebody else keeps running, taken and given back over SSH.

`settings` has the list of machines, `login` is the only door to the `ssh` command, `host` is what that command runs at a machine, and `provider`
holds the list together. What has been taken stands in a folder on each machine, as it does for the provider `local`, whose machinery this is.
"""

from federator.kernel.clock import Clock
from federator_providers.ssh.login import Login
from federator_providers.ssh.provider import SshProvider
from federator_providers.ssh.settings import read_settings

__all__ = ["SshProvider", "provider"]


def provider(name: str, settings: dict[str, object], clock: Clock) -> SshProvider:
    """The entry point. Raises `Invalid` that names the key in `settings`."""
    given = read_settings(name, settings)
    return SshProvider(name, given, clock, Login(given.given))
