"""The stream of the demonstration: flights of a topic, copied to another by Spark.

python -m bench.demo_follow URL SOURCE TARGET CHECKPOINT [--once]
"""

import click

from topics.spark.sessions import session


@click.command()
@click.argument("url")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
@click.option("--once", "is_once", is_flag=True, help="End with what is there now.")
def main(url: str, source: str, target: str, checkpoint: str, is_once: bool) -> None:
    """Copy late departures as they are appended, each once."""
    spark = session("topics demo", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    late = (
        spark.readStream.format("topics")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", "2000")
        .schema("seq BIGINT, tag STRING, data STRING")
        .load()
        .where("int(get_json_object(data, '$.dep_delay')) >= 15")
    )
    writer = (
        late.writeStream.format("topics")
        .option("url", url)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
    )
    query = writer.trigger(availableNow=True).start() if is_once else writer.start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
