"""A client by openapi-python-client."""

import json
import sys

from topics_client import Client, models
from topics_client.api.queues import ack_jobs, claim_jobs
from topics_client.api.records import (
    append_records,
    delete_records,
    purge_records,
    read_records,
    read_records_page,
)
from topics_client.api.routers import put_router
from topics_client.api.server import get_metrics
from topics_client.api.topics import get_topic, put_topic

client = Client(base_url=sys.argv[1])

put_topic.sync("log", client=client, body=models.ConfigBody(durability=models.Durability.DISK))
meta = models.RecordBodyMetaType0.from_dict({"from": ["web", {"a": 1}]})
order = models.RecordBody({"order": 1, "lines": [1.5, None]}, tag="eu.open", node="shop", meta=meta)
two = models.AppendBody(records=[order, models.RecordBody([2.5], tag="us.open")])
appended = append_records.sync("log", client=client, body=two, idempotency_key="once")
page = read_records.sync("log", client=client, body=models.DiffBody(include_tags=True))
by_tag = models.DiffBody(match="eu.*", node=["other"])
matched = read_records.sync("log", client=client, body=by_tag)
stable = read_records_page.sync("log", client=client, from_seq=1)
given = read_records.sync("given", client=client)
equal = models.DeleteBody(match=["tag", "Eq", "us.open"])
deleted = delete_records.sync("log", client=client, body=equal)
purged = purge_records.sync("log", client=client)

put_topic.sync("jobs", client=client, body=models.ConfigBody(type_=models.TopicType.QUEUE))
mail = models.AppendBody(records=[models.RecordBody({"mail": 1})])
append_records.sync("jobs", client=client, body=mail)
job = claim_jobs.sync("jobs", client=client, body=models.ClaimBody(node="w")).claimed[0]
held = models.AckBody(node="w", seqs=[job.seq], lease_ids=[job.lease_id])
acked = ack_jobs.sync("jobs", client=client, body=held)

three = [models.RecordBody(n) for n in (1, 2, 3)]
capped = models.AppendBody(records=three, config=models.ConfigBody(cap_records=1))
append_records.sync("small", client=client, body=capped)
lost = read_records.sync("small", client=client).tombstone

copies = models.RouterBody(source="log", dest="copy", filter_="eu.*")
router = put_router.sync("copies", client=client, body=copies)
metrics = get_metrics.sync_detailed(client=client)
absent = get_topic.sync_detailed("absent", client=client)

first = page.records[0]
print(
    json.dumps(
        {
            "seqs": appended.seqs,
            "record": {
                "seq": first.seq,
                "tag": first.tag,
                "node": first.node,
                "meta": first.meta.to_dict(),
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
            "filter": router.filter_,
            "metrics": "topics_topics" in metrics.content.decode(),
            "error": [absent.status_code, absent.parsed.error.code],
        }
    )
)
