"""`topics call`: a job of a queue, and the wait for its result."""

from typing import TYPE_CHECKING, Any

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import FAILED, Stop, output
from topics.cli.job_options import chosen, job_options
from topics.cli.moments import age_ms
from topics.cli.records import value_of
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import CallOptions, Client


@click.command("call")
@topic_argument("queue", metavar="QUEUE")
@click.argument("data", metavar="DATA|-")
@click.option(
    "--wait",
    "wait_ms",
    callback=age_ms,
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for the result; a job that no worker has begun by then is cancelled.",
)
@click.option("--tag", help="Its tag.")
@click.option("--text", is_flag=True, help="DATA is text, and no JSON.")
@click.option("--key", help="An idempotency key: the same again waits for the same job.")
@job_options
@with_client
def command(
    client: "Client",
    queue: str,
    data: str,
    wait_ms: int,
    tag: str | None,
    text: bool,
    key: str | None,
    **job: Any,
) -> None:
    """Append one job to QUEUE, wait for its end, and print its result as JSON.

    The result is what its worker said. Ends with 5 if the job failed, or did not end in time. A queue
    without keep_done tells neither of a job that failed nor of one without a result.

    \b
    topics call sizes '{"image": "a.png"}'
    topics call sizes '{"image": "a.png"}' --wait 5m --priority 5 | jq .pixels
    """
    from msgspec import Raw

    from topics.client import CallTimeout, JobFailed

    if not wait_ms:
        raise click.UsageError("a call waits: --wait is above 0")
    value = value_of(data, "DATA", is_text=text)
    options: CallOptions = {"tag": tag, "idempotency_key": key, **chosen(**job)}  # type: ignore[typeddict-item]
    try:
        result = client.call(queue, value, wait_s=wait_ms / 1000, decode=Raw, **options)
    except (CallTimeout, JobFailed) as error:
        raise Stop(error.message, FAILED) from None
    output().write(bytes(result) + b"\n")
