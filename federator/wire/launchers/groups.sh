# Groups of unlike ranks, side by side on the nodes of one gang: each that has a rank here is started. One that fails ends all.
signals="HUP INT QUIT TERM USR1 USR2"
told=
trap 'told=1' $signals # they go to all processes: who is told to leave has time for it
folder=$(mktemp -d "${TMPDIR:-/tmp}/federator-XXXXXX") && mkfifo "$folder/ends" && exec 3<>"$folder/ends" || exit
trap 'trap "" TERM; kill 0; rm -rf "$folder"' EXIT
running=0
# group NAME NODES CPUS MEMORY_MIB GPUS COMMAND...: NODES are the first so many, or all; without GPUS it sees none; of MEMORY_MIB 0 nothing is said.
group() {
  [ "$2" = all ] || [ "$FEDERATOR_NODE_RANK" -lt "$2" ] || return 0
  running=$((running + 1))
  (
    trap : $signals # its command is sent them, too, and how that ends is still to be told
    export FEDERATOR_GROUP="$1" FEDERATOR_CPUS_PER_NODE="$3" FEDERATOR_MEMORY_MIB_PER_NODE="$4"
    [ "$4" -gt 0 ] || unset FEDERATOR_MEMORY_MIB_PER_NODE
    [ "$2" = all ] || export FEDERATOR_NUM_NODES="$2" WORLD_SIZE="$2" PET_NNODES="$2"
    [ "$5" = gpus ] || export FEDERATOR_GPUS_PER_NODE=0 CUDA_VISIBLE_DEVICES= PET_NPROC_PER_NODE=1
    shift 5
    exec 4>&2 2>/dev/null # where this shell says that its command was ended, which is told in the end
    (exec 2>&4 3>&- 4>&- && exec "$@")
    echo "$FEDERATOR_GROUP $?" >&3
  ) &
}
