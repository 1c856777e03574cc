"""The control plane: etcd, API server, controllers and scheduler on loopback, in a folder of their own, ended by pid.

No controller watches the nodes' health: a machine that is slow for a while must not look like one whose nodes have died. A test that wants a node to be
unwell says so in its status itself.
"""

import base64
import contextlib
import json
import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.waiting import wait_until
from tests.testbeds.etcd import DIE_WITH_US, EtcdCluster
from tests.testbeds.ports import free_ports

NAMESPACE, AGENTS = "federator-jobs", "federator"
"""Where jobs are, and where the agent is."""
CONTROLLERS = "namespace,serviceaccount,serviceaccount-token,podgc,endpoint"
REMEDY = "run make testbed-kubernetes"
GIVEN = "FEDERATOR_KUBERNETES"
"""Environment variable: a folder with the programs of a Kubernetes of 1.34 or later, in place of ours of 1.20. `docs/testing.md` says how they are built."""
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
"""Of a modern one: gangs are its own."""
UNSTREAMED = "WatchList=false"
"""Of a modern API server: our etcd cannot be asked how far a watch has come, so that a list that is streamed waits in vain."""
NOT_MODERN = (
    "node-lifecycle-controller",
    "service-lb-controller",
    "node-ipam-controller",
    "node-route-controller",
    "certificatesigningrequest-signing-controller",
)
"""Controllers of a modern one that are not wanted here, or lack what they need. All others work."""


def modern() -> bool:
    """Whether it is a Kubernetes of 1.34 or later."""
    return bool(os.environ.get(GIVEN))


def binaries() -> Path:
    """Where the programs are: those given, or what `build.sh` has made."""
    if given := os.environ.get(GIVEN):
        return Path(given)
    cache = os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache" / "federator"
    return Path(cache) / "kubernetes-1.20" / "bin"


def missing() -> str:
    """What is not there and how to get it; empty when all is."""
    return "" if (binaries() / "kubelet").exists() else f"there is no Kubernetes in {binaries()}; {REMEDY}"


class ApiError(Exception):
    """The API server has said no."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"{status}: {body[:500]}")


class NotThere(ApiError):
    """There is no such thing."""


class Admin:
    """Somebody who may do anything at the cluster: what a test does behind the agent's back."""

    def __init__(self, url: str, token: str, ca: Path, certificate: tuple[Path, Path] | None = None) -> None:
        """`certificate`: the files of a client's certificate and of its key, where that says who it is. No `token` then."""
        self.url, self.token, self.ca, self.certificate = url, token, ca, certificate

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One request; the decoded answer. Raises `ApiError`."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind}
            | ({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            kind_of = NotThere if error.code == 404 else ApiError
            raise kind_of(error.code, error.read().decode(errors="replace")) from None
        return json.loads(data) if data[:1] == b"{" else data.decode(errors="replace")

    def find(self, path: str) -> dict[str, Any] | None:
        """An object; None: there is none."""
        with contextlib.suppress(NotThere):
            found: dict[str, Any] = self.ask("GET", path)
            return found
        return None

    def remove(self, path: str, grace_s: int = 0) -> None:
        """Delete an object, its finalizers first; one that is gone is gone."""
        with contextlib.suppress(NotThere):
            self.patch(path, {"metadata": {"finalizers": None}})
            self.ask("DELETE", path, {"gracePeriodSeconds": grace_s})

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object; one that is there stays as it is."""
        group = document["apiVersion"]
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        namespace = document["metadata"].get("namespace")
        where = f"/namespaces/{namespace}" if namespace else ""
        kind = document["kind"].lower()
        try:
            plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
            self.ask("POST", f"{base}{where}/{plural}", document)
        except ApiError as error:
            if error.status != 409:
                raise

    def patch(self, path: str, body: Any) -> Any:
        """Merge into an object."""
        return self.ask("PATCH", path, body, "application/merge-patch+json")

    def kubeconfig(self, file: Path, token: str | None = None) -> Path:
        """Write how to reach the cluster, for `token` or for the admin."""
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority-data": base64.b64encode(self.ca.read_bytes()).decode(),
                            },
                        }
                    ],
                    "users": [{"name": "test", "user": {"token": token or self.token}}],
                }
            )
        )
        return file


class KubeCluster:
    """A control plane without nodes. `with KubeCluster(folder) as cluster`."""

    def __init__(self, folder: Path, services: str = "10.213.0.0/24", controllers: str = "") -> None:
        """`services`: their addresses; `controllers`: those that work beside `CONTROLLERS`."""
        self.folder, self.services = folder, services
        self._controllers = f"{CONTROLLERS},{controllers}".removesuffix(",")
        folder.mkdir(parents=True, exist_ok=True)
        self._etcd = EtcdCluster(folder / "etcd", members=1, durable=False)
        self._port = free_ports(1)[0]
        self._token = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.certificate = folder / "certs" / "apiserver.crt"
        self.url = f"https://127.0.0.1:{self._port}"

    @property
    def place(self) -> tuple[str, int]:
        """Where the API server listens."""
        return "127.0.0.1", self._port

    @property
    def admin(self) -> Admin:
        """Whoever may do anything."""
        return Admin(self.url, self._token, self.certificate)

    def __enter__(self) -> Self:
        assert not missing(), missing()
        self._etcd.__enter__()
        try:
            self._begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _begin(self) -> None:
        key = self.folder / "service-accounts.key"
        key.write_bytes(_private_key())
        (self.folder / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        self.start_api_server()
        self.wait_ready()
        kubeconfig = self.admin.kubeconfig(self.folder / "admin.kubeconfig")
        quick = [
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            GATES if modern() else "--port=0",
        ]
        controllers = ",-".join(("*", *NOT_MODERN)) if modern() else self._controllers
        self.start(
            "kube-controller-manager", *quick, f"--controllers={controllers}",
            f"--service-account-private-key-file={key}", f"--root-ca-file={self.certificate}",
        )  # fmt: skip
        self.start("kube-scheduler", *quick)
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def start_api_server(self) -> None:
        """Start it, for the first time or again, where it was."""
        key = self.folder / "service-accounts.key"
        own = (
            [f"{GATES},{UNSTREAMED}", "--runtime-config=scheduling.k8s.io/v1alpha2=true"]
            if modern()
            else ["--insecure-port=0", "--enable-aggregator-routing=false"]
        )
        self.start(
            "kube-apiserver", *own, f"--etcd-servers={self._etcd.endpoints[0]}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self._port}",
            "--endpoint-reconciler-type=none", f"--service-cluster-ip-range={self.services}", f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}", "--service-account-issuer=https://test",
            "--disable-admission-plugins=TaintNodesByCondition", "--kubelet-preferred-address-types=InternalIP",
            "--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000",
        )  # fmt: skip

    def start(self, program: str, *options: str, path: Path | None = None) -> None:
        """Start one of its programs in the background."""
        with (self.folder / f"{program}.log").open("ab") as log:
            self._processes[program] = subprocess.Popen(
                [*DIE_WITH_US, str(path or binaries() / program), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )

    def pid(self, program: str) -> int:
        """Of one of its programs."""
        return self._processes[program].pid

    def has_ended(self, program: str) -> bool:
        """Whether one of its programs has ended by itself."""
        return program in self._processes and self._processes[program].poll() is not None

    def kill(self, program: str) -> None:
        """kill -9, and wait until it is gone."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def wait_ready(self) -> None:
        """Return when the API server answers that it is ready."""
        wait_until(self._ready, "the API server")

    def _ready(self) -> bool:
        assert self._processes["kube-apiserver"].poll() is None, self.said("kube-apiserver")
        try:
            return bool(self.admin.ask("GET", "/readyz") == "ok")
        except (OSError, ApiError, FileNotFoundError):
            return False

    def said(self, program: str) -> str:
        """The end of what a program has logged."""
        return (self.folder / f"{program}.log").read_text(errors="replace")[-3000:]

    def end(self) -> None:
        """Kill what is left."""
        for program in reversed(tuple(self._processes)):
            self.kill(program)
        self._etcd.end()


def _private_key() -> bytes:
    """What tokens of service accounts are signed with."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
