package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where reading goes on, and in which topic of that name.
type position struct {
	offset         int64
	partitionEpoch int64
	leaderEpoch    int32 // of the last record that was read
}

// What a poll has found.
type polled struct {
	Records   []given `json:"records"`
	OtherLife bool    `json:"other_life"` // the position belongs to another topic of that name
}

// seek begins at an offset of the topic that metadata names.
func (c *client) seek(topic string, offset int64) (any, error) {
	delete(c.positions, topic)
	known, err := c.metadata(topic)
	if err != nil {
		return nil, err
	}
	c.positions[topic] = position{offset: offset, partitionEpoch: known.PartitionEpoch, leaderEpoch: -1}
	return map[string]any{"partition_epoch": known.PartitionEpoch}, nil
}

// start begins at the group's committed offset. Metadata must be as new as that: a broker that is
// behind names the id of a topic that was deleted, or the partition epoch of one.
func (c *client) start(group, topic string) (any, error) {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		known, err := c.known(topic)
		if err != nil {
			return nil, err
		}
		row, err := c.committed(group, known.ID)
		if err != nil {
			return nil, err
		}
		say(map[string]any{"event": "committed", "code": row.ErrorCode})
		if row.ErrorCode == unknownTopicID { // ask another broker
			c.next = (c.next + 1) % len(c.seeds)
			time.Sleep(backoff)
			if _, err := c.metadata(topic); err != nil {
				return nil, err
			}
			continue
		}
		epoch := number(&row.UnknownTags, tagPartitionEpoch)
		c.positions[topic] = position{offset: row.Offset, partitionEpoch: epoch, leaderEpoch: row.LeaderEpoch}
		if known.PartitionEpoch < epoch {
			if known, err = c.metadata(topic); err != nil {
				return nil, err
			}
		}
		return map[string]any{
			"offset": row.Offset, "partition_epoch": epoch, "leader_epoch": row.LeaderEpoch,
			"deleted": epoch >= 0 && epoch < known.PartitionEpoch,
		}, nil
	}
	return nil, errors.New("the position stays unknown")
}

func (c *client) committed(group string, id [16]byte) (kmsg.OffsetFetchResponseGroupTopicPartition, error) {
	var none kmsg.OffsetFetchResponseGroupTopicPartition
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.TopicID, topic.Partitions = id, []int32{0}
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group, asked.Topics = group, append(asked.Topics, topic)
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Groups = append(request.Groups, asked)
	raw, err := c.callCoordinator(group, request, 10)
	if err != nil {
		return none, err
	}
	answer := raw.(*kmsg.OffsetFetchResponse).Groups[0]
	if answer.ErrorCode != 0 || len(answer.Topics) != 1 {
		return none, fmt.Errorf("OffsetFetch: error %d", answer.ErrorCode)
	}
	return answer.Topics[0].Partitions[0], nil
}

// commit commits the position; an offset or a leader epoch may be given instead of its own.
func (c *client) commit(group, topic string, offset *int64, leaderEpoch *int32) error {
	at := c.positions[topic]
	if offset != nil {
		at.offset = *offset
	}
	if leaderEpoch != nil {
		at.leaderEpoch = *leaderEpoch
	}
	row := kmsg.NewOffsetCommitRequestTopicPartition()
	row.Offset, row.LeaderEpoch = at.offset, at.leaderEpoch
	row.UnknownTags.Set(tagPartitionEpoch, int32Bytes(int32(at.partitionEpoch)))
	named := kmsg.NewOffsetCommitRequestTopic()
	named.Topic, named.Partitions = topic, append(named.Partitions, row)
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Topics = group, append(request.Topics, named)
	raw, err := c.callCoordinator(group, request, 9)
	if err != nil {
		return err
	}
	if code := raw.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		return fmt.Errorf("error %d", code)
	}
	return nil
}

// callCoordinator asks the group's coordinator, once there is one.
func (c *client) callCoordinator(group string, request kmsg.Request, version int16) (kmsg.Response, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{group}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		raw, err := c.call(c.seeds[c.next], find, 4)
		if err != nil {
			return nil, err
		}
		found := raw.(*kmsg.FindCoordinatorResponse).Coordinators[0]
		if found.ErrorCode == 0 {
			return c.call(fmt.Sprintf("%s:%d", found.Host, found.Port), request, version)
		}
		c.next = (c.next + 1) % len(c.seeds)
		time.Sleep(backoff)
	}
	return nil, errors.New("no coordinator")
}

// poll fetches by name until there is a record, or the topic is another one.
func (c *client) poll(topic string) (polled, error) {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		known, err := c.known(topic)
		if err != nil {
			return polled{}, err
		}
		at := c.positions[topic]
		if known.PartitionEpoch < at.partitionEpoch {
			if known, err = c.metadata(topic); err != nil {
				return polled{}, err
			}
		}
		if known.PartitionEpoch != at.partitionEpoch {
			return polled{OtherLife: true}, nil
		}
		row, err := c.fetch(topic, known, at)
		if err != nil || row.ErrorCode != 0 {
			if err == nil {
				say(map[string]any{"event": "fetched", "code": row.ErrorCode})
			}
			time.Sleep(backoff)
			if _, err := c.metadata(topic); err != nil {
				return polled{}, err
			}
			continue
		}
		if epoch := number(&row.UnknownTags, tagPartitionEpoch); epoch != at.partitionEpoch {
			say(map[string]any{"event": "another life", "partition_epoch": epoch})
			if _, err := c.metadata(topic); err != nil { // the data is discarded
				return polled{}, err
			}
			continue
		}
		if found := c.take(topic, at, row.RecordBatches); len(found) > 0 {
			return polled{Records: found}, nil
		}
	}
	return polled{}, errors.New("nothing to read")
}

func (c *client) fetch(topic string, known partition, at position) (kmsg.FetchResponseTopicPartition, error) {
	var none kmsg.FetchResponseTopicPartition
	row := kmsg.NewFetchRequestTopicPartition()
	row.CurrentLeaderEpoch, row.FetchOffset, row.PartitionMaxBytes = known.LeaderEpoch, at.offset, 1<<20
	named := kmsg.NewFetchRequestTopic()
	named.Topic, named.Partitions = topic, append(named.Partitions, row)
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.SessionEpoch = 100, 1, -1
	request.Topics = append(request.Topics, named)
	raw, err := c.call(c.addresses[known.Leader], request, 12)
	if err != nil {
		return none, err
	}
	answer := raw.(*kmsg.FetchResponse)
	if answer.ErrorCode != 0 || len(answer.Topics) != 1 {
		return none, fmt.Errorf("Fetch: error %d", answer.ErrorCode)
	}
	return answer.Topics[0].Partitions[0], nil
}

// take reads the records from the position on, and moves it behind them.
func (c *client) take(topic string, at position, batches []byte) []given {
	var found []given
	for len(batches) >= 61 {
		base := int64(binary.BigEndian.Uint64(batches))
		whole := batches[:12+binary.BigEndian.Uint32(batches[8:])]
		batches = batches[len(whole):]
		count := binary.BigEndian.Uint32(whole[57:])
		isControl := whole[22]&32 != 0
		rest := whole[61:]
		for ; count > 0; count-- {
			size, n := binary.Varint(rest)
			record := rest[n : n+int(size)]
			rest = rest[n+int(size):]
			offset, value := decode(record)
			if offset += base; offset >= at.offset && !isControl {
				found = append(found, given{offset, value})
			}
		}
		at.offset = base + int64(binary.BigEndian.Uint32(whole[23:])) + 1
		at.leaderEpoch = int32(binary.BigEndian.Uint32(whole[12:]))
	}
	c.positions[topic] = at
	return found
}

// decode is a record's offset delta and value.
func decode(record []byte) (int64, string) {
	at := 1
	next := func() int64 {
		value, n := binary.Varint(record[at:])
		at += n
		return value
	}
	next() // timestamp delta
	offset := next()
	if key := next(); key > 0 {
		at += int(key)
	}
	size := next()
	return offset, string(record[at : at+int(max(size, 0))])
}
