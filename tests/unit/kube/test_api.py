"""The door to the API server says what is wrong with its kubeconfig."""

from pathlib import Path

import pytest

from federator.kernel.errors import Unavailable
from federator.kube.api import Api


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    api = Api(str(tmp_path / "absent"))
    with pytest.raises(Unavailable, match="there is no kubeconfig"):
        await api.ask("GET", "/version", patience_s=0)
