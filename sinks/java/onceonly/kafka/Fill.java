package onceonly.kafka;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;

/**
 * Sends the rows of a task in a transaction that the driver began and will end.
 *
 * <p>The driver's producer has fenced. A producer made here resumes its id and epoch. It neither initialises nor ends a
 * transaction. Brokers number the records of each id, epoch and partition, so two producers must not write one
 * partition. A second attempt of a task would be a second producer, and is refused.
 */
public final class Fill implements MapPartitionsFunction<Row, String> {
  private static final long serialVersionUID = 1;
  private static final String MANAGER = "org.apache.kafka.clients.producer.internals.TransactionManager";
  private static final Map<String, Shared> SHARED = new ConcurrentHashMap<>();

  private final HashMap<String, Object> settings;
  private final String topic;
  private final long producerId;
  private final short epoch;
  private final boolean shared;
  private final int partitions;

  /**
   * For rows of a value, then perhaps a key, then perhaps a partition.
   *
   * @param shared whether all tasks run in this JVM, where they share a producer and any of them may write anywhere.
   *     Elsewhere a task without keys writes each n-th partition of n tasks.
   * @param partitions of the topic
   */
  public Fill(
      Map<String, Object> settings, String topic, Number producerId, Number epoch, Boolean shared, Integer partitions) {
    this.settings = new HashMap<>(settings);
    this.topic = topic;
    this.producerId = producerId.longValue();
    this.epoch = epoch.shortValue();
    this.shared = shared;
    this.partitions = partitions;
  }

  /** Says why this version of Kafka's client cannot do it, or is empty. */
  public static String lacks() {
    String version = AppInfoParser.getVersion();
    if (!version.startsWith("3.")) {
      return "Kafka's client here is " + version + ", and 3 is known"; // 4 ends transactions otherwise (KIP-890)
    }
    try {
      Class<?> manager = Class.forName(MANAGER);
      KafkaProducer.class.getDeclaredField("transactionManager");
      manager.getDeclaredField("transactionStarted");
      manager.getDeclaredField("producerIdAndEpoch").getType().getDeclaredConstructor(long.class, short.class);
      for (String state : new String[] {"INITIALIZING", "READY", "IN_TRANSACTION"}) {
        state(transition(manager), state);
      }
      return "";
    } catch (ReflectiveOperationException error) {
      return "Kafka's client here lacks " + error.getMessage();
    }
  }

  /**
   * Sends the rows, and returns their number once the brokers have them.
   *
   * <p>What cannot be sent is returned, too: thrown, Spark would try the task again, and show what that one threw.
   */
  @Override
  public Iterator<String> call(Iterator<Row> rows) throws InterruptedException {
    TaskContext context = TaskContext.get();
    if (context.attemptNumber() > 0 || context.stageAttemptNumber() > 0) {
      return Collections.singleton("AGAIN").iterator();
    }
    if (shared) {
      return send(rows, context.numPartitions());
    }
    if (!rows.hasNext()) {
      return Collections.singleton("SENT 0").iterator();
    }
    KafkaProducer<byte[], byte[]> producer = resumed();
    try {
      return send(producer, rows, context.partitionId(), context.numPartitions());
    } finally {
      producer.close(Duration.ZERO);
    }
  }

  /** Sends by the producer of all tasks of this JVM, which the last of them closes. */
  private Iterator<String> send(Iterator<Row> rows, int tasks) throws InterruptedException {
    String name = settings.get("bootstrap.servers") + "/" + topic + "/" + producerId;
    // What a job that failed has left is of an older epoch. A late task of it does not come back.
    Shared own =
        SHARED.compute(
            name,
            (ignored, held) -> {
              if (held != null && held.epoch >= epoch) {
                return held;
              }
              if (held != null) {
                held.producer.close(Duration.ZERO);
              }
              return new Shared(resumed(), epoch, tasks);
            });
    if (own.epoch != epoch) {
      return Collections.singleton("KAFKA " + Errors.INVALID_PRODUCER_EPOCH.code()).iterator();
    }
    try {
      return send(own.producer, rows, null, 0);
    } finally {
      if (own.running.decrementAndGet() == 0) {
        SHARED.remove(name, own);
        own.producer.close(Duration.ZERO);
      }
    }
  }

  private Iterator<String> send(
      KafkaProducer<byte[], byte[]> producer, Iterator<Row> rows, Integer first, int tasks) throws InterruptedException {
    Answers answers = new Answers();
    long sent = 0;
    Integer partition = first;
    while (rows.hasNext() && answers.error == null) {
      Row row = rows.next();
      byte[] key = row.size() > 1 ? (byte[]) row.get(1) : null;
      if (row.size() > 2) {
        partition = (Integer) row.get(2);
      } else if (first != null && sent % 1000 == 999) {
        partition = partition + tasks < partitions ? partition + tasks : first;
      }
      try {
        producer.send(new ProducerRecord<>(topic, partition, key, (byte[]) row.get(0)), answers);
      } catch (KafkaException error) {
        answers.onCompletion(null, error);
      }
      sent++;
    }
    // Only what was answered counts as sent, whatever this version's flush waits for where a batch was split.
    for (producer.flush(); answers.error == null && answers.taken.get() < sent; producer.flush()) {
      Thread.sleep(5);
    }
    if (answers.error != null) {
      return Collections.singleton("KAFKA " + code(answers.error)).iterator();
    }
    return Collections.singleton("SENT " + sent).iterator();
  }

  /** Of the protocol; the client wraps what broke a transaction into what it throws at each later call. */
  private static short code(Throwable error) {
    Errors found = Errors.forException(error);
    return found == Errors.UNKNOWN_SERVER_ERROR && error.getCause() != null ? code(error.getCause()) : found.code();
  }

  private KafkaProducer<byte[], byte[]> resumed() {
    KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    try {
      Object manager = field(producer, "transactionManager").get(producer);
      synchronized (manager) {
        Field ids = field(manager, "producerIdAndEpoch");
        Constructor<?> made = ids.getType().getDeclaredConstructor(long.class, short.class);
        made.setAccessible(true);
        move(manager, "INITIALIZING");
        ids.set(manager, made.newInstance(producerId, epoch));
        move(manager, "READY");
        move(manager, "IN_TRANSACTION");
        field(manager, "transactionStarted").set(manager, true);
      }
      return producer;
    } catch (ReflectiveOperationException error) {
      producer.close(Duration.ZERO);
      throw new IllegalStateException("Kafka's client here cannot resume a transaction", error);
    }
  }

  private static void move(Object manager, String state) throws ReflectiveOperationException {
    Method transition = transition(manager.getClass());
    transition.setAccessible(true);
    transition.invoke(manager, state(transition, state));
  }

  private static Method transition(Class<?> manager) throws NoSuchMethodException {
    for (Method method : manager.getDeclaredMethods()) {
      if (method.getName().equals("transitionTo") && method.getParameterCount() == 1) {
        return method;
      }
    }
    throw new NoSuchMethodException(manager + ".transitionTo");
  }

  private static Object state(Method transition, String name) throws NoSuchFieldException {
    for (Object state : transition.getParameterTypes()[0].getEnumConstants()) {
      if (state.toString().equals(name)) {
        return state;
      }
    }
    throw new NoSuchFieldException(name);
  }

  private static Field field(Object of, String name) throws NoSuchFieldException {
    Field found = of.getClass().getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }

  /** A producer of several tasks, and how many of them have not ended. */
  private static final class Shared {
    private final KafkaProducer<byte[], byte[]> producer;
    private final short epoch;
    private final AtomicInteger running;

    private Shared(KafkaProducer<byte[], byte[]> producer, short epoch, int tasks) {
      this.producer = producer;
      this.epoch = epoch;
      this.running = new AtomicInteger(tasks);
    }
  }

  /** How many records the brokers took, and why they did not take the first one of the others. */
  private static final class Answers implements Callback {
    private final AtomicLong taken = new AtomicLong();
    private volatile Exception error;

    @Override
    public void onCompletion(RecordMetadata at, Exception failed) {
      if (failed == null) {
        taken.incrementAndGet();
      } else if (error == null) {
        error = failed;
      }
    }
  }
}
