// A producer and a consumer of segmentio/kafka-go: segment HOST:PORT TOPIC COUNT
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
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

	writer := &kafka.Writer{
		Addr: kafka.TCP(broker), Topic: topic, AllowAutoTopicCreation: true,
		Compression: kafka.Lz4, BatchTimeout: 5 * time.Millisecond, RequiredAcks: kafka.RequireAll}
	for at := 0; at < count; at++ {
		message := kafka.Message{Key: []byte("k"), Value: []byte(strconv.Itoa(at))}
		must(writer.WriteMessages(ctx, message))
	}
	must(writer.Close())

	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic, Partition: 0})
	defer reader.Close()
	for read := 0; read < count; read++ {
		record, err := reader.ReadMessage(ctx)
		must(err)
		fmt.Println(record.Offset, string(record.Key), string(record.Value))
	}
}
