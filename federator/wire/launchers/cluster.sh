# What ends is started again: ten times in a row at most, unless it is not there at all.
again() {
  failed=0
  while [ "$failed" -lt 10 ]; do
    since=$(date +%s)
    "$@" &
    child=$!
    wait "$child"
    code=$?
    case $code in 126 | 127) exit $code ;; esac
    [ $(($(date +%s) - since)) -lt 60 ] || failed=0
    failed=$((failed + 1))
    echo "federator: $1 $2 has ended with exit code $code; it is started again in $failed s" >&2
    sleep $failed
  done
  echo "federator: $1 $2 has ended ten times in a row" >&2
  exit $((code ? code : 1))
}
first() { [ "$FEDERATOR_NODE_RANK" -eq 0 ]; }
# Signals go to the whole group. Rank 0 waits for the command, to have its exit code; the others end at once, and do not wait for a worker that seeks its head.
signals="HUP INT QUIT TERM USR1 USR2"
if first; then trap : $signals; else trap 'kill -KILL "$child" 2>/dev/null; exit 143' $signals; fi
# At the end of all, what was started here ends too, and its files go.
folder=$(mktemp -d "${TMPDIR:-/tmp}/federator-XXXXXX") || exit
trap 'trap "" TERM; kill 0; rm -rf "$folder"' EXIT
