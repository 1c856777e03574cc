"""Podman on this machine, with storage of its own and an image made of a static busybox: no registry is asked for anything."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.testbeds.kubernetes.image import BUSYBOX, busybox_root

IMAGE = "localhost/federator-test:1"
REMEDY = "on Debian and Ubuntu: apt-get install podman catatonit crun busybox-static"


def missing() -> str:
    """Why it cannot be; empty: it can."""
    if os.geteuid() != 0:
        return "the tests' containers want root"
    lacking = [name for name in ("podman", "catatonit", "crun", "unshare") if shutil.which(name) is None]
    lacking += [] if BUSYBOX.exists() else ["busybox"]
    return f"{', '.join(lacking)} cannot be found; {REMEDY}" if lacking else ""


class Podman:
    """In a folder that is removed by `end`. `programs` goes before all others in PATH."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=200:200"]\n'
        )
        places = f'graphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
        (folder / "storage.conf").write_text(f'[storage]\ndriver = "{_driver(folder)}"\n{places}')
        # An empty second hierarchy of control groups, which some machines have beside the first, makes crun give up.
        script = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"'
        (self.programs / "podman").write_text(
            f"""#!/bin/sh
export CONTAINERS_CONF={folder}/containers.conf CONTAINERS_STORAGE_CONF={folder}/storage.conf
exec unshare -m /bin/sh -c '{script}' {shutil.which("podman")} "$@"
"""
        )
        (self.programs / "podman").chmod(0o755)
        (folder / "root.tar").write_bytes(busybox_root())
        self("import", "--quiet", str(folder / "root.tar"), IMAGE)

    def __call__(self, *words: str, given: str = "") -> str:
        """What it prints, with that as its input. Raises `AssertionError` with what it complains of."""
        command = [str(self.programs / "podman"), *words]
        ran = subprocess.run(command, check=False, input=given, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def containers(self) -> list[str]:
        """Names of all that there are, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    def end(self) -> None:
        """Remove what is left."""
        self("rm", "--all", "--force", "--time=0")
        shutil.rmtree(self._folder, ignore_errors=True)


def _driver(folder: Path) -> str:
    """Of the storage: `overlay` where this file system can be one's upper layer, else `vfs`, which copies all of an image for each layer and container."""
    layers = [folder / name for name in ("lower", "upper", "work", "merged")]
    for layer in layers:
        layer.mkdir()
    lower, upper, work, merged = layers
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["unshare", "-m", "mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    return "vfs" if subprocess.run(mount, capture_output=True, check=False).returncode else "overlay"
