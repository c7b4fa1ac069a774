// Command extensions is a producer and a consumer that use KIP-359, KIP-391 and KIP-232 as
// docs/protocol-extensions.md and docs/protocol-bytes.md say, and nothing else of kstore's.
//
// It reads commands from stdin, one JSON object a line, and writes to stdout what happens (lines
// with "event") and how each command ends (a line with "result" or "error").
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A command; which fields it needs, its function says.
type command struct {
	Do          string   `json:"do"`
	Topic       string   `json:"topic"`
	Group       string   `json:"group"`
	Values      []string `json:"values"`
	Offset      *int64   `json:"offset"`
	Sequence    *int32   `json:"sequence"`
	Gap         bool     `json:"gap"`
	LeaderEpoch *int32   `json:"leader_epoch"`
	Records     []given  `json:"records"`
	Seeds       string   `json:"seeds"`
}

// given is a record of another log, with its offset there.
type given struct {
	Offset int64  `json:"offset"`
	Value  string `json:"value"`
}

var (
	output = json.NewEncoder(os.Stdout)
	lock   sync.Mutex
)

func say(line map[string]any) {
	lock.Lock()
	defer lock.Unlock()
	if err := output.Encode(line); err != nil {
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: extensions BOOTSTRAP")
		os.Exit(2)
	}
	time.AfterFunc(4*time.Minute, func() { os.Exit(3) })
	c := newClient(strings.Split(os.Args[1], ","))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		result, err := c.run(asked)
		if err != nil {
			say(map[string]any{"error": err.Error()})
		} else {
			say(map[string]any{"result": result})
		}
	}
}

func (c *client) run(asked command) (any, error) {
	switch asked.Do {
	case "seeds": // ask these brokers first from now on
		c.seeds, c.next = strings.Split(asked.Seeds, ","), 0
		return nil, nil
	case "metadata":
		return c.metadata(asked.Topic)
	case "produce":
		return c.produce(asked)
	case "copy":
		return c.copy(asked.Topic, asked.Records)
	case "producer id":
		return nil, c.newProducerID()
	case "start":
		return c.start(asked.Group, asked.Topic)
	case "seek":
		return c.seek(asked.Topic, *asked.Offset)
	case "poll":
		return c.poll(asked.Topic)
	case "commit":
		return nil, c.commit(asked.Group, asked.Topic, asked.Offset, asked.LeaderEpoch)
	}
	return nil, fmt.Errorf("no such command: %s", asked.Do)
}
