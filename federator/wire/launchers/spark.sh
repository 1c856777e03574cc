# Rank 0 has the master of a standalone cluster and runs the command, which spark-submit and SparkSession take to it (client mode); each rank has a worker.
export MASTER="spark://$MASTER_ADDR:$MASTER_PORT"
export SPARK_LOCAL_DIRS="$folder"
[ -n "${SPARK_HOME:-}" ] || SPARK_HOME=$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))') || {
  echo "federator: there is no Spark here: set SPARK_HOME, or install pyspark" >&2
  exit 127
}
class="$SPARK_HOME/bin/spark-class"
worker() {
  again "$class" org.apache.spark.deploy.worker.Worker --webui-port 0 --work-dir "$folder" --cores "$FEDERATOR_CPUS_PER_NODE" \
    ${FEDERATOR_MEMORY_MIB_PER_NODE:+--memory "${FEDERATOR_MEMORY_MIB_PER_NODE}m"} "$MASTER"
}
first || worker
export SPARK_LOCAL_HOSTNAME="$MASTER_ADDR"
"$class" org.apache.spark.deploy.master.Master --host "$MASTER_ADDR" --port "$MASTER_PORT" --webui-port 0 &
worker &
"$@"
