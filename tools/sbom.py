"""What a container image is made of, as a CycloneDX document: the Python packages that are put in, from their wheels, and Debian's of its base.

Run while an image is built, by the base's own Python, so it wants the standard library only: `python3 sbom.py WHEELS ROOT`. The same contents give the same bytes: there is neither a time
nor a serial number in it.
"""

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

NAME = "federator"
"""What the document is about; everything else is a part of it."""


def document(wheels: Path, root: Path) -> dict[str, Any]:
    """Of these wheels, and of the file system at `root`."""
    python = sorted(map(_of_wheel, wheels.glob("*.whl")), key=lambda each: str(each["name"]))
    parts = [each for each in python if each["name"] != NAME]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": next(each for each in python if each["name"] == NAME) | {"type": "application"}
        },
        "components": [*parts, *_of_debian(root)],
    }


def _of_wheel(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(file).decode(), headersonly=True)
    name, version = metadata["Name"].lower().replace("_", "-"), metadata["Version"]
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
        "licenses": _licences(metadata),
    }


def _licences(metadata: Message) -> list[dict[str, Any]]:
    """As the package states them: an SPDX expression, else its classifiers, else the first line of its own words."""
    if expression := metadata["License-Expression"]:
        return [{"expression": expression}]
    classified = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier") or ()
        if text.startswith("License :: ")
    ]
    said = [line.strip() for line in (metadata["License"] or "").splitlines() if line.strip()][:1]
    return [{"license": {"name": name}} for name in classified or said]


def _of_debian(root: Path) -> Iterator[dict[str, Any]]:
    """Debian's packages in a file system, by its own records."""
    status = root / "var/lib/dpkg/status"
    for stanza in status.read_text().split("\n\n") if status.exists() else ():
        package = Parser().parsestr(stanza, headersonly=True)
        if package["Package"] and (package["Status"] or "").endswith(" installed"):
            name, version, machine = package["Package"], package["Version"], package["Architecture"]
            purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={machine}"
            yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    json.dump(document(Path(sys.argv[1]), Path(sys.argv[2])), sys.stdout, indent=1)
