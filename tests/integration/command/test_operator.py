"""The operator as a process whose cluster does not answer: what its probes see, what it logs, and that it ends when it is told to."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.support.waiting import until

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


async def test_it_shows_that_it_lives_and_has_not_seen_the_cluster_and_logs_json(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "token").write_text("t")
    file = {
        "dispatcher": "http://127.0.0.1:9",
        "namespaces": {"research": {"token_file": "token"}},
        "kubeconfig": "kubeconfig",
        "alive_file": "alive",
        "log_format": "json",
    }
    (tmp_path / "operator.yaml").write_text(json.dumps(file))
    said = tmp_path / "log"
    words = [sys.executable, "-m", "federator", "operator", "--config", str(tmp_path / "operator.yaml")]
    with said.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*words, stderr=output, env=os.environ)
    try:
        await until(lambda: "lease" in said.read_text(), "the operator to look for the lease")
        alive = tmp_path / "alive"
        assert alive.read_text() == "starting\n", "which is not ready"
        lines = [json.loads(line) for line in said.read_text().splitlines()]
        assert {(line["level"], line["logger"]) for line in lines} == {("warning", "federator.operator")}
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
