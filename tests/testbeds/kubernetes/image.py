"""A container image made of what this machine has: a static busybox, which gives a shell, tar, sleep and netcat. No registry is asked for anything."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

IMAGE = "federator.test/busybox:1"
PYTHON = b'#!/bin/sh\nexec "$FEDERATOR_TEST_PYTHON" "$@"\n'
"""There is none in the image: that of this machine does, where a pod mounts it and is told of it."""
BUSYBOX = Path("/bin/busybox")


def write_image(archive: Path) -> None:
    """An archive that `ctr images import` takes, with the image under its name."""
    layer = _layer()
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                os.uname().machine, os.uname().machine
            ),
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2147483647"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar.gz"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for file, content in (
            (name, config),
            ("layer.tar.gz", gzip.compress(layer, 1)),
            ("manifest.json", manifest),
        ):
            _add(tar, file, content)


def _layer() -> bytes:
    return busybox_root(
        {
            "etc/passwd": (b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644),
            "bin/python3": (PYTHON, 0o755),
        }
    )


def busybox_root(files: Mapping[str, tuple[bytes, int]] = MappingProxyType({})) -> bytes:
    """A tar of a file system with busybox, all its applets, and these files, each with its content and mode."""
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for name, (content, mode) in files.items():
            _add(tar, name, content, mode)
        for applet in sorted({*applets, "sh"} - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
