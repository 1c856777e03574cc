"""The tests at somebody else's cluster: as whom they come, by what the kubeconfig has."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.testbeds.kubernetes import shared

CERTIFICATE, KEY = "a certificate", "a key"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def plugin(**said: str) -> dict[str, Any]:
    """A credential plug-in: it prints what it is told to, if it is asked as Kubernetes asks."""
    printed = json.dumps({"kind": "ExecCredential", "status": said})
    script = 'case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) printf %s "$SAID";; esac'
    env = [{"name": "SAID", "value": printed}]
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "env": env,
        }
    }


@pytest.mark.parametrize(
    ("user", "token"),
    [
        ({"token": "t"}, "t"),
        ({"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)}, ""),
        (plugin(token="t"), "t"),
        (plugin(clientCertificateData=CERTIFICATE, clientKeyData=KEY), ""),
    ],
    ids=["token", "certificate", "plug-in-token", "plug-in-certificate"],
)
def test_a_kubeconfig_of_any_kind_is_taken(tmp_path: Path, user: dict[str, Any], token: str) -> None:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {"name": "k", "cluster": {"server": "https://k", "certificate-authority-data": encoded("ca")}}
        ],
        "users": [{"name": "u", "user": user}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(document))
    admin = shared.admin_of(file, tmp_path)
    assert (admin.url, admin.token, admin.ca.read_text()) == ("https://k", token, "ca")
    held = [] if admin.certificate is None else [each.read_text() for each in admin.certificate]
    assert held == ([] if token else [CERTIFICATE, KEY])
