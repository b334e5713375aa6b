"""A client by openapi-generator's `python`."""

import json
import sys

import openapi_client as client

with client.ApiClient(client.Configuration(host=sys.argv[1])) as api:
    topics, records, queues = client.TopicsApi(api), client.RecordsApi(api), client.QueuesApi(api)

    topics.put_topic("log", client.ConfigBody(durability=client.Durability.DISK))
    appended = records.append_records(
        "log",
        client.AppendBody(
            records=[
                client.RecordBody(
                    data={"order": 1, "lines": [1.5, None]},
                    tag="eu.open",
                    node="shop",
                    meta={"from": ["web", {"a": 1}]},
                ),
                client.RecordBody(data=[2.5], tag="us.open"),
            ]
        ),
        idempotency_key="once",
    )
    page = records.read_records("log", client.DiffBody(include_tags=True))
    by_tag = client.DiffBody(match=client.TagMatch("eu.*"), node=client.Nodes(["other"]))
    matched = records.read_records("log", by_tag)
    stable = records.read_records_page("log", from_seq=1)
    given = records.read_records("given")
    equal = client.DeleteBody(match=client.TagMatch(["tag", "Eq", "us.open"]))
    deleted = records.delete_records("log", equal)
    purged = records.purge_records("log")

    topics.put_topic("jobs", client.ConfigBody(type=client.TopicType.QUEUE))
    records.append_records("jobs", client.AppendBody(records=[client.RecordBody(data={"mail": 1})]))
    job = queues.claim_jobs("jobs", client.ClaimBody(node="w")).claimed[0]
    held = client.AckBody(node="w", seqs=[job.seq], lease_ids=[job.lease_id])
    acked = queues.ack_jobs("jobs", held)

    three = [client.RecordBody(data=n) for n in (1, 2, 3)]
    records.append_records(
        "small", client.AppendBody(records=three, config=client.ConfigBody(cap_records=1))
    )
    lost = records.read_records("small").tombstone

    copies = client.RouterBody(source="log", dest="copy", filter=client.TagMatch("eu.*"))
    router = client.RoutersApi(api).put_router("copies", copies)
    metrics = client.ServerApi(api).get_metrics()
    try:
        topics.get_topic("absent")
    except client.ApiException as refusal:
        error = [refusal.status, refusal.data.error.code]

first = page.records[0]
print(
    json.dumps(
        {
            "seqs": appended.seqs,
            "record": {
                "seq": first.seq,
                "tag": first.tag,
                "node": first.node,
                "meta": first.meta,
                "data": first.data,
            },
            "is_recent": first.ts > 1.6e12,
            "null_data": given.records[0].data,
            "loss": page.tombstone,
            "matched": [record.seq for record in matched.records],
            "stable": [record.seq for record in stable.records],
            "deleted": deleted.deleted,
            "purged": [purged.success, purged.purged],
            "job": {"seq": job.seq, "data": job.data, "deliveries": job.deliveries},
            "acked": acked.acked,
            "tombstone": [lost.gap_from, lost.gap_to, lost.reason],
            "filter": router.filter,
            "metrics": "topics_topics" in metrics,
            "error": error,
        }
    )
)
