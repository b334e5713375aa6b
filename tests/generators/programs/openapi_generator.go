// A client by openapi-generator's `go`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"try/topics"
)

// good returns the answer of a call that must succeed.
func good[T any](answer T, _ any, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

func main() {
	config := topics.NewConfiguration()
	config.Servers = topics.ServerConfigurations{{URL: os.Args[1]}}
	client, ctx := topics.NewAPIClient(config), context.Background()
	records, queues := client.RecordsAPI, client.QueuesAPI
	none := *topics.NewDiffBody() // it sends an optional body that is left out as `null`

	disk := topics.NewConfigBody()
	disk.SetDurability(topics.DISK)
	good(client.TopicsAPI.PutTopic(ctx, "log").ConfigBody(*disk).Execute())
	order := topics.NewRecordBody(map[string]any{"order": 1, "lines": []any{1.5, nil}})
	order.SetTag("eu.open")
	order.SetNode("shop")
	order.SetMeta(map[string]any{"from": []any{"web", map[string]any{"a": 1}}})
	list := topics.NewRecordBody([]any{2.5})
	list.SetTag("us.open")
	two := *topics.NewAppendBody([]topics.RecordBody{*order, *list})
	appended := good(records.AppendRecords(ctx, "log").AppendBody(two).IdempotencyKey("once").Execute())
	tagged := topics.NewDiffBody()
	tagged.SetIncludeTags(true)
	page := good(records.ReadRecords(ctx, "log").DiffBody(*tagged).Execute())
	pattern := "eu.*"
	byTag := topics.NewDiffBody()
	byTag.SetMatch(topics.TagMatch{String: &pattern})
	byTag.SetNode(topics.Nodes{ArrayOfString: &[]string{"other"}})
	matched := good(records.ReadRecords(ctx, "log").DiffBody(*byTag).Execute())
	stable := good(records.ReadRecordsPage(ctx, "log").FromSeq(1).Execute())
	given := good(records.ReadRecords(ctx, "given").DiffBody(none).Execute())
	equal := topics.NewDeleteBody()
	equal.SetMatch(topics.TagMatch{ArrayOfString: &[]string{"tag", "Eq", "us.open"}})
	deleted := good(records.DeleteRecords(ctx, "log").DeleteBody(*equal).Execute())
	purged := good(records.PurgeRecords(ctx, "log").PurgeBody(*topics.NewPurgeBody()).Execute())

	queue := topics.NewConfigBody()
	queue.SetType(topics.QUEUE)
	good(client.TopicsAPI.PutTopic(ctx, "jobs").ConfigBody(*queue).Execute())
	mail := topics.NewRecordBody(map[string]any{"mail": 1})
	good(records.AppendRecords(ctx, "jobs").AppendBody(*topics.NewAppendBody([]topics.RecordBody{*mail})).Execute())
	job := good(queues.ClaimJobs(ctx, "jobs").ClaimBody(*topics.NewClaimBody("w")).Execute()).Claimed[0]
	held := topics.NewAckBody("w", []int64{job.Seq})
	held.LeaseIds = []string{job.LeaseId}
	acked := good(queues.AckJobs(ctx, "jobs").AckBody(*held).Execute())

	capped := topics.NewConfigBody()
	capped.SetCapRecords(1)
	three := topics.NewAppendBody([]topics.RecordBody{{Data: 1}, {Data: 2}, {Data: 3}})
	three.SetConfig(*capped)
	good(records.AppendRecords(ctx, "small").AppendBody(*three).Execute())
	lost := good(records.ReadRecords(ctx, "small").DiffBody(none).Execute()).Tombstone.Get()

	copies := topics.NewRouterBody("log", "copy")
	copies.SetFilter(topics.TagMatch{String: &pattern})
	router := good(client.RoutersAPI.PutRouter(ctx, "copies").RouterBody(*copies).Execute())
	metrics := good(client.ServerAPI.GetMetrics(ctx).Execute())
	_, answer, err := client.TopicsAPI.GetTopic(ctx, "absent").Execute()
	var refusal *topics.GenericOpenAPIError
	if !errors.As(err, &refusal) {
		panic(err)
	}
	envelope := refusal.Model().(topics.ErrorEnvelope)

	seqs := func(found []topics.TopicRecord) (seqs []int64) {
		for _, record := range found {
			seqs = append(seqs, record.Seq)
		}
		return
	}
	first := page.Records[0]
	said, _ := json.Marshal(map[string]any{
		"seqs":      appended.Seqs,
		"record":    map[string]any{"seq": first.Seq, "tag": first.Tag, "node": first.Node, "meta": first.Meta, "data": first.Data},
		"is_recent": first.Ts > 1_600_000_000_000,
		"null_data": given.Records[0].Data,
		"loss":      page.Tombstone.Get(),
		"matched":   seqs(matched.Records),
		"stable":    seqs(stable.Records),
		"deleted":   deleted.Deleted,
		"purged":    []any{purged.Success, purged.Purged},
		"job":       map[string]any{"seq": job.Seq, "data": job.Data, "deliveries": job.Deliveries},
		"acked":     acked.Acked,
		"tombstone": []any{lost.GapFrom, lost.GapTo, lost.Reason},
		"filter":    router.Filter,
		"metrics":   strings.Contains(metrics, "topics_topics"),
		"error":     []any{answer.StatusCode, envelope.Error.Code},
	})
	fmt.Println(string(said))
}
