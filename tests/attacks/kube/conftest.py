"""The cluster that the runtime's own tests have."""

from tests.integration.kube.conftest import no_pods_left, testbed, world

__all__ = ["no_pods_left", "testbed", "world"]
