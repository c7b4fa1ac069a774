import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine: each change of a database becomes a record of the topic that the
 * connector names. A batch is marked as processed once the broker has all of it. The one argument
 * is a file of the engine's settings. It runs until it is killed.
 */
public final class DebeziumApp {
  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (FileReader file = new FileReader(arguments[0])) {
      settings.load(file);
    }
    Map<String, Object> producing =
        Map.of("bootstrap.servers", settings.getProperty("bootstrap.servers"), "acks", "all");
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
      DebeziumEngine<ChangeEvent<String, String>> engine =
          DebeziumEngine.create(Json.class)
              .using(settings)
              .using((success, message, error) -> System.out.println("ended: " + message))
              .notifying((changes, committer) -> send(producer, changes, committer))
              .build();
      engine.run();
    }
  }

  private static void send(
      KafkaProducer<String, String> producer,
      List<ChangeEvent<String, String>> changes,
      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
      throws InterruptedException {
    List<Future<RecordMetadata>> sent =
        changes.stream()
            .map(change -> new ProducerRecord<>(change.destination(), change.key(), change.value()))
            .map(producer::send)
            .toList();
    try {
      for (Future<RecordMetadata> each : sent) {
        each.get();
      }
    } catch (java.util.concurrent.ExecutionException error) {
      throw new IllegalStateException(error);
    }
    for (ChangeEvent<String, String> change : changes) {
      committer.markProcessed(change);
    }
    committer.markBatchFinished();
  }
}
