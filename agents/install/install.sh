#!/bin/sh
# Install the agent of Federator on a host, or into the file tree of a machine image; again to upgrade it; with --uninstall to remove it.
#
# What is there already stays: the user, the site file, the identity. The token is read from a file, from a pipe or from the terminal, never from the
# command line, where everybody on the host could see it, and it is never printed. Pip's own variables apply, for instance PIP_INDEX_URL, or PIP_NO_INDEX=1
# with PIP_FIND_LINKS=FOLDER where there is no network.
set -eu

from=federator
extras=agent,gpu
prefix=/opt/federator
user=federator
python=python3
root=
site=
kind=onprem
dispatcher=
ca=
token_file=
join=yes
start=yes
uninstall=
purge=

usage() {
    cat <<'TEXT'
usage: install.sh [options]

  --site NAME          the site that this host belongs to        } written into /etc/federator/site.yaml
  --kind KIND          onprem, cloud or edge (onprem)            } if that is not there yet
  --dispatcher URL     where the dispatcher is reached           }
  --ca FILE            PEM file of the private authority behind the dispatcher's certificate; copied to /etc/federator/ca.pem
  --token-file FILE    file with the one-time join token; - is standard input; else it is asked for on the terminal
  --no-join            neither join nor check nor start: for later, by hand
  --no-start           join and check, and start nothing
  --from WHAT          a wheel, a source folder, or what pip finds in its index (federator)
  --extras LIST        what to install with it (agent,gpu)
  --prefix DIR         where the programs go (/opt/federator)
  --user NAME          whose rights agent and jobs have (federator); made if it is not there
  --python PROGRAM     Python 3.11 or newer (python3)
  --root DIR           install into this file tree, for an image: no user is made, nothing joins, nothing starts
  --uninstall          remove programs and unit; refused while work is here
  --purge              with --uninstall: also the state, the site file and the identity
TEXT
}

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --no-join) join='' start='' ;;
        --no-start) start= ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        --site | --kind | --dispatcher | --ca | --token-file | --from | --extras | --prefix | --user | --python | --root)
            [ $# -gt 1 ] || fail "$1 wants a value (see --help)"
            case $1 in
                --site) site=$2 ;;
                --kind) kind=$2 ;;
                --dispatcher) dispatcher=$2 ;;
                --ca) ca=$2 ;;
                --token-file) token_file=$2 ;;
                --from) from=$2 ;;
                --extras) extras=$2 ;;
                --prefix) prefix=$2 ;;
                --user) user=$2 ;;
                --python) python=$2 ;;
                --root) root=${2%/} ;;
            esac
            shift
            ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
    shift
done

here=$(cd "$(dirname "$0")" && pwd)
programs=$root$prefix
config_dir=$root/etc/federator
config=$config_dir/site.yaml
units=$root/etc/systemd/system
unit=federator-agent.service
state=$root/var/lib/federator-agent

if [ -n "$root" ]; then
    join='' start=''
    [ -z "$token_file" ] || fail "--token-file does not go with --root: an image is many hosts, and each joins by a token of its own"
else
    [ "$(id -u)" = 0 ] || fail "run it as root, or with --root DIR"
fi

# The agent's own programs, as its user; what they read comes in by standard input.
agent() {
    runuser -u "$user" -- "$programs/bin/federator-agent" "$@"
}

has_systemd() {
    [ -z "$root" ] && [ -d /run/systemd/system ]
}

remove() {
    if has_systemd && [ -e "$units/$unit" ]; then
        systemctl disable --now "$unit" || true
    fi
    if [ -z "$root" ] && [ -x "$programs/bin/federator-agent" ] && [ -e "$state/identity.json" ]; then
        agent leave --config "$config" || fail "nothing is removed while work is here; 'systemctl enable --now $unit' goes on with it"
    fi
    rm -f "$units/$unit" "$units/multi-user.target.wants/$unit" "$root/etc/sysusers.d/federator-agent.conf"
    if has_systemd; then systemctl daemon-reload; fi
    rm -rf "$programs"
    if [ -n "$purge" ]; then rm -rf "$state" "$config_dir"; fi
    say "removed$([ -n "$purge" ] || echo "; the site file and the state are left, --purge removes them")"
}

make_user() {
    if [ -n "$root" ]; then
        # At its first start a host of this image makes the user itself.
        mkdir -p "$root/etc/sysusers.d"
        {
            printf 'u %s - "Federator agent" /var/lib/federator-agent\n' "$user"
            printf 'm %s video\nm %s render\n' "$user" "$user"
        } >"$root/etc/sysusers.d/federator-agent.conf"
        return
    fi
    id "$user" >/dev/null 2>&1 || useradd --system --user-group --create-home "$user"
    for group in video render; do
        if getent group "$group" >/dev/null; then usermod --append --groups "$group" "$user"; fi
    done
}

install_programs() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than 3.11: give another with --python"
    if [ ! -x "$programs/bin/python" ]; then
        mkdir -p "$(dirname "$programs")"
        "$python" -m venv "$programs" || fail "no virtual environment could be made: on Debian, install python3-venv"
    fi
    what=$from
    if [ -e "$from" ]; then what=$(cd "$(dirname "$from")" && pwd)/$(basename "$from"); fi
    # The same version may be another build: what is given is what is installed.
    if [ -e "$from" ]; then "$programs/bin/python" -m pip uninstall --quiet --yes federator >/dev/null 2>&1; fi
    "$programs/bin/python" -m pip --disable-pip-version-check --quiet install --upgrade "${what}[$extras]"
    if [ -n "$root" ]; then
        # The programs are going to be run where the tree is the root.
        for program in "$programs"/bin/*; do
            if [ -f "$program" ] && [ ! -L "$program" ]; then sed -i "1s|^#!$root|#!|" "$program"; fi
        done
    fi
    say "installed $("$programs/bin/python" -c 'import importlib.metadata as m; print("federator", m.version("federator"))') in $prefix"
}

write_config() {
    mkdir -p "$config_dir"
    if [ -n "$ca" ]; then install -m 0644 "$ca" "$config_dir/ca.pem"; fi
    if [ -e "$config" ]; then
        say "kept $config"
        return
    fi
    [ -n "$site" ] && [ -n "$dispatcher" ] || fail "there is no $config yet: give --site and --dispatcher, or write it first"
    {
        say "site: $site"
        say "kind: $kind"
        say "dispatcher: $dispatcher"
        if [ -e "$config_dir/ca.pem" ]; then say "ca: /etc/federator/ca.pem"; fi
        say "state_dir: /var/lib/federator-agent"
        cat <<'TEXT'

# What this host has is found out by asking it. To say it, or to lend only a part, see the reference of the site file:
# pools:
#   - {name: a100, model: A100, gpu_memory: 80GB, nodes: 1, gpus_per_node: 8, cpus_per_node: 96, memory_per_node: 1TiB}
# lend:
#   gpus: {a100: 6}
#   hours: 18:00-08:00
#   timezone: Europe/Zurich
#   queues: [research]
TEXT
    } >"$config.new"
    chmod 0644 "$config.new"
    mv "$config.new" "$config"
    say "wrote $config"
}

install_unit() {
    mkdir -p "$units"
    sed -e "s|^User=.*|User=$user|" -e "s|/opt/federator/|$prefix/|" "$here/$unit" >"$units/$unit"
    chmod 0644 "$units/$unit"
    if [ -n "$root" ]; then
        mkdir -p "$units/multi-user.target.wants"
        ln -sf "../$unit" "$units/multi-user.target.wants/$unit"
    fi
}

make_state() {
    if [ -n "$root" ]; then return; fi
    runuser -u "$user" -- "$programs/bin/federator-agent" --help >/dev/null 2>&1 \
        || fail "user $user cannot run $prefix/bin/federator-agent: is $python where only root may read? Give another with --python, and remove $prefix first"
    install -d -m 0700 -o "$user" -g "$user" "$state"
}

join_federation() {
    if [ -e "$state/identity.json" ]; then
        say "this host has joined already"
    elif [ "$token_file" = - ]; then
        agent join --config "$config" --token -
    elif [ -n "$token_file" ]; then
        agent join --config "$config" --token - <"$token_file"
    elif [ -t 0 ]; then
        printf 'One-time join token (it is not shown): '
        trap 'stty echo' EXIT INT TERM
        stty -echo
        IFS= read -r token
        stty echo
        trap - EXIT INT TERM
        printf '\n'
        printf '%s\n' "$token" | agent join --config "$config" --token -
    else
        fail "no join token is given: use --token-file, or --no-join to join later"
    fi
    agent check --config "$config" || fail "the check has failed, see above; nothing was started"
}

if [ -n "$uninstall" ]; then
    remove
    exit 0
fi
if [ ! -x "$root/usr/bin/bwrap" ] && { [ -n "$root" ] || ! command -v bwrap >/dev/null; }; then
    say "bubblewrap is not installed${root:+ in $root}: jobs are not kept apart, and only work of trusted people is taken. Install the package bubblewrap"
fi
make_user
install_programs
write_config
install_unit
make_state
if [ -n "$join" ]; then join_federation; fi
if has_systemd; then
    systemctl daemon-reload
    if [ -n "$start" ]; then
        systemctl enable "$unit"
        systemctl restart "$unit"
        say "started: systemctl status federator-agent"
    fi
elif [ -z "$root" ] && [ -n "$start" ]; then
    say "there is no systemd here: start it by whatever starts services, as user $user:"
    say "  $prefix/bin/federator-agent serve --config /etc/federator/site.yaml"
fi
