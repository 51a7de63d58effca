// A member of a KIP-848 group by franz-go: reports what happens to it, a line of JSON each, as member_process.py does.
// Usage: member '{"name": …, "bootstrap": …, "group": …, "topics": […]}'; it leaves when told to terminate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

type seat struct {
	Name      string   `json:"name"`
	Bootstrap string   `json:"bootstrap"`
	Group     string   `json:"group"`
	Topics    []string `json:"topics"`
}

var output sync.Mutex

// The machine's monotonic clock, which all its processes share; Go's own is counted from the start of the process.
func monotonicSeconds() float64 {
	const clockMonotonic = 1
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

func say(kind string, content any) {
	output.Lock()
	defer output.Unlock()
	line, err := json.Marshal([]any{monotonicSeconds(), kind, content})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func listed(partitions map[string][]int32) [][]any {
	all := [][]any{}
	for topic, indexes := range partitions {
		for _, index := range indexes {
			all = append(all, []any{topic, index})
		}
	}
	return all
}

func reports(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions) > 0 {
			say(kind, listed(partitions))
		}
	}
}

func main() {
	var taken seat
	if err := json.Unmarshal([]byte(os.Args[1]), &taken); err != nil {
		panic(err)
	}
	// franz-go speaks KIP-848 only to those who ask for it.
	optedIn := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	client, err := kgo.NewClient(
		kgo.WithContext(optedIn),
		kgo.SeedBrokers(taken.Bootstrap),
		kgo.ClientID(taken.Name),
		kgo.ConsumerGroup(taken.Group),
		kgo.ConsumeTopics(taken.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.OnPartitionsAssigned(reports("assigned")),
		kgo.OnPartitionsRevoked(reports("revoked")),
		kgo.OnPartitionsLost(reports("revoked")),
	)
	if err != nil {
		panic(err)
	}
	stop, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	for stop.Err() == nil {
		fetches := client.PollFetches(stop)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				say("failed", fmt.Sprintf("%s-%d: %v", topic, partition, err))
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			say("consumed", []any{[]any{record.Topic, record.Partition}, record.Offset, string(record.Value)})
		})
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				say("failed", err.Error())
			}
		}
	}
	client.Close()
}
