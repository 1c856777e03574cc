"""The client library without its models: what a Kubernetes agent has in memory, and a version of it that is laid out otherwise."""

import os
import subprocess
import sys
from pathlib import Path

USE = """
import asyncio, sys
from federator.kube.library import library

async def main():
    found = library()
    assert library() == found
    configuration = found.Configuration()
    await found.config.load_kube_config(sys.argv[1], None, configuration)
    client = found.ApiClient(configuration)
    print(configuration.host, len([each for each in sys.modules if ".client.models" in each]))
    await client.close()

asyncio.run(main())
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""
OTHER = {
    "__init__.py": "",
    "client.py": """
class Configuration:
    host = "other"
class ApiClient:
    def __init__(self, configuration): pass
    async def close(self): pass
""",
    "config.py": "async def load_kube_config(*_): pass",
}


def used(folder: Path, *more: str) -> str:
    (folder / "kubeconfig").write_text(KUBECONFIG)
    environment = os.environ | ({"PYTHONPATH": os.pathsep.join(more)} if more else {})
    words = [sys.executable, "-c", USE, str(folder / "kubeconfig")]
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_it_finds_the_cluster_without_a_single_model(tmp_path: Path) -> None:
    assert used(tmp_path) == "http://127.0.0.1:9 1"


def test_a_version_that_is_laid_out_otherwise_is_taken_whole(tmp_path: Path) -> None:
    package = tmp_path / "kubernetes_asyncio"
    package.mkdir()
    for name, text in OTHER.items():
        (package / name).write_text(text)
    assert used(tmp_path, str(tmp_path)) == "other 0"
