#!/usr/bin/env bash
# Installs what tests of the console need, once, into a cache outside the tree: TypeScript, which checks the types of its modules, and axe, which audits
# its pages. The browser is the machine's own: apt-get install chromium.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/console
. "$here/../npm.sh"
install_from_npm testbed-console
