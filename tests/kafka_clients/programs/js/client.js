// A producer and an admin of kafkajs: node client.js HOST:PORT TOPIC COUNT
const {Kafka, CompressionTypes, ConfigResourceTypes, logLevel} = require('kafkajs')
const [broker, topic, count] = process.argv.slice(2)

const main = async () => {
  const kafka = new Kafka({brokers: [broker], clientId: 'js', logLevel: logLevel.NOTHING})
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({topics: [{topic, numPartitions: 1}]})
  const producer = kafka.producer({idempotent: true, maxInFlightRequests: 1})
  await producer.connect()
  for (let at = 0; at < Number(count); at++) {
    const compression = at % 2 ? CompressionTypes.GZIP : CompressionTypes.None
    await producer.send({topic, compression, messages: [{key: 'k', value: String(at)}]})
  }
  const [offsets] = await admin.fetchTopicOffsets(topic)
  console.log(offsets.low, offsets.high)
  const resource = {type: ConfigResourceTypes.TOPIC, name: topic}
  const configEntries = [{name: 'retention.ms', value: '700000'}]
  await admin.alterConfigs({validateOnly: false, resources: [{...resource, configEntries}]})
  const {resources: [found]} = await admin.describeConfigs({resources: [resource]})
  for (const {configName, configValue, isDefault} of found.configEntries) {
    if (!isDefault) console.log(configName, configValue)
  }
  await producer.disconnect()
  await admin.disconnect()
}

main().catch(error => { console.log('failed:', error.message); process.exit(1) })
