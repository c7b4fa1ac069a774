import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Talks to a broker through Kafka's own share consumer, as a program that knows nothing of which broker it is:
 * ShareConsumers BOOTSTRAP NAME. It prints what it saw, one step a line: the step, a tab, the value. What has to be
 * there, the Python test says. The broker must allow acquisition locks of 2 s.
 */
public class ShareConsumers {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 60_000;
    private final String bootstrap;
    private final String name;
    private final Admin admin;

    private ShareConsumers(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        ShareConsumers program = new ShareConsumers(args[0], args[1]);
        program.implicit();
        program.explicit();
        program.renewed();
        program.lost();
        program.limited();
        program.refused();
        program.admin.close();
    }

    private static void say(String step, Object value) {
        System.out.println(step + "\t" + value);
    }

    /** Records are accepted by the next poll and by commitSync: nobody gets them again. */
    private void implicit() throws Exception {
        String topic = topic("implicit", 3, Map.of());
        send(topic, 300);
        TreeSet<String> seen = new TreeSet<>();
        int records = 0;
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "implicit")) {
            for (long end = end(); records < 300 && System.currentTimeMillis() < end; ) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    seen.add(record.value());
                    records++;
                }
            }
            consumer.commitSync();
        }
        say("implicit", records + " records, " + seen.size() + " values");
        sendOne(topic, "last");
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "implicit")) {
            say("implicit, next", deliveries(take(consumer, 1)));
        }
    }

    /** Each record has its own acknowledgement. */
    private void explicit() throws Exception {
        String topic = topic("explicit", 1, Map.of());
        send(topic, 4);
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "explicit")) {
            List<ConsumerRecord<String, String>> first = take(consumer, 4);
            say("explicit", deliveries(first));
            try {
                consumer.poll(POLL);
                say("explicit, not acknowledged", "polled");
            } catch (IllegalStateException error) {
                say("explicit, not acknowledged", error.getClass().getSimpleName());
            }
            consumer.acknowledge(first.get(0), AcknowledgeType.ACCEPT);
            consumer.acknowledge(first.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(first.get(2), AcknowledgeType.REJECT);
            consumer.acknowledge(first.get(3), AcknowledgeType.RELEASE);
            say("explicit, committed", committed(consumer.commitSync()));
            List<ConsumerRecord<String, String>> again = take(consumer, 2);
            say("explicit, released", deliveries(again));
            again.forEach(record -> consumer.acknowledge(record));
            List<String> called = Collections.synchronizedList(new ArrayList<>());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                TreeMap<Integer, Object> sorted = new TreeMap<>();
                offsets.forEach((place, acknowledged) -> sorted.put(place.partition(), new TreeSet<>(acknowledged)));
                called.add(sorted + " " + error);
            });
            consumer.commitAsync();
            for (long end = end(); called.isEmpty() && System.currentTimeMillis() < end; ) {
                consumer.poll(POLL);
            }
            say("explicit, committed later", called);
        }
        sendOne(topic, "last");
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "explicit")) {
            List<ConsumerRecord<String, String>> next = take(consumer, 1);
            say("explicit, next", deliveries(next));
            consumer.acknowledge(next.get(0));
        }
    }

    /** A record that is renewed again and again stays with its consumer for longer than a lock. */
    private void renewed() throws Exception {
        String topic = topic("renewed", 1, Map.of());
        setOfGroup(topic, "share.record.lock.duration.ms", "5000");
        send(topic, 1);
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "renewed");
                KafkaShareConsumer<String, String> other = consumer(topic, "renewed")) {
            ConsumerRecord<String, String> record = take(consumer, 1).get(0);
            int lockMs = consumer.acquisitionLockTimeoutMs().orElse(-1);
            say("renewed, lock", lockMs);
            int others = 0;
            TreeSet<String> answers = new TreeSet<>();
            for (long end = System.currentTimeMillis() + 2L * lockMs; System.currentTimeMillis() < end; ) {
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                answers.add(committed(consumer.commitSync()));
                for (ConsumerRecord<String, String> again : consumer.poll(POLL)) {
                    record = again;
                }
                others += other.poll(POLL).count();
            }
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            answers.add(committed(consumer.commitSync()));
            say("renewed", answers + ", delivered " + record.deliveryCount() + " times, others had " + others);
        }
    }

    /** Whoever holds a record for too long loses it, and is answered so. */
    private void lost() throws Exception {
        String topic = topic("lost", 1, Map.of());
        setOfGroup(topic, "share.record.lock.duration.ms", "2000");
        send(topic, 1);
        try (KafkaShareConsumer<String, String> slow = consumer(topic, "lost")) {
            ConsumerRecord<String, String> record = take(slow, 1).get(0);
            try (KafkaShareConsumer<String, String> other = consumer(topic, "lost")) {
                List<ConsumerRecord<String, String>> again = take(other, 1);
                say("lost, again", deliveries(again));
                slow.acknowledge(record, AcknowledgeType.ACCEPT);
                say("lost, committed", committed(slow.commitSync()));
                other.acknowledge(again.get(0), AcknowledgeType.ACCEPT);
                say("lost, committed by the other", committed(other.commitSync()));
            }
        }
    }

    /** A record that is released as often as it may be is not delivered any more. */
    private void limited() throws Exception {
        String topic = topic("limited", 1, Map.of());
        send(topic, 1);
        List<String> seen = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer(topic, "limited")) {
            for (int n = 0; n < 5; n++) {
                for (ConsumerRecord<String, String> record : take(consumer, 1)) {
                    seen.add(record.value() + "x" + record.deliveryCount().orElse((short) -1));
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                consumer.commitSync();
            }
            sendOne(topic, "last");
            List<ConsumerRecord<String, String>> next = take(consumer, 1);
            seen.addAll(deliveries(next));
            next.forEach(consumer::acknowledge);
        }
        say("limited", seen);
    }

    /** A compacted topic takes no record without a key: the producer's user learns which one it was. */
    private void refused() throws Exception {
        String topic = topic("refused", 1, Map.of("cleanup.policy", "compact"));
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", 60_000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String key : new String[] {"a", null, "b", null}) {
                sent.add(producer.send(new ProducerRecord<>(topic, key, "value")));
            }
            producer.flush();
            for (int n = 0; n < sent.size(); n++) {
                try {
                    say("refused " + n, "taken at " + sent.get(n).get().offset());
                } catch (ExecutionException error) {
                    Throwable cause = error.getCause();
                    say("refused " + n, cause.getClass().getSimpleName() + ": " + cause.getMessage());
                }
            }
        }
    }

    /** A new topic; the group of its name begins at its start. */
    private String topic(String step, int partitions, Map<String, String> configs) throws Exception {
        String topic = name + "-" + step;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        setOfGroup(topic, "share.auto.offset.reset", "earliest");
        return topic;
    }

    private void setOfGroup(String group, String config, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry(config, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    }

    private void send(String topic, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", 20, "batch.size", 1000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(topic, "v" + n));
            }
        }
    }

    private void sendOne(String topic, String value) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, value));
        }
    }

    /** A consumer of the group that has the topic's name. */
    private KafkaShareConsumer<String, String> consumer(String topic, String step) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", topic,
                "share.acknowledgement.mode", step.equals("implicit") ? "implicit" : "explicit");
        KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** Polls once it has got records; so many have to be there, for they were sent in one batch. */
    private List<ConsumerRecord<String, String>> take(KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        for (long end = end(); found.isEmpty() && System.currentTimeMillis() < end; ) {
            consumer.poll(POLL).forEach(found::add);
        }
        if (found.size() != count) {
            throw new IllegalStateException(found.size() + " records, not " + count + ": " + deliveries(found));
        }
        return found;
    }

    private static long end() {
        return System.currentTimeMillis() + PATIENCE_MS;
    }

    private static List<String> deliveries(List<ConsumerRecord<String, String>> records) {
        List<String> found = new ArrayList<>();
        records.forEach(record -> found.add(record.value() + "x" + record.deliveryCount().orElse((short) -1)));
        return found;
    }

    private static String committed(Map<TopicIdPartition, Optional<KafkaException>> answer) {
        TreeMap<Integer, String> found = new TreeMap<>();
        answer.forEach((place, error) ->
                found.put(place.partition(), error.map(e -> e.getClass().getSimpleName()).orElse("ok")));
        return found.toString();
    }
}
