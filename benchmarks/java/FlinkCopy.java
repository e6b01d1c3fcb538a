import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Copies a topic into another one, exactly once, with a commit each second.
 *
 * <p>Arguments: bootstrap servers, both topics, a directory for checkpoints, then options of the producer as name=value.
 * Says {@code ready}, and begins at a line of its standard input.
 */
public final class FlinkCopy {
  private FlinkCopy() {}

  public static void main(String[] given) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "1000 ms");
    settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", "file://" + given[3]);
    settings.setString("pipeline.object-reuse", "true");
    StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
    KafkaSource<Tuple2<byte[], byte[]>> source =
        KafkaSource.<Tuple2<byte[], byte[]>>builder()
            .setBootstrapServers(given[0])
            .setTopics(given[1])
            .setGroupId("copy-into-" + given[2])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Reading())
            .build();
    var sink =
        KafkaSink.<Tuple2<byte[], byte[]>>builder()
            .setBootstrapServers(given[0])
            .setRecordSerializer(new Writing(given[2]))
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(given[2])
            .setProperty("transaction.timeout.ms", "600000");
    for (int at = 4; at < given.length; at++) {
      String[] option = given[at].split("=", 2);
      sink.setProperty(option[0], option[1]);
    }
    job.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink.build());
    System.out.println("ready");
    System.in.read();
    job.execute("copy");
  }

  private static final class Reading implements KafkaRecordDeserializationSchema<Tuple2<byte[], byte[]>> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> row, Collector<Tuple2<byte[], byte[]>> out) {
      out.collect(Tuple2.of(row.key(), row.value()));
    }

    @Override
    public TypeInformation<Tuple2<byte[], byte[]>> getProducedType() {
      return TypeInformation.of(new TypeHint<Tuple2<byte[], byte[]>>() {});
    }
  }

  private static final class Writing implements KafkaRecordSerializationSchema<Tuple2<byte[], byte[]>> {
    private final String topic;

    private Writing(String topic) {
      this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Tuple2<byte[], byte[]> row, KafkaSinkContext at, Long time) {
      return new ProducerRecord<>(topic, row.f0, row.f1);
    }
  }
}
