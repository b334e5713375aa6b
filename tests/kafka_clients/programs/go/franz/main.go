// A producer and a consumer of franz-go: franz HOST:PORT TOPIC COUNT
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	broker, topic := os.Args[1], os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	// Idempotent and compressed, as it is by default.
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.AllowAutoTopicCreation())
	must(err)
	for at := 0; at < count; at++ {
		record := &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(strconv.Itoa(at))}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err) })
	}
	must(producer.Flush(ctx))
	producer.Close()

	consumer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	must(err)
	defer consumer.Close()
	for read := 0; read < count; {
		fetches := consumer.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(record.Offset, string(record.Key), string(record.Value))
			read++
		})
	}
}
