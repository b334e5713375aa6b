// A client by oapi-codegen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"try/topics"
)

// good returns the value of a call that must succeed.
func good[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func pointer[T any](value T) *T { return &value }

func main() {
	client, ctx := good(topics.NewClientWithResponses(os.Args[1])), context.Background()

	good(client.PutTopicWithResponse(ctx, "log", topics.ConfigBody{Durability: pointer(topics.Disk)}))
	order := topics.RecordBody{
		Data: map[string]any{"order": 1, "lines": []any{1.5, nil}},
		Tag:  pointer("eu.open"),
		Node: pointer("shop"),
		Meta: &map[string]any{"from": []any{"web", map[string]any{"a": 1}}},
	}
	two := topics.AppendBody{Records: []topics.RecordBody{order, {Data: []any{2.5}, Tag: pointer("us.open")}}}
	once := &topics.AppendRecordsParams{IdempotencyKey: pointer("once")}
	appended := good(client.AppendRecordsWithResponse(ctx, "log", once, two)).JSON200
	page := good(client.ReadRecordsWithResponse(ctx, "log", topics.DiffBody{IncludeTags: pointer(true)})).JSON200
	var prefix, tag topics.TagMatch
	var others topics.Nodes
	if prefix.FromTagMatch0("eu.*") != nil || tag.FromTagMatch1([]string{"tag", "Eq", "us.open"}) != nil || others.FromNodes1([]string{"other"}) != nil {
		panic("a union")
	}
	matched := good(client.ReadRecordsWithResponse(ctx, "log", topics.DiffBody{Match: &prefix, Node: &others})).JSON200
	stable := good(client.ReadRecordsPageWithResponse(ctx, "log", &topics.ReadRecordsPageParams{FromSeq: pointer(int64(1))})).JSON200
	given := good(client.ReadRecordsWithResponse(ctx, "given", topics.DiffBody{})).JSON200
	deleted := good(client.DeleteRecordsWithResponse(ctx, "log", topics.DeleteBody{Match: &tag})).JSON200
	purged := good(client.PurgeRecordsWithResponse(ctx, "log", topics.PurgeBody{})).JSON200

	good(client.PutTopicWithResponse(ctx, "jobs", topics.ConfigBody{Type: pointer(topics.Queue)}))
	mail := topics.AppendBody{Records: []topics.RecordBody{{Data: map[string]any{"mail": 1}}}}
	good(client.AppendRecordsWithResponse(ctx, "jobs", nil, mail))
	job := good(client.ClaimJobsWithResponse(ctx, "jobs", topics.ClaimBody{Node: "w"})).JSON200.Claimed[0]
	held := topics.AckBody{Node: "w", Seqs: []int64{job.Seq}, LeaseIds: &[]string{job.LeaseId}}
	acked := good(client.AckJobsWithResponse(ctx, "jobs", held)).JSON200

	three := topics.AppendBody{
		Records: []topics.RecordBody{{Data: 1}, {Data: 2}, {Data: 3}},
		Config:  &topics.ConfigBody{CapRecords: pointer(int64(1))},
	}
	good(client.AppendRecordsWithResponse(ctx, "small", nil, three))
	lost := good(client.ReadRecordsWithResponse(ctx, "small", topics.DiffBody{})).JSON200.Tombstone

	copies := topics.RouterBody{Source: "log", Dest: "copy", Filter: &prefix}
	router := good(client.PutRouterWithResponse(ctx, "copies", copies)).JSON201
	metrics := good(client.GetMetricsWithResponse(ctx))
	absent := good(client.GetTopicWithResponse(ctx, "absent", nil))

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
		"loss":      page.Tombstone,
		"matched":   seqs(matched.Records),
		"stable":    seqs(stable.Records),
		"deleted":   deleted.Deleted,
		"purged":    []any{purged.Success, purged.Purged},
		"job":       map[string]any{"seq": job.Seq, "data": job.Data, "deliveries": job.Deliveries},
		"acked":     acked.Acked,
		"tombstone": []any{lost.GapFrom, lost.GapTo, lost.Reason},
		"filter":    router.Filter,
		"metrics":   strings.Contains(string(metrics.Body), "topics_topics"),
		"error":     []any{absent.StatusCode(), absent.JSON404.Error.Code},
	})
	fmt.Println(string(said))
}
