package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const backoff = 20 * time.Millisecond

// What is known of partition 0 of a topic.
type partition struct {
	ID             [16]byte `json:"-"`
	PartitionEpoch int64    `json:"partition_epoch"`
	LeaderEpoch    int32    `json:"leader_epoch"`
	Leader         int32    `json:"leader"`
}

// A client for topics of one partition.
type client struct {
	seeds      []string
	next       int // the seed to ask for metadata
	connected  map[string]*connection
	addresses  map[int32]string
	maxEpoch   int64 // the largest MaxPartitionEpoch of any metadata
	partitions map[string]partition
	positions  map[string]position
	producer   producer
}

func newClient(seeds []string) *client {
	return &client{
		seeds: seeds, connected: map[string]*connection{}, addresses: map[int32]string{}, maxEpoch: -1,
		partitions: map[string]partition{}, positions: map[string]position{}, producer: producer{id: -1, epoch: -1},
	}
}

// call sends a request to an address. Connections that fail are dialed anew by the next call.
func (c *client) call(address string, request kmsg.Request, version int16) (kmsg.Response, error) {
	to, err := c.connection(address)
	if err != nil {
		return nil, err
	}
	answer, err := to.call(request, version)
	if err != nil {
		to.sock.Close()
		delete(c.connected, address)
	}
	return answer, err
}

func (c *client) connection(address string) (*connection, error) {
	if found := c.connected[address]; found != nil {
		return found, nil
	}
	made, err := dial(address)
	if err == nil {
		c.connected[address] = made
	}
	return made, err
}

func (c *client) has(address, feature string) bool {
	to, err := c.connection(address)
	return err == nil && to.features[feature]
}

// metadata asks the seeds one after the other until one's answer is not older than what is known.
func (c *client) metadata(topic string) (partition, error) {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		found, err := c.askOne(topic)
		if err == nil {
			c.partitions[topic] = found
			return found, nil
		}
		say(map[string]any{"event": "metadata", "from": c.seeds[c.next], "why": err.Error()})
		c.next = (c.next + 1) % len(c.seeds)
		time.Sleep(backoff)
	}
	return partition{}, errors.New("no broker has new metadata")
}

var errOld = errors.New("old")

func (c *client) askOne(topic string) (partition, error) {
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	raw, err := c.call(c.seeds[c.next], request, 12)
	if err != nil {
		return partition{}, err
	}
	answer := raw.(*kmsg.MetadataResponse)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return partition{}, fmt.Errorf("error %d", answer.Topics[0].ErrorCode)
	}
	row := answer.Topics[0].Partitions[0]
	found := partition{
		ID: answer.Topics[0].TopicID, PartitionEpoch: number(&row.UnknownTags, tagPartitionEpoch),
		LeaderEpoch: row.LeaderEpoch, Leader: row.Leader,
	}
	most := number(&answer.UnknownTags, tagMaxPartitionEpoch)
	if most < c.maxEpoch || c.isOlder(topic, found) {
		return partition{}, errOld
	}
	c.maxEpoch = most
	for _, broker := range answer.Brokers {
		c.addresses[broker.NodeID] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	}
	if found.Leader < 0 || answer.Topics[0].ErrorCode != 0 {
		return partition{}, fmt.Errorf("no leader; error %d", answer.Topics[0].ErrorCode)
	}
	return found, nil
}

// isOlder: older than the metadata that is known, or than the position.
func (c *client) isOlder(topic string, found partition) bool {
	known, isKnown := c.partitions[topic]
	if isKnown && (found.PartitionEpoch < known.PartitionEpoch ||
		found.PartitionEpoch == known.PartitionEpoch && found.LeaderEpoch < known.LeaderEpoch) {
		return true
	}
	at, hasPosition := c.positions[topic]
	return hasPosition && found.PartitionEpoch < at.partitionEpoch
}

// known is the metadata of a topic: what is there, or else a broker's.
func (c *client) known(topic string) (partition, error) {
	if found, isKnown := c.partitions[topic]; isKnown {
		return found, nil
	}
	return c.metadata(topic)
}
