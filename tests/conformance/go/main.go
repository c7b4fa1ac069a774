// Command conformance talks to a broker through one Go client, as a program that knows nothing of
// which broker it is: conformance CLIENT BOOTSTRAP TOPIC. It prints one JSON object of what it saw;
// what should be in it, the Python test says. An error is printed and exits 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Seen is what a client found, by the name of the step.
type Seen map[string]any

var clients = map[string]func(context.Context, string, string) (Seen, error){
	"franz":              franz,
	"franz-transactions": franzTransactions,
	"franz-share":        franzShare,
	"sarama":             saramaClient,
	"kafka-go":           segmentio,
}

func main() {
	if len(os.Args) != 4 || clients[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: conformance CLIENT BOOTSTRAP TOPIC")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	seen, err := clients[os.Args[1]](ctx, os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v (after %v)\n", os.Args[1], err, seen)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// value is the value of record n that a codec's batch holds.
func value(codec string, n int) string {
	return fmt.Sprintf("%s-%d-%0100d", codec, n, n)
}
