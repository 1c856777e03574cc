# Each rank runs DeepSpeed's launcher for its own processes, without ssh. That numbers the GPUs from 0: the site's numbers are put back.
[ "$processes" -gt 0 ] || processes=$((FEDERATOR_GPUS_PER_NODE > 0 ? FEDERATOR_GPUS_PER_NODE : 1))
hosts=$(mktemp) || exit
trap 'rm -f "$hosts"' EXIT
trap : HUP INT QUIT TERM USR1 USR2
rank=0
while [ "$rank" -lt "$FEDERATOR_NUM_NODES" ]; do
  echo "rank-$rank slots=$processes"
  rank=$((rank + 1))
done >"$hosts"
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  export FEDERATOR_DEVICES="$CUDA_VISIBLE_DEVICES"
  set -- sh -c 'CUDA_VISIBLE_DEVICES=$FEDERATOR_DEVICES exec "$@"' sh "$@"
fi
deepspeed --hostfile "$hosts" --no_ssh --node_rank "$FEDERATOR_NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
  --no_python --no_local_rank "$@"
