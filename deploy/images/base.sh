#!/bin/sh
# Makes a base for the images out of Debian's own packages, for places where no registry can be reached: a small Debian 12 with its Python 3.11, as a tar file.
# The same packages give the same bytes. Wants the program mmdebstrap (a package of Debian and Ubuntu) and what apt is configured to load from.
#
#   deploy/images/base.sh build/base.tar && podman import build/base.tar localhost/federator-base && make images BASE=localhost/federator-base
set -eu
[ $# = 1 ] || { echo "usage: base.sh FILE" >&2 && exit 2; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1704067200} && export SOURCE_DATE_EPOCH
exec mmdebstrap --quiet --variant=essential --include=python3-minimal,libpython3-stdlib,libstdc++6,ca-certificates,tzdata \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$1"
