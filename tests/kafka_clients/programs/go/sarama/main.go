// A producer and a consumer of sarama: sarama HOST:PORT TOPIC COUNT
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	brokers, topic := []string{os.Args[1]}, os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = sarama.CompressionSnappy
	config.Net.MaxOpenRequests = 1

	producer, err := sarama.NewSyncProducer(brokers, config)
	must(err)
	for at := 0; at < count; at++ {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(strconv.Itoa(at))})
		must(err)
	}
	must(producer.Close())

	consumer, err := sarama.NewConsumer(brokers, config)
	must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	for read := 0; read < count; read++ {
		record := <-partition.Messages()
		fmt.Println(record.Offset, string(record.Key), string(record.Value))
	}
}
