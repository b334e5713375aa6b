"""Models by datamodel-code-generator, over a plain HTTP client."""

import json
import sys
from typing import TypeVar

import httpx
import topics_models as models
from pydantic import BaseModel

http = httpx.Client(base_url=f"{sys.argv[1]}/v0")
Model = TypeVar("Model", bound=BaseModel)


def ask(
    kind: type[Model], method: str, path: str, body: BaseModel | None = None, **query: int
) -> Model:
    """The answer to a request, as a model."""
    text = None if body is None else body.model_dump_json(exclude_unset=True, by_alias=True)
    answer = http.request(
        method, path, content=text, params=query, headers={"content-type": "application/json"}
    )
    return kind.model_validate_json(answer.content)


ask(models.TopicPut, "PUT", "/topics/log", models.ConfigBody(durability=models.Durability.disk))
order = {"data": {"order": 1, "lines": [1.5, None]}, "tag": "eu.open", "node": "shop"}
order["meta"] = {"from": ["web", {"a": 1}]}
two = models.AppendBody(records=[order, {"data": [2.5], "tag": "us.open"}], idempotency_key="once")
appended = ask(models.Appended, "POST", "/topics/log", two)
page = ask(models.Page, "POST", "/topics/log/diff", models.DiffBody(include_tags=True))
by_tag = models.DiffBody(match="eu.*", node=["other"])
matched = ask(models.Page, "POST", "/topics/log/diff", by_tag)
stable = ask(models.StablePage, "GET", "/topics/log/records", from_seq=1)
given = ask(models.Page, "POST", "/topics/given/diff")
equal = models.DeleteBody(match=["tag", "Eq", "us.open"])
deleted = ask(models.RecordsDeleted, "POST", "/topics/log/delete", equal)
purged = ask(models.Purged, "POST", "/topics/log/purge")

ask(models.TopicPut, "PUT", "/topics/jobs", models.ConfigBody(type="queue"))
ask(
    models.Appended,
    "POST",
    "/topics/jobs",
    models.AppendBody(records=[models.RecordBody(data={"mail": 1})]),
)
job = ask(models.Claimed, "POST", "/topics/jobs/claim", models.ClaimBody(node="w")).claimed[0]
held = models.AckBody(node="w", seqs=[job.field_seq], lease_ids=[job.lease_id])
acked = ask(models.Acked, "POST", "/topics/jobs/ack", held)

three = [models.RecordBody(data=n) for n in (1, 2, 3)]
capped = models.AppendBody(records=three, config=models.ConfigBody(cap_records=1))
ask(models.Appended, "POST", "/topics/small", capped)
lost = ask(models.Page, "POST", "/topics/small/diff").tombstone

copies = models.RouterBody(source="log", dest="copy", filter="eu.*")
router = ask(models.RouterPut, "PUT", "/routers/copies", copies)
absent = http.get("/topics/absent")
refusal = models.ErrorEnvelope.model_validate_json(absent.content)

first = page.records[0]
print(
    json.dumps(
        {
            "seqs": appended.seqs,
            "record": {
                "seq": first.field_seq,
                "tag": first.field_tag,
                "node": first.field_node,
                "meta": first.meta,
                "data": first.data,
            },
            "is_recent": first.field_ts > 1.6e12,
            "null_data": given.records[0].data,
            "loss": page.tombstone,
            "matched": [record.field_seq for record in matched.records],
            "stable": [record.field_seq for record in stable.records],
            "deleted": deleted.deleted,
            "purged": [purged.success, purged.purged],
            "job": {"seq": job.field_seq, "data": job.data, "deliveries": job.deliveries},
            "acked": acked.acked,
            "tombstone": [lost.gap_from, lost.gap_to, lost.reason.value],
            "filter": router.filter,
            "metrics": "topics_topics" in http.get("/metrics").text,
            "error": [absent.status_code, refusal.error.code.value],
        }
    )
)
