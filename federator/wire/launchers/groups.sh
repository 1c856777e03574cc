# Groups of unlike ranks, side by side on the nodes of one gang: each that has a rank here is started. One that fails ends all.
signals="HUP INT QUIT TERM USR1 USR2"
told=
trap 'told=1' $signals # they go to all processes: who is told to leave has time for it
folder=$(mktemp -d "${TMPDIR:-/tmp}/federator-XXXXXX") && mkfifo "$folder/ends" && exec 3<>"$folder/ends" && rm -rf "$folder" || {
  echo 'federator: groups need mktemp, mkfifo and a place for files at TMPDIR or /tmp' >&2
  exit 125
}
trap 'trap "" TERM; kill 0' EXIT
running=0
result=0
# group NAME NODES CPUS MEMORY_MIB COMMAND...: NODES are the first so many, and it sees no GPUs; or all, and it has what is left of the node by CPUS and MEMORY_MIB.
group() {
  [ "$2" = all ] || [ "$FEDERATOR_NODE_RANK" -lt "$2" ] || return 0
  [ -z "$told" ] || { result=143; return 0; } # its command would not know that it is to leave
  running=$((running + 1))
  (
    trap : $signals # its command is sent them, too, and how that ends is still to be told
    cpus=$3 memory=$4
    if [ "$2" = all ]; then
      cpus=$((FEDERATOR_CPUS_PER_NODE - cpus)) memory=$((${FEDERATOR_MEMORY_MIB_PER_NODE:-0} - memory))
      [ "$cpus" -gt 0 ] || cpus=1
    else
      export FEDERATOR_NUM_NODES="$2" WORLD_SIZE="$2" PET_NNODES="$2"
      export FEDERATOR_GPUS_PER_NODE=0 CUDA_VISIBLE_DEVICES= PET_NPROC_PER_NODE=1
      unset FEDERATOR_GPU_SHARE FEDERATOR_GPU_MEMORY_MIB
    fi
    export FEDERATOR_GROUP="$1" FEDERATOR_CPUS_PER_NODE="$cpus" FEDERATOR_MEMORY_MIB_PER_NODE="$memory"
    [ "$memory" -gt 0 ] || unset FEDERATOR_MEMORY_MIB_PER_NODE
    shift 4
    exec 4>&2 2>/dev/null # where this shell says that its command was ended, which is told in the end
    (exec 2>&4 3>&- 4>&- && exec "$@")
    echo "$FEDERATOR_GROUP $?" >&3
  ) &
}
