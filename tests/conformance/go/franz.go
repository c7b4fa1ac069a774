package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 20

var franzCodecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

// franz produces with every codec, reads directly and as a group, and asks what kadm can ask.
func franz(ctx context.Context, bootstrap, topic string) (Seen, error) {
	seen := Seen{}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return seen, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("7200000")}, topic); err != nil {
		return seen, fmt.Errorf("create: %w", err)
	}
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	seen["created again"] = errors.Is(err, kerr.TopicAlreadyExists)
	begin := time.Now().Add(-time.Minute)
	for i, row := range franzCodecs {
		if err := franzProduce(ctx, bootstrap, topic, row.name, row.codec, i); err != nil {
			return seen, fmt.Errorf("produce %s: %w", row.name, err)
		}
	}
	read, err := franzRead(ctx, bootstrap, kgo.ConsumeTopics(topic))
	if err != nil {
		return seen, fmt.Errorf("read: %w", err)
	}
	seen["read"] = read
	group := "g-" + topic
	read, err = franzRead(ctx, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
	if err != nil {
		return seen, fmt.Errorf("group: %w", err)
	}
	seen["read as a group"] = read
	return seen, franzAdmin(ctx, admin, topic, group, begin, seen)
}

func franzProduce(ctx context.Context, bootstrap, topic, name string, codec kgo.CompressionCodec, turn int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for n := 0; n < perCodec; n++ {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(n % 2), Key: []byte(name), Value: []byte(value(name, n)),
			Headers: []kgo.RecordHeader{{Key: "turn", Value: []byte(fmt.Sprint(turn))}},
		})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	for n, record := range records {
		if want := int64(turn*perCodec/2 + n/2); record.Offset != want {
			return fmt.Errorf("record %d at offset %d, not %d", n, record.Offset, want)
		}
	}
	return nil
}

// franzRead reads every record and commits if it is a group's; the values in order of partition and offset.
func franzRead(ctx context.Context, bootstrap string, options ...kgo.Opt) ([]string, error) {
	options = append(options, kgo.SeedBrokers(bootstrap), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for len(records) < perCodec*len(franzCodecs) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		records = append(records, fetches.Records()...)
	}
	if group, _ := client.GroupMetadata(); group != "" {
		if err := client.CommitRecords(ctx, records...); err != nil {
			return nil, err
		}
	}
	sort.Slice(records, func(i, j int) bool {
		if records[i].Partition != records[j].Partition {
			return records[i].Partition < records[j].Partition
		}
		return records[i].Offset < records[j].Offset
	})
	var values []string
	for _, record := range records {
		values = append(values, string(record.Value))
	}
	return values, nil
}

func franzAdmin(ctx context.Context, admin *kadm.Client, topic, group string, begin time.Time, seen Seen) error {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("end offsets: %w", err)
	}
	seen["end offsets"] = offsets(ends, topic)
	after, err := admin.ListOffsetsAfterMilli(ctx, begin.UnixMilli(), topic)
	if err != nil {
		return fmt.Errorf("offsets after: %w", err)
	}
	seen["offsets after"] = offsets(after, topic)
	lags, err := admin.Lag(ctx, group)
	if err != nil {
		return fmt.Errorf("lag: %w", err)
	}
	lag := lags[group]
	seen["lag"], seen["group state"] = lag.Lag.Total(), lag.State
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return fmt.Errorf("fetch offsets: %w", err)
	}
	first, _ := committed.Lookup(topic, 0)
	seen["committed"] = first.At
	toDelete := kadm.Offsets{}
	toDelete.AddOffset(topic, 0, 5, -1)
	deleted, err := admin.DeleteRecords(ctx, toDelete)
	if err != nil {
		return fmt.Errorf("delete records: %w", err)
	}
	low, _ := deleted.Lookup(topic, 0)
	seen["low watermark"] = low.LowWatermark
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("start offsets: %w", err)
	}
	seen["start offsets"] = offsets(starts, topic)
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("3600000")}}, topic); err != nil {
		return fmt.Errorf("alter configs: %w", err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return fmt.Errorf("describe configs: %w", err)
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			seen["retention.ms"] = config.MaybeValue()
		}
	}
	grown, err := admin.UpdatePartitions(ctx, 3, topic)
	if err != nil || grown.Error() != nil {
		return fmt.Errorf("grow: %w", errors.Join(err, grown.Error()))
	}
	groups, err := admin.DeleteGroups(ctx, group, "no-such-group")
	if err != nil {
		return fmt.Errorf("delete groups: %w", err)
	}
	seen["deleted group"] = groups[group].Err == nil
	seen["no such group"] = errors.Is(groups["no-such-group"].Err, kerr.GroupIDNotFound)
	metadata, err := admin.Metadata(ctx, topic)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	seen["partitions"] = len(metadata.Topics[topic].Partitions)
	gone, err := admin.DeleteTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("delete topic: %w", err)
	}
	seen["deleted topic"] = gone[topic].Err == nil
	return nil
}

func offsets(listed kadm.ListedOffsets, topic string) []int64 {
	var found []int64
	for partition := int32(0); partition < 2; partition++ {
		offset, _ := listed.Lookup(topic, partition)
		found = append(found, offset.Offset)
	}
	return found
}

// franzTransactions commits one transaction, aborts another, and moves records from topic to topic exactly once.
func franzTransactions(ctx context.Context, bootstrap, topic string) (Seen, error) {
	seen := Seen{}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID("t-"+topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return seen, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for _, name := range []string{topic, topic + "-out"} {
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, name); err != nil {
			return seen, fmt.Errorf("create: %w", err)
		}
	}
	for turn, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := client.BeginTransaction(); err != nil {
			return seen, err
		}
		for n := 0; n < 5; n++ {
			record := &kgo.Record{Value: []byte(fmt.Sprintf("%d-%d", turn, n))}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return seen, fmt.Errorf("produce: %w", err)
			}
		}
		if err := client.EndTransaction(ctx, end); err != nil {
			return seen, fmt.Errorf("end: %w", err)
		}
	}
	seen["moved"], err = franzMove(ctx, bootstrap, topic)
	if err != nil {
		return seen, fmt.Errorf("move: %w", err)
	}
	seen["committed"], err = franzCommitted(ctx, bootstrap, topic, 10)
	if err != nil {
		return seen, fmt.Errorf("read: %w", err)
	}
	described, err := admin.DescribeTransactions(ctx, "t-"+topic)
	if err != nil {
		return seen, fmt.Errorf("describe: %w", err)
	}
	seen["state"] = described["t-"+topic].State
	return seen, nil
}

func franzMove(ctx context.Context, bootstrap, topic string) ([]string, error) {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID("m-"+topic),
		kgo.ConsumerGroup("m-"+topic), kgo.ConsumeTopics(topic), kgo.DefaultProduceTopic(topic+"-out"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for moved := 0; moved < 10; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		records := fetches.Records()
		for _, record := range records {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, nil)
		}
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return nil, err
		}
		if committed {
			moved += len(records)
		}
	}
	return franzCommitted(ctx, bootstrap, topic+"-out", 10)
}

func franzCommitted(ctx context.Context, bootstrap, topic string, count int) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var values []string
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return values, err
		}
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	return values, nil
}
