package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What docs/protocol-extensions.md names.
const (
	tagExtensionFields    = 23202
	tagUseOffset          = 39100
	tagLogEndOffset       = 39101
	tagCurrentLeaderEpoch = 35900
	tagPartitionEpoch     = 23200
	tagMaxPartitionEpoch  = 23201

	unknownTopic         = 3
	notLeaderOrFollower  = 6
	fencedLeaderEpoch    = 74
	unknownLeaderEpoch   = 75
	invalidProduceOffset = 77
	unknownTopicID       = 100
)

// A broker's connection, which has asked for the fields in answers.
type connection struct {
	sock     net.Conn
	last     int32
	features map[string]bool
}

func dial(address string) (*connection, error) {
	sock, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &connection{sock: sock, features: map[string]bool{}}
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = "second", "1"
	hello.UnknownTags.Set(tagExtensionFields, []byte{1})
	answer, err := c.call(hello, 4)
	if err != nil {
		sock.Close()
		return nil, err
	}
	for _, feature := range answer.(*kmsg.ApiVersionsResponse).SupportedFeatures {
		if feature.MinVersion <= 1 && 1 <= feature.MaxVersion {
			c.features[feature.Name] = true
		}
	}
	return c, nil
}

func (c *connection) call(request kmsg.Request, version int16) (kmsg.Response, error) {
	request.SetVersion(version)
	c.last++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("second")).AppendRequest(nil, request, c.last)
	c.sock.SetDeadline(time.Now().Add(40 * time.Second))
	if _, err := c.sock.Write(frame); err != nil {
		return nil, err
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.sock, size); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(c.sock, body); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != c.last {
		return nil, fmt.Errorf("an answer to request %d, not %d", got, c.last)
	}
	body = body[4:]
	response := request.ResponseKind()
	response.SetVersion(version)
	if request.Key() != 18 { // its responses have header version 0
		if body[0] != 0 {
			return nil, fmt.Errorf("%d tags in the header", body[0])
		}
		body = body[1:]
	}
	return response, response.ReadFrom(body)
}

func int32Bytes(value int32) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(value))
}

// number is an int32 or int64 among the tags, or -1.
func number(tags *kmsg.Tags, wanted uint32) int64 {
	found := int64(-1)
	tags.Each(func(tag uint32, value []byte) {
		switch {
		case tag == wanted && len(value) == 4:
			found = int64(int32(binary.BigEndian.Uint32(value)))
		case tag == wanted && len(value) == 8:
			found = int64(binary.BigEndian.Uint64(value))
		}
	})
	return found
}
