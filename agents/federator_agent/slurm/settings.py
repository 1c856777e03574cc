"""The `slurm:` part of a site file."""

from collections.abc import Mapping

import msgspec

from federator.wire import fields


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the cluster, and what of it to use."""


def parse(value: Mapping[str, object], path: str) -> SlurmSettings:
    """Settings from the site file. Raises `Invalid` that names the field."""
    fields.known_only(value, path, ())
    return SlurmSettings()
