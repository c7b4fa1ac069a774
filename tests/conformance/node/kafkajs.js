// Talks to a broker through kafkajs, as a program that knows nothing of which broker it is:
// node kafkajs.js BOOTSTRAP TOPIC. It prints one JSON object of what it saw; what should be in it,
// the Python test says.

import kafkajs from "kafkajs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "conformance", brokers: [bootstrap], logLevel: logLevel.ERROR });
const admin = kafka.admin();
const seen = {};

const value = (codec, n) => `${codec}-${n}-${String(n).padStart(100, "0")}`;

async function produce(settings) {
  const producer = kafka.producer(settings);
  await producer.connect();
  for (const [codec, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    const messages = [...Array(20).keys()].map((n) => ({
      partition: 0, key: codec, value: value(codec, n), headers: { h: "v" },
    }));
    await producer.send({ topic, compression, messages });
  }
  await producer.disconnect();
}

async function consume(groupId, wanted) {
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message, partition }) => {
        values.push(message.value.toString());
        if (values.length === wanted) {
          const offset = String(Number(message.offset) + 1);
          await consumer.commitOffsets([{ topic, partition, offset }]);
          resolve();
        }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  return values;
}

async function transactions() {
  const producer = kafka.producer({ transactionalId: `t-${topic}`, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const end of ["abort", "commit"]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ partition: 0, value: end }] });
    await transaction[end]();
  }
  await producer.disconnect();
}

await admin.connect();
seen.created = await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
seen["created again"] = await admin.createTopics({ topics: [{ topic }] });
await produce({});
await produce({ idempotent: true, maxInFlightRequests: 1 });
await transactions();
seen.values = await consume(`g-${topic}`, 81);
seen.offsets = (await admin.fetchTopicOffsets(topic)).map(({ low, high }) => [low, high]);
seen.committed = (await admin.fetchOffsets({ groupId: `g-${topic}`, topics: [topic] }))[0].partitions[0].offset;
seen.group = (await admin.describeGroups([`g-${topic}`])).groups[0].state;
await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
seen.low = (await admin.fetchTopicOffsets(topic))[0].low;
const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "3600000" }] }] });
const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] });
seen.retention = described.resources[0].configEntries[0].configValue;
await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
for (let turn = 0; turn < 100 && seen.partitions !== 3; turn++) {
  seen.partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
}
await admin.deleteGroups([`g-${topic}`]);
await admin.deleteTopics({ topics: [topic] });
await admin.disconnect();
console.log(JSON.stringify(seen));
