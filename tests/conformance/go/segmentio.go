package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio writes with every codec and reads a partition and as a group, through kafka-go.
func segmentio(ctx context.Context, bootstrap, topic string) (Seen, error) {
	seen := Seen{}
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 20 * time.Second}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: 1, ReplicationFactor: 1},
	}})
	if err != nil || created.Errors[topic] != nil {
		return seen, fmt.Errorf("create: %v %v", err, created)
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if err := segmentioWrite(ctx, bootstrap, topic, name); err != nil {
			return seen, fmt.Errorf("write %s: %w", name, err)
		}
	}
	if seen["read"], err = segmentioRead(ctx, kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic}); err != nil {
		return seen, fmt.Errorf("read: %w", err)
	}
	group := kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, GroupID: "g-" + topic, StartOffset: kafka.FirstOffset}
	if seen["read as a group"], err = segmentioRead(ctx, group); err != nil {
		return seen, fmt.Errorf("group: %w", err)
	}
	committed, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: "g-" + topic, Topics: map[string][]int{topic: {0}}})
	if err != nil {
		return seen, fmt.Errorf("committed: %w", err)
	}
	seen["committed"] = committed.Topics[topic][0].CommittedOffset
	listed, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)},
	}})
	if err != nil {
		return seen, fmt.Errorf("list offsets: %w", err)
	}
	seen["offsets"] = []int64{listed.Topics[topic][0].FirstOffset, listed.Topics[topic][0].LastOffset}
	_, err = client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	return seen, err
}

func segmentioWrite(ctx context.Context, bootstrap, topic, name string) error {
	codecs := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codecs[name], RequiredAcks: kafka.RequireAll,
		BatchTimeout: 20 * time.Millisecond,
	}
	defer writer.Close()
	var messages []kafka.Message
	for n := 0; n < perCodec; n++ {
		messages = append(messages, kafka.Message{
			Key: []byte(name), Value: []byte(value(name, n)), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}},
		})
	}
	return writer.WriteMessages(ctx, messages...)
}

func segmentioRead(ctx context.Context, config kafka.ReaderConfig) ([]string, error) {
	config.MaxWait = 200 * time.Millisecond
	reader := kafka.NewReader(config)
	defer reader.Close()
	var values []string
	for len(values) < perCodec*len(saramaCodecs) {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return values, err
		}
		values = append(values, string(message.Value))
	}
	return values, nil
}
