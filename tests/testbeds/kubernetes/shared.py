"""One cluster for all tests of a run: of our own with one real node, or the one that `KUBECONFIG` names."""

import atexit
import base64
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from federator.wire.yamltext import read_document
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin, KubeCluster, missing
from tests.testbeds.kubernetes.image import IMAGE
from tests.testbeds.kubernetes.node import RealNode, unable

FOREIGN_IMAGE = "busybox:1.36"


class Testbed(NamedTuple):
    """A cluster that tests may use. `cluster` and `node`: None when it is somebody else's."""

    admin: Admin
    kubeconfig: Path
    image: str
    cluster: KubeCluster | None = None
    node: RealNode | None = None


def lacking() -> str:
    """Why there can be no testbed; empty: there can."""
    return "" if os.environ.get("KUBECONFIG") else missing() or unable()


@cache
def testbed() -> Testbed:
    """It, ended with this process."""
    folder = tempfile.TemporaryDirectory(prefix="kubernetes-")
    atexit.register(folder.cleanup)
    if given := os.environ.get("KUBECONFIG"):
        image = os.environ.get("FEDERATOR_TEST_IMAGE", FOREIGN_IMAGE)
        admin = _admin(Path(given), Path(folder.name))
        admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        return Testbed(admin, Path(given), image)
    cluster = KubeCluster(Path(folder.name)).__enter__()
    atexit.register(cluster.end)
    node = RealNode(cluster).__enter__()
    atexit.register(node.end)
    return Testbed(cluster.admin, cluster.folder / "admin.kubeconfig", IMAGE, cluster, node)


def _admin(kubeconfig: Path, folder: Path) -> Admin:
    """Whom a kubeconfig with a token names, which is the kind that the tests can use."""
    document: Any = read_document(kubeconfig.read_text()).value
    context = next(
        each["context"] for each in document["contexts"] if each["name"] == document["current-context"]
    )
    server = next(each["cluster"] for each in document["clusters"] if each["name"] == context["cluster"])
    user = next(each["user"] for each in document["users"] if each["name"] == context["user"])
    assert "token" in user, "the tests want a kubeconfig with a token"
    authority = folder / "ca.crt"
    if "certificate-authority-data" in server:
        authority.write_bytes(base64.b64decode(server["certificate-authority-data"]))
    else:
        authority = Path(server["certificate-authority"])
    return Admin(server["server"], user["token"], authority)
