"""A dispatcher in memory behind a real HTTP server on loopback, with tokens for several people."""

from tests.integration.api.conftest import rig

__all__ = ["rig"]
