package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// An idempotent producer, once it has an id.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
}

// A batch to be sent, of one record for each value.
type batch struct {
	values     []string
	baseOffset int64
	sequence   int32
	given      bool
	gap        bool // a last offset that does not follow from the number of records: not allowed
}

// How a batch was answered.
type produced struct {
	Code         int16 `json:"code"`
	Offset       int64 `json:"offset"`
	LogEndOffset int64 `json:"log_end_offset"`
}

func (c *client) newProducerID() error {
	raw, err := c.call(c.seeds[c.next], kmsg.NewPtrInitProducerIDRequest(), 4)
	if err != nil {
		return err
	}
	answer := raw.(*kmsg.InitProducerIDResponse)
	c.producer = producer{id: answer.ProducerID, epoch: answer.ProducerEpoch}
	return nil
}

func (c *client) produce(asked command) (produced, error) {
	b := batch{values: asked.Values, sequence: -1, gap: asked.Gap}
	if asked.Offset != nil {
		b.baseOffset, b.given = *asked.Offset, true
	}
	if c.producer.id >= 0 {
		b.sequence = c.producer.sequence
		if asked.Sequence != nil { // a retry of an earlier batch, whose answer was lost
			b.sequence = *asked.Sequence
		}
	}
	found, err := c.send(asked.Topic, b)
	if err == nil && found.Code == 0 && asked.Sequence == nil {
		c.producer.sequence += int32(len(asked.Values))
	}
	return found, err
}

// send sends a batch until it is appended, or refused for good.
func (c *client) send(topic string, b batch) (produced, error) {
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		to, err := c.known(topic)
		if err != nil {
			return produced{}, err
		}
		found, hint, err := c.sendOnce(to, b)
		if err != nil {
			say(map[string]any{"event": "lost", "broker": to.Leader})
			time.Sleep(backoff)
			c.refresh(topic)
			continue
		}
		say(map[string]any{"event": "answer", "broker": to.Leader, "epoch": to.LeaderEpoch, "code": found.Code})
		switch found.Code {
		case fencedLeaderEpoch, notLeaderOrFollower:
			if hint != nil && hint.LeaderEpoch > to.LeaderEpoch {
				to.Leader, to.LeaderEpoch = hint.Leader, hint.LeaderEpoch
				c.partitions[topic] = to
				continue
			}
			c.refresh(topic)
			if now := c.partitions[topic]; found.Code == fencedLeaderEpoch && now.LeaderEpoch <= to.LeaderEpoch {
				return found, errors.New("fenced, and no broker knows a newer leader")
			}
		case unknownLeaderEpoch, unknownTopicID, unknownTopic:
			time.Sleep(backoff)
			c.refresh(topic)
		default:
			return found, nil
		}
	}
	return produced{}, errors.New("not appended in time")
}

// refresh asks for metadata; what is known stays if nobody has newer.
func (c *client) refresh(topic string) {
	if found, err := c.askOne(topic); err == nil {
		c.partitions[topic] = found
	} else {
		c.next = (c.next + 1) % len(c.seeds)
	}
}

func (c *client) sendOnce(to partition, b batch) (produced, *partition, error) {
	address := c.addresses[to.Leader]
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = 1, 30000
	row := kmsg.NewProduceRequestTopicPartition()
	row.Records = c.encode(b)
	if c.has(address, "kstore.kip359") {
		row.UnknownTags.Set(tagCurrentLeaderEpoch, int32Bytes(to.LeaderEpoch))
	}
	if b.given {
		if !c.has(address, "kstore.kip391") {
			return produced{}, nil, errors.New("the broker takes no given offsets")
		}
		request.UnknownTags.Set(tagUseOffset, []byte{1})
	}
	topic := kmsg.NewProduceRequestTopic()
	topic.TopicID, topic.Partitions = to.ID, append(topic.Partitions, row)
	request.Topics = append(request.Topics, topic)
	raw, err := c.call(address, request, 13)
	if err != nil {
		return produced{}, nil, err
	}
	answer := raw.(*kmsg.ProduceResponse)
	got := answer.Topics[0].Partitions[0]
	for _, broker := range answer.Brokers {
		c.addresses[broker.NodeID] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	}
	var hint *partition
	if got.CurrentLeader.LeaderID >= 0 && got.CurrentLeader.LeaderEpoch >= 0 {
		hint = &partition{Leader: got.CurrentLeader.LeaderID, LeaderEpoch: got.CurrentLeader.LeaderEpoch}
	}
	return produced{got.ErrorCode, got.BaseOffset, number(&got.UnknownTags, tagLogEndOffset)}, hint, nil
}

// copy writes records at their offsets. It knows nothing of an earlier copy: a refusal says where that ended.
func (c *client) copy(topic string, records []given) (any, error) {
	refused := 0
	var end int64
	for len(records) > 0 {
		if records[0].Offset < end {
			records = records[1:]
			continue
		}
		count := 1 // one batch: offsets that follow each other
		for count < len(records) && records[count].Offset == records[0].Offset+int64(count) {
			count++
		}
		b := batch{baseOffset: records[0].Offset, sequence: -1, given: true}
		for _, record := range records[:count] {
			b.values = append(b.values, record.Value)
		}
		found, err := c.send(topic, b)
		if err != nil {
			return nil, err
		}
		switch found.Code {
		case 0:
			records = records[count:]
		case invalidProduceOffset:
			refused++
			end = found.LogEndOffset
		default:
			return nil, fmt.Errorf("error %d", found.Code)
		}
	}
	return map[string]any{"refused": refused}, nil
}

// encode is a record batch of magic 2.
func (c *client) encode(b batch) []byte {
	body := binary.BigEndian.AppendUint16(nil, 0) // attributes
	last := uint32(len(b.values) - 1)
	if b.gap {
		last++
	}
	now := uint64(time.Now().UnixMilli())
	body = binary.BigEndian.AppendUint32(body, last)
	body = binary.BigEndian.AppendUint64(body, now)
	body = binary.BigEndian.AppendUint64(body, now)
	body = binary.BigEndian.AppendUint64(body, uint64(c.producer.id))
	body = binary.BigEndian.AppendUint16(body, uint16(c.producer.epoch))
	body = binary.BigEndian.AppendUint32(body, uint32(b.sequence))
	body = binary.BigEndian.AppendUint32(body, uint32(len(b.values)))
	for at, value := range b.values {
		record := []byte{0, 0} // attributes, timestamp delta
		record = binary.AppendVarint(record, int64(at))
		record = append(record, 1) // a key of length -1
		record = binary.AppendVarint(record, int64(len(value)))
		record = append(append(record, value...), 0)
		body = append(binary.AppendVarint(body, int64(len(record))), record...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(b.baseOffset))
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)+9))
	out = append(out, 255, 255, 255, 255, 2) // no leader epoch, magic 2
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, body...)
}
