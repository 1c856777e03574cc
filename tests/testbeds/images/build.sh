#!/usr/bin/env bash
# What the tests of the images build them from, as no registry can be reached from everywhere: a base made of Debian's packages, and the wheels of the locks, once for each version of those.
# Into a cache outside the tree; a minute.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

root=$(cd "$(dirname "$0")/../../.." && pwd)
place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/images
python=$root/.venv/bin/python
stamp=$place/$(cat "$root"/requirements/{agent,dispatcher,pip}.txt "$root"/deploy/images/base.sh | sha256sum | cut -c1-16)
[[ ! -e $stamp ]] || exit 0
rm -rf "$place"
mkdir -p "$place"
echo "testbed-images: making a base of Debian's packages"
"$root/deploy/images/base.sh" "$place/base.tar"
echo "testbed-images: loading wheels"
for lock in agent dispatcher pip; do
  "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: --dest="$place/wheels" --requirement="$root/requirements/$lock.txt"
done
touch "$stamp"
