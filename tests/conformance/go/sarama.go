package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

// saramaClient produces with every codec, reads a partition and as a group, and asks the cluster admin.
func saramaClient(ctx context.Context, bootstrap, topic string) (Seen, error) {
	seen := Seen{}
	brokers := []string{bootstrap}
	admin, err := sarama.NewClusterAdmin(brokers, saramaConfig())
	if err != nil {
		return seen, err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return seen, fmt.Errorf("create: %w", err)
	}
	names := make([]string, 0, len(saramaCodecs))
	for name := range saramaCodecs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := saramaProduce(brokers, topic, name); err != nil {
			return seen, fmt.Errorf("produce %s: %w", name, err)
		}
	}
	if seen["read"], err = saramaRead(ctx, brokers, topic); err != nil {
		return seen, fmt.Errorf("read: %w", err)
	}
	if seen["read as a group"], err = saramaGroup(ctx, brokers, topic); err != nil {
		return seen, fmt.Errorf("group: %w", err)
	}
	return seen, saramaAdmin(admin, topic, seen)
}

func saramaProduce(brokers []string, topic, name string) error {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[name]
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for n := 0; n < perCodec; n++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(name), Value: sarama.StringEncoder(value(name, n)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}},
		})
	}
	return producer.SendMessages(messages)
}

func saramaRead(ctx context.Context, brokers []string, topic string) ([]string, error) {
	consumer, err := sarama.NewConsumer(brokers, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var values []string
	for len(values) < perCodec*len(saramaCodecs) {
		select {
		case message := <-partition.Messages():
			values = append(values, string(message.Value))
		case <-ctx.Done():
			return values, ctx.Err()
		}
	}
	return values, nil
}

type saramaHandler struct {
	values []string
	done   context.CancelFunc
}

func (*saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		h.values = append(h.values, string(message.Value))
		session.MarkMessage(message, "note")
		if len(h.values) == perCodec*len(saramaCodecs) {
			session.Commit()
			h.done()
			return nil
		}
	}
	return nil
}

func saramaGroup(ctx context.Context, brokers []string, topic string) ([]string, error) {
	group, err := sarama.NewConsumerGroup(brokers, "g-"+topic, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer group.Close()
	until, done := context.WithTimeout(ctx, 40*time.Second)
	defer done()
	handler := &saramaHandler{done: done}
	if err := group.Consume(until, []string{topic}, handler); err != nil {
		return nil, err
	}
	return handler.values, nil
}

func saramaAdmin(admin sarama.ClusterAdmin, topic string, seen Seen) error {
	group := "g-" + topic
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	if err != nil {
		return fmt.Errorf("group offsets: %w", err)
	}
	seen["committed"] = committed.GetBlock(topic, 0).Offset
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return fmt.Errorf("describe group: %w", err)
	}
	seen["group state"] = described[0].State
	groups, err := admin.ListConsumerGroups()
	if err != nil {
		return fmt.Errorf("list groups: %w", err)
	}
	seen["group type"] = groups[group]
	if err := admin.DeleteRecords(topic, map[int32]int64{0: 7}); err != nil {
		return fmt.Errorf("delete records: %w", err)
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: text("3600000")},
	}, false); err != nil {
		return fmt.Errorf("alter config: %w", err)
	}
	configs, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	if err != nil {
		return fmt.Errorf("describe config: %w", err)
	}
	seen["retention.ms"] = configs[0].Value
	if err := admin.CreatePartitions(topic, 3, nil, false); err != nil {
		return fmt.Errorf("grow: %w", err)
	}
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	seen["partitions"] = len(topics[0].Partitions)
	if err := admin.DeleteConsumerGroup(group); err != nil {
		return fmt.Errorf("delete group: %w", err)
	}
	return admin.DeleteTopic(topic)
}

func text(value string) *string { return &value }
