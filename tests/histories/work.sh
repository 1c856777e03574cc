#!/bin/sh
# A job of a history: sh work.sh FILE SECONDS. It draws its result by chance, so that nobody can know it who has not read it.
# Each line is one write to a file that was opened for appending.
token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
code=$(($(od -An -N1 -tu1 /dev/urandom) % 4))
write() {
    read -r now _ </proc/uptime
    echo "$1 $FEDERATOR_JOB_ID $FEDERATOR_PLACEMENT_ID $$ $now $code $token" >>"$file"
}
file=$1
write start
trap 'write stopped; exit 143' TERM
sleep "$2" &
wait $!
echo "$token"
write end
exit "$code"
