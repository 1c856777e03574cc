"""A node that is real: containerd and a kubelet of our own, which run containers of this machine. It wants root.

Everything has a name or a folder of its own, so that the machine's own containerd, if it has one, is left alone, and the end can be complete: processes by
their control group, the bridge by its name, and mounts are in a view of the file system that ends with them. What an earlier run that was killed has left behind is ended at the next start.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.support.waiting import wait_until
from tests.testbeds.kubernetes.cluster import Admin, KubeCluster, binaries, modern
from tests.testbeds.kubernetes.image import IMAGE, write_image
from tests.testbeds.ports import free_ports

NODE = "127.0.0.1"
"""The kubelet takes an address that it is named by for its own, without asking whether others could reach it."""
GPUS = 8
_GROUPS = Path("/sys/fs/cgroup")
_MARK = "federator-test-"


def unable() -> str:
    """Why no container can be run here; empty: they can."""
    if os.geteuid() != 0:
        return "a kubelet wants root"
    lacking = [
        program
        for program in ("containerd", "runc", "ctr", "ip", "unshare", "nsenter")
        if shutil.which(program) is None
    ]
    return f"{', '.join(lacking)} cannot be found; run make testbed-kubernetes" if lacking else ""


class RealNode:
    """One node of a cluster, with `GPUS` GPUs that are but a number. `with RealNode(cluster)`."""

    def __init__(self, cluster: KubeCluster, pods: str = "10.213.7.0/24") -> None:
        """`pods`: their addresses."""
        self._cluster, self._pods = cluster, pods
        self.folder = cluster.folder / "node"
        self._group = f"{_MARK}{os.getpid()}"
        self.bridge = f"fedk{os.getpid() % 10**8}"
        self._socket = self.folder / "containerd.sock"
        self._said = 0

    @property
    def admin(self) -> Admin:
        """Whoever may do anything at its cluster."""
        return self._cluster.admin

    def __enter__(self) -> Self:
        assert not unable(), unable()
        end_leftovers()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start_containerd()
            self.start_kubelet()
            self.wait_ready()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _start_containerd(self) -> None:
        for name, text in (
            ("containerd.toml", self._containerd()),
            ("cni/10-test.conflist", self._network()),
        ):
            file = self.folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        # All kubelets of a machine keep logs in one place, and remove what they do not know there: this one sees a place of its own. What is mounted in
        # its view of the file system is gone when the last process that has it is.
        logs = self.folder / "log"
        logs.mkdir(exist_ok=True)
        script = 'mount --bind "$1" /var/log && exec containerd --config "$2"'
        self._cluster.start(
            "containerd", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh",
            str(logs), str(self.folder / "containerd.toml"), path=_found("unshare"),
        )  # fmt: skip
        wait_until(self._answers, "containerd")
        archive = self.folder / "image.tar"
        write_image(archive)
        self.load(archive)

    def start_kubelet(self) -> None:
        """Start it, for the first time or again. It dies with the thread that calls this. `wait_ready` follows."""
        for controller in _controllers():
            (controller / self._group).mkdir(exist_ok=True)
            for part in ("cpus", "mems"):  # a new group of cpuset has none
                file = controller / self._group / f"cpuset.{part}"
                if file.exists():
                    file.write_text((controller / f"cpuset.{part}").read_text())
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet()))
        (self.folder / "resolv.conf").touch()
        kubeconfig = self.admin.kubeconfig(self.folder / "kubeconfig")
        log = self._cluster.folder / "kubelet.log"
        self._said = log.stat().st_size if log.exists() else 0
        own = (
            []
            if modern()
            else [
                "--container-runtime=remote",
                f"--container-runtime-endpoint={self._endpoint}",
                f"--pod-infra-container-image={IMAGE}",
            ]
        )
        self._cluster.start(
            "kubelet", f"--mount=/proc/{self._cluster.pid('containerd')}/ns/mnt", "--", str(binaries() / "kubelet"),
            f"--config={self.folder / 'kubelet.json'}", f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE}", f"--root-dir={self.folder / 'kubelet'}", f"--cert-dir={self.folder / 'pki'}",
            *own, path=_found("nsenter"),
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Return when its node takes work. Until the kubelet has registered, it may still set the GPUs to nothing: no plugin has told it of any."""
        log, said = self._cluster.folder / "kubelet.log", self._said
        wait_until(
            lambda: b"Successfully registered node" in log.read_bytes()[said:], "the kubelet to register"
        )
        wait_until(self._ready, "the node")

    def kill_kubelet(self) -> None:
        """kill -9. What it runs goes on."""
        self._cluster.kill("kubelet")

    def _containerd(self) -> str:
        return f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/run"
[grpc]
  address = "{self._socket}"
[ttrpc]
  address = "{self._socket}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.folder}/cni"
"""

    def _network(self) -> str:
        """A bridge that nothing but the pods is on: they reach each other, and nobody else."""
        ipam = {
            "type": "host-local",
            "dataDir": f"{self.folder}/addresses",
            "ranges": [[{"subnet": self._pods}]],
            "routes": [{"dst": self._cluster.services}],
        }
        bridge = {"type": "bridge", "bridge": self.bridge, "isGateway": False, "ipam": ipam}
        return json.dumps({"cniVersion": "0.4.0", "name": "test", "plugins": [bridge]})

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": free_ports(1)[0],
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "enforceNodeAllocatable": [],
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "1Mi",
                "imagefs.available": "1Mi",
            },
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "maxPods": 500,
            "nodeStatusUpdateFrequency": "2s",
            "oomScoreAdj": 0,
            "resolvConf": f"{self.folder}/resolv.conf",
            "serializeImagePulls": False,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            "eventRecordQPS": 0,
        } | ({"containerRuntimeEndpoint": self._endpoint, "failCgroupV1": False} if modern() else {})

    @property
    def _endpoint(self) -> str:
        return f"unix://{self._socket}"

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._ctr("version")
            return True
        return False

    def load(self, archive: Path) -> None:
        """Give it an image, from what `docker save` or its like has written."""
        self._ctr("images", "import", str(archive))

    def _ctr(self, *words: str) -> str:
        command = ["ctr", "-a", str(self._socket), "-n", "k8s.io", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    def _ready(self) -> bool:
        nodes = {node["metadata"]["name"]: node for node in self.admin.ask("GET", "/api/v1/nodes")["items"]}
        if NODE not in nodes:
            return False
        conditions = {each["type"]: each["status"] for each in nodes[NODE]["status"].get("conditions", ())}
        if conditions.get("Ready") != "True":
            return False
        gpus = {"nvidia.com/gpu": str(GPUS), "cpu": "64"}
        self.admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": gpus, "allocatable": gpus}})
        self.admin.patch(
            f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"nvidia.com/gpu.product": "A100"}}}
        )
        return True

    def end(self) -> None:
        """End the programs, all that they have started, and what they have made of the machine."""
        for program in ("kubelet", "containerd"):
            with contextlib.suppress(KeyError):
                self._cluster.kill(program)
        _end_shims(self.folder)
        _end_group(self._group)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)


def end_leftovers() -> None:
    """End the nodes of tests that were killed before they could do it themselves."""
    for group in {path.name for controller in _controllers() for path in controller.glob(f"{_MARK}*")}:
        owner = group.removeprefix(_MARK)
        if not Path(f"/proc/{owner}").exists():
            _end_group(group)
            subprocess.run(
                ["ip", "link", "delete", f"fedk{int(owner) % 10**8}"], check=False, capture_output=True
            )


def _controllers() -> list[Path]:
    """Where control groups are made: one tree, or one of each controller."""
    if (_GROUPS / "cgroup.controllers").exists():
        return [_GROUPS]
    real = {path.resolve() for path in _GROUPS.iterdir()}
    return sorted(path for path in real if (path / "cgroup.procs").exists())


def _end_shims(folder: Path) -> None:
    """containerd's shims outlive it. They are known by the address that they were given."""
    address = str(folder / "containerd.sock").encode()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
            if words and b"containerd-shim" in words[0] and address in words:
                os.kill(int(process.name), signal.SIGKILL)


def _end_group(group: str) -> None:
    """Kill everything in a control group and those below it, then remove them."""
    for controller in _controllers():
        folders = [*sorted((controller / group).rglob("*/"), reverse=True), controller / group]
        give_up_s = time.monotonic() + 10
        for folder in folders:
            while folder.is_dir() and time.monotonic() < give_up_s:
                with contextlib.suppress(OSError):
                    for pid in (folder / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.02)


def _found(program: str) -> Path:
    """Where a program of the system is."""
    path = shutil.which(program)
    assert path, program
    return Path(path)
