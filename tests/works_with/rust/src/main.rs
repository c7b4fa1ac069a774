//! The rdkafka crate: an admin client, a producer, a consumer that stops in the middle and is
//! followed by another of its group, and a transaction that moves records exactly once.
//!
//! Arguments: bootstrap servers, source topic, target topic. Prints what the target has, as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, FutureProducer, FutureRecord, Producer};
use rdkafka::Message;

const RECORDS: usize = 200;
const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

fn config(bootstrap: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config
}

async fn create(bootstrap: &str, topics: &[&str]) {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap, &[]).create().unwrap();
    let wanted: Vec<NewTopic> = topics
        .iter()
        .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)))
        .collect();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for answer in admin.create_topics(&wanted, &options).await.unwrap() {
        answer.unwrap();
    }
}

async fn produce(bootstrap: &str, topic: &str) {
    let settings = [("enable.idempotence", "true"), ("compression.type", "lz4")];
    let producer: FutureProducer = config(bootstrap, &settings).create().unwrap();
    for number in 0..RECORDS {
        let (key, value) = (format!("key-{}", number % 10), number.to_string());
        let header = Header {
            key: "number",
            value: Some(value.as_bytes()),
        };
        let record = FutureRecord::to(topic)
            .key(&key)
            .payload(&value)
            .headers(OwnedHeaders::new().insert(header));
        let delivered = producer.send(record, PATIENCE).await.unwrap();
        assert!((0..PARTITIONS).contains(&delivered.partition));
    }
}

/// Half of the records are read and committed by one consumer, which then closes.
async fn read_half(bootstrap: &str, topic: &str, group: &str) -> BTreeSet<usize> {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    let consumer: StreamConsumer = config(bootstrap, &settings).create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    let mut seen = BTreeSet::new();
    while seen.len() < RECORDS / 2 {
        let message = tokio::time::timeout(PATIENCE, consumer.recv())
            .await
            .unwrap()
            .unwrap();
        let payload = message.payload_view::<str>().unwrap().unwrap();
        let header = message.headers().unwrap().get(0);
        assert_eq!(
            (header.key, header.value),
            ("number", Some(payload.as_bytes()))
        );
        seen.insert(payload.parse().unwrap());
        consumer.commit_message(&message, CommitMode::Sync).unwrap();
    }
    seen
}

/// The rest goes through transactions, whose offsets are those of the group; one is aborted first.
fn move_rest(bootstrap: &str, source: &str, target: &str, group: &str, rest: usize) {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    let consumer: BaseConsumer = config(bootstrap, &settings).create().unwrap();
    consumer.subscribe(&[source]).unwrap();
    let settings = [("transactional.id", group)];
    let producer: BaseProducer = config(bootstrap, &settings).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    producer
        .send(BaseRecord::<(), str>::to(target).payload("aborted"))
        .map_err(|(e, _)| e)
        .unwrap();
    producer.flush(PATIENCE).unwrap();
    producer.abort_transaction(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    for message in consumer.iter().take(rest) {
        let message = message.unwrap();
        let payload = message.payload_view::<str>().unwrap().unwrap();
        let record = BaseRecord::to(target)
            .key(message.key().unwrap())
            .payload(payload);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer
        .send_offsets_to_transaction(
            &consumer.position().unwrap(),
            &consumer.group_metadata().unwrap(),
            PATIENCE,
        )
        .unwrap();
    producer.commit_transaction(PATIENCE).unwrap();
}

fn read_all(bootstrap: &str, topic: &str, group: &str, count: usize) -> Vec<usize> {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
    ];
    let consumer: BaseConsumer = config(bootstrap, &settings).create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    let mut found: Vec<usize> = consumer
        .iter()
        .take(count)
        .map(|message| {
            message
                .unwrap()
                .payload_view::<str>()
                .unwrap()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    found.sort_unstable();
    found
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, source, target] = &arguments[..] else {
        panic!("bootstrap servers, source topic and target topic are wanted");
    };
    create(bootstrap, &[source, target]).await;
    produce(bootstrap, source).await;
    let group = format!("{source}-group");
    let seen = read_half(bootstrap, source, &group).await;
    let rest = RECORDS - seen.len();
    move_rest(bootstrap, source, target, &group, rest);
    let found = read_all(bootstrap, target, &format!("{group}-target"), rest);
    assert!(
        found.iter().all(|number| !seen.contains(number)),
        "a record was read twice"
    );
    println!("{found:?}");
}
