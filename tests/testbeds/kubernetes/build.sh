#!/usr/bin/env bash
# Builds a Kubernetes of its own for the tests, once, into a cache outside the tree: Debian's source package of 1.20, of which only its
# server programs are built. Some ten minutes on two cores, and nothing when it is there. What was interrupted goes on where it was.
#
#   FEDERATOR_TESTBEDS   where; default ~/.cache/federator
#
# Why from source: no registry of images can be reached from where the tests run, and Debian ships only the client.
set -euo pipefail

place=${FEDERATOR_TESTBEDS:-$HOME/.cache/federator}/kubernetes-1.20
tree=$place/go/src/k8s.io/kubernetes
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet)
packages=(golang-go jq rsync make dpkg-dev golang-github-modern-go-reflect2-dev containerd runc busybox-static containernetworking-plugins iptables)

say() { echo "testbed-kubernetes: $*"; }

install_packages() {
  local lacking=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || lacking+=("$package")
  done
  ((${#lacking[@]})) || return 0
  if [[ $(id -u) -ne 0 ]]; then
    say "please install: apt-get install ${lacking[*]}" >&2
    exit 1
  fi
  say "installing ${lacking[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y install --no-install-recommends "${lacking[@]}" >/dev/null
}

# The source comes from wherever this machine's packages do; its own list of sources stays as it is.
fetch_source() {
  [[ -e $place/fetched ]] && return
  say "fetching the source package"
  rm -rf "$place/apt" "$place/source" && mkdir -p "$place/apt/lists/partial" "$place/source"
  apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    sort -u >"$place/apt/sources.list"
  local options=(-qq -o "Dir::Etc::sourcelist=$place/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$place/apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$place/source" && apt-get "${options[@]}" source --download-only kubernetes)
  touch "$place/fetched"
}

unpack_source() {
  [[ -e $place/unpacked ]] && return
  say "unpacking it"
  rm -rf "$place/go" && mkdir -p "$(dirname "$tree")"
  dpkg-source --no-check -x "$place"/source/*.dsc "$tree" >/dev/null
  # The vendored one crashes the API server on the first custom resource when it is built with this Go.
  rm -rf "$tree/vendor/github.com/modern-go/reflect2"
  cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 "$tree/vendor/github.com/modern-go/reflect2"
  cat >"$place/version.sh" <<'VERSION'
KUBE_GIT_COMMIT='debian'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v1.20.2'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
VERSION
  touch "$place/unpacked"
}

build() {
  say "building ${programs[*]} (some ten minutes on two cores; $place/build.log has what the compiler says)"
  export GOPATH=$place/go CGO_ENABLED=0 GOFLAGS=-mod=vendor GOPROXY=off GO111MODULE=on
  export KUBE_GIT_VERSION_FILE=$place/version.sh
  (cd "$tree" && exec nice -n 10 make WHAT="${programs[*]/#/cmd/}") >"$place/build.log" 2>&1 &
  local building=$! seconds=0
  trap 'kill $building 2>/dev/null || true' EXIT
  trap 'exit 130' INT TERM
  while kill -0 "$building" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    ((seconds % 60)) || say "still building after $((seconds / 60)) min: $(tail -n 1 "$place/build.log")"
  done
  trap - EXIT INT TERM
  if ! wait "$building"; then
    tail -n 40 "$place/build.log" >&2
    say "the build has failed; run it again to go on where it was, or remove $place to begin anew" >&2
    exit 1
  fi
  mkdir -p "$place/bin.new"
  for program in "${programs[@]}"; do
    install -s -m 755 "$tree/_output/local/bin/linux/$(go env GOARCH)/$program" "$place/bin.new/"
  done
  rm -rf "$place/bin" && mv "$place/bin.new" "$place/bin"
  # What is left is not needed any more, and takes gigabytes.
  rm -rf "$place/go" "$place/apt" "$place/source" "$place/fetched" "$place/unpacked"
}

mkdir -p "$place"
exec 9>"$place/lock"
flock 9 # two at once would write over each other
install_packages
if [[ ! -x $place/bin/kubelet ]]; then
  fetch_source
  unpack_source
  build
fi
say "ready in $place/bin"
