package onceonly.kafka;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Gives a key the partition that Kafka's own partitioner gives it. A row without a key goes by its value. */
public final class Place implements UDF2<byte[], byte[], Integer> {
  private static final long serialVersionUID = 1;
  private static final int SEED = 42; // Spark's own, of the hash by which it shuffles

  private final int partitions;

  public Place(Integer partitions) {
    this.partitions = partitions;
  }

  @Override
  public Integer call(byte[] key, byte[] value) {
    byte[] hashed = key == null ? value : key;
    return hashed == null ? 0 : Utils.toPositive(Utils.murmur2(hashed)) % partitions;
  }

  /** The partition of each row. */
  public Column of(Column keys, Column values) {
    return functions.udf(this, DataTypes.IntegerType).apply(keys, values);
  }

  /** For each partition a number that Spark's shuffle sends to the task of (partition mod tasks). */
  public int[] slots(Integer tasks) {
    int[] found = new int[partitions];
    int next = 0;
    for (int partition = 0; partition < partitions; partition++) {
      while (Math.floorMod(Murmur3_x86_32.hashInt(next, SEED), tasks) != partition % tasks) {
        next++;
      }
      found[partition] = next++;
    }
    return found;
  }
}
