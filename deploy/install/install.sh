#!/bin/sh
# Install the agent or the dispatcher of Federator on a host, or into the file tree of a machine image; again to upgrade it; with --rollback to go back; with
# --uninstall to remove it.
#
# It lies in a bundle (`make bundle`) beside the program and the list of the packages that it needs. Each file is checked by hash before it is installed. What is
# there already stays: the user, the settings, the identity, the state. A join token is read from a file, from a pipe or from the terminal, never from the command
# line, where everybody on the host could see it, and it is never printed. Pip's own variables apply, for instance PIP_INDEX_URL, or PIP_NO_INDEX=1 with
# PIP_FIND_LINKS=FOLDER where there is no network.
#
# Each version has a folder of its own, and `current` is a link to one of them. So what runs keeps its own files until it is restarted, and going back is a link.
set -eu
# What it installs is read by others than root, whatever root's own umask is. What is not is made so where it is made.
umask 022

role=
user=
python=python3
root=
site=
kind=onprem
dispatcher=
federation=
ca=
token_file=
template=
join=yes
start=yes
rollback=
uninstall=
purge=
within=120

usage() {
    cat <<'TEXT'
usage: install.sh agent|dispatcher [options]

of an agent:
  --site NAME          the site that this host belongs to        } written into /etc/federator/site.yaml
  --kind KIND          onprem, cloud or edge (onprem)            } if that is not there yet
  --dispatcher URL     where the dispatcher is reached           }
  --ca FILE            PEM file of the private authority behind the dispatcher's certificate; copied to /etc/federator/ca.pem
  --template FILE      write the site file from this one, which many sites share; 'site: NAME' of --site is put first
  --token-file FILE    file with the join token; - is standard input; else it is asked for on the terminal
  --within SECONDS     how long the agent may take, after an upgrade, to reach the dispatcher as before (120); else the version before comes back
  --no-join            neither join nor check nor start: for later, by hand

of a dispatcher:
  --federation NAME    written into /etc/federator/dispatcher.yaml if that is not there yet

of both:
  --no-start           start nothing; what runs goes on as it is
  --user NAME          whose rights it has (federator; federator-dispatcher); made if it is not there
  --python PROGRAM     Python 3.11 or newer (python3)
  --root DIR           install into this file tree, for an image: no user is made, nothing joins, nothing starts
  --rollback           go back to the version that was installed before this one
  --uninstall          remove programs and unit; an agent refuses while work is here
  --purge              with --uninstall: also the settings, the state and the identity; what may be another's is left, and said so
TEXT
}

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Where the agent keeps its state, as the site file says it, or the template that it is made from.
state_dir() {
    said=
    from=$root$config
    [ -e "$from" ] || from=$template
    if [ -r "$from" ]; then
        said=$(sed -n "s/^state_dir:[[:space:]]*[\"']\{0,1\}\([^\"'#]*[^\"'#[:space:]]\).*/\1/p" "$from" | head -n 1)
    fi
    case $said in
        '') echo "$default_state" ;;
        /*) echo "${said%/}" ;;
        *) echo "$(dirname "$config")/${said%/}" ;;
    esac
}

case ${1:-} in
    agent | dispatcher) role=$1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac
shift
while [ $# -gt 0 ]; do
    case $1 in
        --no-join) join='' start='' ;;
        --no-start) start= ;;
        --rollback) rollback=yes ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        --site | --kind | --dispatcher | --federation | --ca | --template | --token-file | --within | --user | --python | --root)
            [ $# -gt 1 ] || fail "$1 wants a value (see --help)"
            case $1 in
                --site) site=$2 ;;
                --kind) kind=$2 ;;
                --dispatcher) dispatcher=$2 ;;
                --federation) federation=$2 ;;
                --ca) ca=$2 ;;
                --template) template=$2 ;;
                --token-file) token_file=$2 ;;
                --within) within=$2 ;;
                --user) user=$2 ;;
                --python) python=$2 ;;
                --root) root=$(realpath -m -- "$2") || fail "--root wants a folder" ;;
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

case $within in '' | *[!0-9]*) fail "--within wants a number of seconds" ;; esac

here=$(cd "$(dirname "$0")" && pwd)
prefix=/opt/federator/$role
programs=$root$prefix
config_dir=$root/etc/federator
units=$root/etc/systemd/system
unit=federator-$role.service
sysusers=$root/etc/sysusers.d/federator-$role.conf
tmpfiles=$root/etc/tmpfiles.d/federator-$role.conf
if [ "$role" = agent ]; then
    config=/etc/federator/site.yaml
    default_state=/var/lib/federator-agent
    state=$(state_dir)
    program=federator-agent
    default_user=federator
else
    config=/etc/federator/dispatcher.yaml
    # Its unit says so, whatever the settings say.
    default_state=/var/lib/federator
    state=$default_state
    program=federator
    default_user=federator-dispatcher
    [ -z "$site$dispatcher$ca$template$token_file" ] || fail "--site, --dispatcher, --ca, --template and --token-file are of an agent: install.sh agent"
fi
# An upgrade keeps the user that the unit has.
if [ -z "$user" ] && [ -e "$units/$unit" ]; then user=$(sed -n 's/^User=//p' "$units/$unit"); fi
user=${user:-$default_user}

if [ -n "$root" ]; then
    join='' start=''
    [ -z "$token_file" ] || fail "--token-file does not go with --root: an image is many hosts, and each joins by a token of its own"
    # Under whatever name: what runs here would be taken away from below itself.
    [ "$(stat -Lc %d:%i "$root" 2>/dev/null)" != "$(stat -c %d:%i /)" ] || fail "--root $root is this host itself: leave --root out"
    # An absolute link of an image means another place here.
    for folder in "$programs" "$config_dir" "$units/multi-user.target.wants" "$(dirname "$sysusers")" "$(dirname "$tmpfiles")" "$root/usr/local/bin"; do
        case $(realpath -m -- "$folder") in "$root"/*) ;; *) fail "$folder leads out of $root by a link: make that link relative" ;; esac
    done
else
    [ "$(id -u)" = 0 ] || fail "run it as root, or with --root DIR"
fi

# A program of that version, as its user; what it reads comes in by standard input.
run_as_user() {
    runuser -u "$user" -- "$@"
}

has_systemd() {
    [ -z "$root" ] && [ -d /run/systemd/system ]
}

# Where the agent itself says that its state is. Nothing where it cannot say, or its site file does not: then it was for the environment of whatever has run it.
ask_state() {
    [ "$role" = agent ] && [ -z "$root" ] && [ -x "$programs/current/bin/python" ] || return 0
    program_says='import pathlib, sys; from federator_agent import config; print(config.load(pathlib.Path(sys.argv[1])).state_dir)'
    run_as_user env FEDERATOR_AGENT_STATE_DIR=/ "$programs/current/bin/python" -c "$program_says" "$config" 2>/dev/null | grep -vx / || true
}

# What an agent makes in its state directory. A folder in which anything else lies is not its alone.
own_files='specs|lock|journal|gang-key|placements|checkpoints|saved|inputs|setups|blobs|outputs-read|slurm|owner|home|identity\.json|key|key\.(next|steps|lock)|host\.key|ca\.pem|alive|paused|renewed|\..*\.new|(check|probe)-[^.]*'

# Why the folder of the state is not removed; nothing: it is this agent's or dispatcher's own, and holds nobody else's.
doubt() {
    if [ -n "$root" ]; then
        echo "in a file tree no state is removed"
    elif [ "$(realpath -- "$state")" != "$state" ]; then
        echo "its path has links or '..' in it"
    elif [ ! -d "$state" ] || [ "$(dirname "$state")" = / ] || [ "$(stat -c %U -- "$state")" != "$user" ]; then
        echo "it is not a folder of user $user's below the top ones"
    elif [ "$role" = agent ] && { [ ! -d "$state/specs" ] || [ ! -e "$state/lock" ]; }; then
        echo "it does not look like an agent's"
    elif ! others=$(find "$state" -mindepth 2 \( -name identity.json -o -name specs -type d -exec test -e '{}/../lock' \; \) -print -quit) || ! names=$(find "$state" -mindepth 1 -maxdepth 1 -printf '%f\n'); then
        echo "it cannot be looked through"
    elif [ -n "$others" ]; then
        echo "the folder of another agent is in it"
    elif [ "$role" = agent ]; then
        printf '%s\n' "$names" | grep -vxE "$own_files" | sed 's/.*/no agent has made the & in it/;q'
    fi
}

purge() {
    if [ "$role" = agent ] && [ -z "$root" ] && [ -z "$known" ]; then
        say "$config and the state are left: only an installed agent can say for sure where that is, by a site file without mistakes that has 'state_dir'. Look into both, and remove them by hand"
        return
    fi
    why=
    if [ -e "$root$state" ] || [ -L "$root$state" ]; then why=$(doubt); fi
    if [ -n "$why" ]; then
        say "$root$state is left: $why. Look into it (ls -la '$root$state'), and remove by hand what may go"
    elif [ -z "$root" ]; then
        rm -rf --one-file-system "${state:?}" || say "of $state something is left, see above"
    fi
    rm -rf "$root$config" "$tmpfiles"
    if [ "$role" = agent ]; then rm -f "$config_dir/ca.pem"; fi
}

remove() {
    known=$(ask_state)
    state=${known:-$state}
    if has_systemd && [ -e "$units/$unit" ]; then
        systemctl disable --now "$unit" || true
    fi
    if [ "$role" = agent ] && [ -z "$root" ] && [ -x "$programs/current/bin/$program" ] && [ -e "$state/identity.json" ]; then
        run_as_user "$programs/current/bin/$program" leave --config "$config" ||
            fail "nothing is removed while work is here; 'systemctl enable --now $unit' goes on with it"
    fi
    rm -f "$units/$unit" "$units/multi-user.target.wants/$unit" "$sysusers"
    if [ -L "$root/usr/local/bin/$program" ]; then rm "$root/usr/local/bin/$program"; fi
    if has_systemd; then systemctl daemon-reload; fi
    rm -rf "$programs"
    if [ -n "$purge" ]; then purge; fi
    for folder in "$root/opt/federator" "$config_dir"; do rmdir "$folder" 2>/dev/null || true; done
    say "removed$([ -n "$purge" ] || echo "; $config and $state are left")"
}

make_user() {
    if [ -n "$root" ]; then
        # At its first start a host of this image makes the user itself.
        mkdir -p "$(dirname "$sysusers")"
        printf 'u %s - "Federator %s" %s\n' "$user" "$role" "$state" >"$sysusers"
        if [ "$role" = agent ]; then
            printf 'm %s video\nm %s render\n' "$user" "$user" >>"$sysusers"
        else
            # And gives it its settings to read, which no group could be given while it was not there.
            mkdir -p "$(dirname "$tmpfiles")"
            printf 'z %s 0640 root %s -\n' "$config" "$user" >"$tmpfiles"
        fi
        return
    fi
    if [ "$role" = agent ]; then
        id "$user" >/dev/null 2>&1 || useradd --system --user-group --create-home "$user"
        for group in video render; do
            if getent group "$group" >/dev/null; then usermod --append --groups "$group" "$user"; fi
        done
    else
        id "$user" >/dev/null 2>&1 || useradd --system --user-group --home-dir "$state" "$user"
    fi
}

# By the bundle's own pip, as not every Python has one.
install_packages() {
    PYTHONPATH="$(ls "$here"/pip-*.whl)${PYTHONPATH:+:$PYTHONPATH}" "$programs/$release/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps "$@"
}

# The folder of the version in this bundle, once it is whole.
install_programs() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than 3.11: give another with --python"
    [ -e "$here/SHA256SUMS" ] || fail "there is nothing to install beside $0: run 'make bundle' and use the install.sh of the bundle"
    (cd "$here" && sha256sum --check --quiet --strict SHA256SUMS) || fail "the bundle is damaged: fetch it again"
    wheel=$(ls "$here"/federator-*.whl)
    version=$(basename "$wheel" | cut -d- -f2)
    # The same version may be another build.
    release=$version-$(cat "$wheel" "$here/$role.txt" | sha256sum | cut -c1-8)
    if [ ! -e "$programs/$release/installed" ]; then
        rm -rf "${programs:?}/$release"
        mkdir -p "$programs"
        "$python" -m venv --without-pip "$programs/$release" || fail "no virtual environment could be made with $python: give another with --python"
        if [ -d "$here/packages" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/packages"; fi
        install_packages --only-binary :all: --require-hashes --requirement "$here/$role.txt" || fail "not every package could be had with its hash, see above; what runs is as it was"
        install_packages --no-index "$wheel"
        if [ "$role" = dispatcher ]; then
            "$programs/$release/bin/python" -m federator.planning.kernels || say "the planner is compiled at the first start, which takes a while"
        fi
        if [ -n "$root" ]; then
            # The programs are going to be run where the tree is the root.
            for each in "$programs/$release"/bin/*; do
                if [ -f "$each" ] && [ ! -L "$each" ]; then sed -i "1s|^#!$root|#!|" "$each"; fi
            done
        fi
        touch "$programs/$release/installed"
    fi
    cp "$here/$unit" "$programs/$release/$unit"
}

# What is to be replaced is asked for first whether it may be.
check_settings() {
    if [ -n "$root" ] || [ "$role" = agent ]; then return; fi
    run_as_user "$programs/$release/bin/$program" serve --config "$config" --check || fail "the settings are not those of this version, see above; what runs is as it was"
}

link() {
    ln -sfn "$1" "$programs/$2.new"
    mv -fT "$programs/$2.new" "$programs/$2"
}

use() {
    present=$(readlink "$programs/current" || true)
    if [ "$present" != "$1" ]; then
        if [ -n "$present" ]; then link "$present" previous; fi
        link "$1" current
    fi
    mkdir -p "$root/usr/local/bin"
    ln -sfn "$prefix/current/bin/$program" "$root/usr/local/bin/$program"
    say "$role: federator $1 in $prefix${present:+, before: $present}"
}

# Versions that nobody could go back to, and that nothing runs from.
forget_old() {
    for folder in "$programs"/*/; do
        name=$(basename "$folder")
        case $name in current | previous | "$(readlink "$programs/current")" | "$(readlink "$programs/previous" || true)") continue ;; esac
        if [ -n "$root" ] || ! grep -qsF "$prefix/$name/" /proc/[0-9]*/cmdline; then rm -rf "${programs:?}/$name"; fi
    done
}

write_config() {
    mkdir -p "$config_dir"
    if [ -n "$ca" ]; then install -m 0644 "$ca" "$config_dir/ca.pem"; fi
    if [ -e "$root$config" ]; then
        say "kept $config"
        return
    fi
    if [ "$role" = agent ]; then
        agent_config >"$root$config.new"
        chmod 0644 "$root$config.new"
    else
        # It may come to have passwords, of mail servers for instance.
        (umask 027 && dispatcher_config >"$root$config.new")
        chmod 0640 "$root$config.new"
        if [ -z "$root" ]; then chgrp "$user" "$root$config.new"; fi
    fi
    mv "$root$config.new" "$root$config"
    say "wrote $config"
}

agent_config() {
    say "site: $site"
    if [ -n "$template" ]; then
        cat "$template"
        return
    fi
    say "kind: $kind"
    say "dispatcher: $dispatcher"
    if [ -e "$config_dir/ca.pem" ]; then say "ca: /etc/federator/ca.pem"; fi
    say "state_dir: $state"
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
}

dispatcher_config() {
    cat <<TEXT
# Settings of the dispatcher; docs/reference/settings.md has every key. After a change: systemctl restart federator-dispatcher
federation: $federation            # the tag on everything it rents: no two federations may share one in an account
state_dir: $state

server:
  host: 127.0.0.1            # beyond loopback only with a certificate, which this user must be able to read:
  port: 7070
  # host: 0.0.0.0
  # advertise: https://federator.example.org:7070
  # tls: {cert: /etc/federator/tls.crt, key: /etc/federator/tls.key}
TEXT
}

# Of the version in that folder, as each goes with a unit of its own.
install_unit() {
    # Installed before there were any: the one that is there stays.
    [ -e "$programs/$1/$unit" ] || return 0
    mkdir -p "$units"
    sed -e "s|^User=.*|User=$user|" "$programs/$1/$unit" >"$units/$unit"
    chmod 0644 "$units/$unit"
    if [ -n "$root" ]; then
        mkdir -p "$units/multi-user.target.wants"
        ln -sf "../$unit" "$units/multi-user.target.wants/$unit"
    fi
}

make_state() {
    if [ -n "$root" ]; then return; fi
    run_as_user "$programs/$release/bin/$program" --help >/dev/null 2>&1 ||
        fail "user $user cannot run $prefix/$release/bin/$program: is $python where only root may read? Give another with --python, and remove $prefix/$release first"
    if [ "$state" = "$default_state" ] || [ ! -e "$state" ]; then install -d -m 0700 -o "$user" -g "$user" "$state"; fi
}

join_federation() {
    agent=$programs/$release/bin/$program
    if [ -e "$state/identity.json" ]; then
        say "this host has joined already"
    elif [ "$token_file" = - ]; then
        run_as_user "$agent" join --config "$config" --token -
    elif [ -n "$token_file" ]; then
        run_as_user "$agent" join --config "$config" --token - <"$token_file"
    elif [ -t 0 ]; then
        printf 'One-time join token (it is not shown): '
        trap 'stty echo' EXIT INT TERM
        stty -echo
        IFS= read -r token
        stty echo
        trap - EXIT INT TERM
        printf '\n'
        printf '%s\n' "$token" | run_as_user "$agent" join --config "$config" --token -
    else
        fail "no join token is given: use --token-file, or --no-join to join later"
    fi
    run_as_user "$agent" check --config "$config" || fail "the check has failed, see above; nothing was started"
}

# Whether the agent that runs has a session with the dispatcher, as it says itself.
connected() {
    [ "$role" = agent ] && [ "$(cat "$state/alive" 2>/dev/null)" = connected ]
}

# Start it anew. An agent that was connected has to be so again in time: one that the dispatcher does not understand runs, and is cut off for good.
start_anew() {
    if systemctl --quiet is-active "$unit" && connected; then was_connected=yes; fi
    complaint="it does not start"
    systemctl restart "$unit" || return 1
    [ -n "$was_connected" ] || return 0
    complaint="it has not reached the dispatcher within $within s"
    until=$(($(date +%s) + within))
    until connected; do
        [ "$(date +%s)" -lt "$until" ] || return 1
        sleep 1
    done
}

# Have it run as `current` says. A version that does not start, or does not reach the dispatcher as the one before did, gives way to that.
restart() {
    if ! has_systemd; then
        if [ -z "$root" ] && [ -n "$start" ]; then
            say "there is no systemd here: start it by whatever starts services, as user $user:"
            say "  $prefix/current/bin/$program serve --config $config"
        fi
        return
    fi
    systemctl daemon-reload
    [ -n "$start" ] || return 0
    systemctl --quiet enable "$unit"
    was_connected=
    if start_anew; then
        say "started: systemctl status federator-$role"
        return
    fi
    journalctl --no-pager --lines 20 --unit "$unit" >&2 || true
    [ -n "$1" ] && [ "$1" != "$(readlink "$programs/current")" ] || fail "$complaint, see above"
    link "$1" current
    if [ -n "$older" ]; then link "$older" previous; else rm -f "$programs/previous"; fi
    install_unit "$1"
    systemctl daemon-reload
    systemctl restart "$unit" || fail "neither this version starts nor the one before, $1; see journalctl -u federator-$role"
    fail "$complaint, see above; the version before, $1, runs again"
}

if [ -n "$uninstall" ]; then
    remove
    exit 0
fi
before=$(readlink "$programs/current" || true)
older=$(readlink "$programs/previous" || true)
if [ -n "$rollback" ]; then
    release=$older
    [ -n "$release" ] && [ "$release" != "$before" ] && [ -e "$programs/$release/installed" ] || fail "there is no version before the present one in $prefix"
    check_settings
    use "$release"
    install_unit "$release"
    restart "$before"
    exit 0
fi
if [ "$role" = agent ] && [ ! -x "$root/usr/bin/bwrap" ] && { [ -n "$root" ] || ! command -v bwrap >/dev/null; }; then
    say "bubblewrap is not installed${root:+ in $root}: jobs are not kept apart, and only work of trusted people is taken. Install the package bubblewrap"
fi
if [ -e "$root$config" ]; then
    :
elif [ "$role" = agent ]; then
    [ -n "$site" ] && [ -n "$dispatcher$template" ] || fail "there is no $config yet: give --site and --dispatcher or --template, or write it first"
    if [ -n "$template" ]; then
        [ -r "$template" ] || fail "--template $template cannot be read"
        ! grep -q '^site:' "$template" || fail "$template says 'site:' itself: leave it out there, --site names it"
        grep -q '^dispatcher:' "$template" || fail "$template does not say where the dispatcher is: write 'dispatcher: URL' there"
    fi
else
    [ -n "$federation" ] || fail "there is no $config yet: give --federation, or write it first"
fi
make_user
write_config
install_programs
make_state
check_settings
if [ -n "$join" ] && [ "$role" = agent ]; then join_federation; fi
use "$release"
install_unit "$release"
restart "$before"
forget_old
if [ "$role" = dispatcher ] && [ -n "$start" ] && [ -z "$before" ]; then
    say "the first administrator's token is in $state/admin.token: export FEDERATOR_SERVER=\$(cat $state/address) FEDERATOR_TOKEN=\$(cat $state/admin.token)"
fi
