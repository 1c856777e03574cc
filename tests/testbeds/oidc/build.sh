#!/usr/bin/env bash
# Installs an OpenID Connect provider for the tests, once, into a cache outside the tree: npm's oidc-provider, which is certified, by its lock.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/oidc-provider
. "$here/../npm.sh"
install_from_npm testbed-oidc
