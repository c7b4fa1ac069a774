package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const shared = 6

// franzShare reads as a member of a share group and gives each record another acknowledgement.
func franzShare(ctx context.Context, bootstrap, topic string) (Seen, error) {
	seen := Seen{}
	group := "g-" + topic
	var lock sync.Mutex
	failed := []string{}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return seen, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return seen, fmt.Errorf("create: %w", err)
	}
	begin := kadm.Offsets{}
	begin.AddOffset(topic, 0, 0, -1)
	altered, err := admin.AlterShareGroupOffsets(ctx, group, begin)
	if err != nil {
		return seen, fmt.Errorf("alter offsets: %w", err)
	}
	for _, partitions := range altered {
		for _, err := range partitions {
			if err != nil {
				return seen, fmt.Errorf("alter offsets: %w", err)
			}
		}
	}
	var records []*kgo.Record
	for n := 0; n < shared; n++ {
		records = append(records, &kgo.Record{Value: []byte(fmt.Sprint("v", n))})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return seen, fmt.Errorf("produce: %w", err)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ShareGroup(group), kgo.ConsumeTopics(topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				lock.Lock()
				failed = append(failed, err.Error())
				lock.Unlock()
			}
		}))
	if err != nil {
		return seen, err
	}
	defer member.Close()
	if err := franzAcknowledge(ctx, member, seen); err != nil {
		return seen, err
	}
	lock.Lock()
	seen["errors"] = failed
	lock.Unlock()
	described, err := admin.DescribeShareGroups(ctx, group)
	if err != nil {
		return seen, fmt.Errorf("describe: %w", err)
	}
	seen["state"], seen["members"] = described[group].GroupState, len(described[group].Members)
	seen["assigned"] = described.AssignedPartitions()[topic]
	member.Close()
	return seen, franzShareEnd(ctx, admin, topic, group, seen)
}

// franzAcknowledge acknowledges records in all ways, and takes those that come again.
func franzAcknowledge(ctx context.Context, member *kgo.Client, seen Seen) error {
	first, err := franzTake(ctx, member, shared)
	if err != nil {
		return fmt.Errorf("first poll: %w", err)
	}
	seen["first"] = deliveries(first)
	for n, status := range []kgo.AckStatus{kgo.AckAccept, kgo.AckRelease, kgo.AckReject, kgo.AckRenew, kgo.AckRelease} {
		first[n].Ack(status)
	}
	member.MarkAcks(kgo.AckAccept)
	if err := member.FlushAcks(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	first[3].Ack(kgo.AckAccept)
	if err := member.FlushAcks(ctx); err != nil {
		return fmt.Errorf("flush what was renewed: %w", err)
	}
	again, err := franzTake(ctx, member, 2)
	if err != nil {
		return fmt.Errorf("second poll: %w", err)
	}
	seen["again"] = deliveries(again)
	member.MarkAcks(kgo.AckAccept)
	return member.FlushAcks(ctx)
}

// franzTake polls until so many records are there.
func franzTake(ctx context.Context, member *kgo.Client, count int) ([]*kgo.Record, error) {
	var records []*kgo.Record
	for len(records) < count {
		fetches := member.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}

func deliveries(records []*kgo.Record) []string {
	var found []string
	for _, record := range records {
		found = append(found, fmt.Sprintf("%sx%d", record.Value, record.DeliveryCount()))
	}
	return found
}

func franzShareEnd(ctx context.Context, admin *kadm.Client, topic, group string, seen Seen) error {
	offsets, err := admin.DescribeShareGroupOffsets(ctx, group)
	if err != nil {
		return fmt.Errorf("describe offsets: %w", err)
	}
	offset, _ := offsets[group].Offsets.Lookup(topic, 0)
	seen["lag"] = offset.Lag
	deleted, err := admin.DeleteGroups(ctx, group)
	if err != nil {
		return fmt.Errorf("delete group: %w", err)
	}
	seen["deleted group"] = deleted[group].Err == nil
	return nil
}
