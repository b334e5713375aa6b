// A client by ogen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"try/topics"
)

// open is the security of a server without keys.
type open struct{}

func (open) Key(context.Context, topics.OperationName) (topics.Key, error) {
	return topics.Key{}, ogenerrors.ErrSkipClientSecurity
}

func (open) Token(context.Context, topics.OperationName) (topics.Token, error) {
	return topics.Token{}, ogenerrors.ErrSkipClientSecurity
}

// good returns the answer of a call, as the type that it must have.
func good[T any, R any](answer R, err error) T {
	if err != nil {
		panic(err)
	}
	return any(answer).(T)
}

func main() {
	client, err := topics.NewClient(os.Args[1], open{})
	if err != nil {
		panic(err)
	}
	ctx, record := context.Background(), func(data string) topics.RecordBody { return topics.RecordBody{Data: jx.Raw(data)} }

	disk := topics.ConfigBody{Durability: topics.NewOptNilDurability(topics.DurabilityDisk)}
	good[*topics.PutTopicCreated](client.PutTopic(ctx, topics.NewOptConfigBody(disk), topics.PutTopicParams{Topic: "log"}))
	order, list := record(`{"order":1,"lines":[1.5,null]}`), record("[2.5]")
	order.Tag, order.Node = topics.NewOptNilString("eu.open"), topics.NewOptNilString("shop")
	order.Meta = topics.NewOptNilRecordBodyMeta(topics.RecordBodyMeta{"from": jx.Raw(`["web",{"a":1}]`)})
	list.Tag = topics.NewOptNilString("us.open")
	two := &topics.AppendBody{Records: []topics.RecordBody{order, list}}
	once := topics.AppendRecordsParams{Topic: "log", IdempotencyKey: topics.NewOptString("once")}
	appended := good[*topics.AppendRecordsOK](client.AppendRecords(ctx, two, once))
	log := topics.ReadRecordsParams{Topic: "log"}
	tagged := topics.DiffBody{IncludeTags: topics.NewOptNilBool(true)}
	page := good[*topics.Page](client.ReadRecords(ctx, topics.NewOptDiffBody(tagged), log))
	prefix := topics.NewOptNilTagMatch(topics.NewStringTagMatch("eu.*"))
	byTag := topics.DiffBody{Match: prefix, Node: topics.NewOptNilNodes(topics.NewStringArrayNodes([]string{"other"}))}
	matched := good[*topics.Page](client.ReadRecords(ctx, topics.NewOptDiffBody(byTag), log))
	stable := good[*topics.StablePageHeaders](client.ReadRecordsPage(ctx, topics.ReadRecordsPageParams{Topic: "log", FromSeq: topics.NewOptInt64(1)}))
	given := good[*topics.Page](client.ReadRecords(ctx, topics.OptDiffBody{}, topics.ReadRecordsParams{Topic: "given"}))
	equal := &topics.DeleteBody{Match: topics.NewOptNilTagMatch(topics.NewStringArrayTagMatch([]string{"tag", "Eq", "us.open"}))}
	deleted := good[*topics.RecordsDeleted](client.DeleteRecords(ctx, equal, topics.DeleteRecordsParams{Topic: "log"}))
	purged := good[*topics.Purged](client.PurgeRecords(ctx, topics.OptPurgeBody{}, topics.PurgeRecordsParams{Topic: "log"}))

	queue := topics.ConfigBody{Type: topics.NewOptNilTopicType(topics.TopicTypeQueue)}
	good[*topics.PutTopicCreated](client.PutTopic(ctx, topics.NewOptConfigBody(queue), topics.PutTopicParams{Topic: "jobs"}))
	mail := &topics.AppendBody{Records: []topics.RecordBody{record(`{"mail":1}`)}}
	good[*topics.AppendRecordsOK](client.AppendRecords(ctx, mail, topics.AppendRecordsParams{Topic: "jobs"}))
	job := good[*topics.Claimed](client.ClaimJobs(ctx, &topics.ClaimBody{Node: "w"}, topics.ClaimJobsParams{Topic: "jobs"})).Claimed[0]
	held := &topics.AckBody{Node: "w", Seqs: []int64{job.Seq}, LeaseIds: topics.NewOptNilStringArray([]string{job.LeaseID})}
	acked := good[*topics.Acked](client.AckJobs(ctx, held, topics.AckJobsParams{Topic: "jobs"}))

	three := &topics.AppendBody{
		Records: []topics.RecordBody{record("1"), record("2"), record("3")},
		Config:  topics.NewOptNilConfigBody(topics.ConfigBody{CapRecords: topics.NewOptNilInt64(1)}),
	}
	good[*topics.AppendRecordsCreated](client.AppendRecords(ctx, three, topics.AppendRecordsParams{Topic: "small"}))
	lost := good[*topics.Page](client.ReadRecords(ctx, topics.OptDiffBody{}, topics.ReadRecordsParams{Topic: "small"})).Tombstone.Value

	copies := &topics.RouterBody{Source: "log", Dest: "copy", Filter: prefix}
	router := good[*topics.PutRouterCreated](client.PutRouter(ctx, copies, topics.PutRouterParams{Router: "copies"}))
	metrics, _ := io.ReadAll(good[io.Reader](client.GetMetrics(ctx)))
	absent := good[*topics.GetTopicNotFound](client.GetTopic(ctx, topics.GetTopicParams{Topic: "absent"}))

	seqs := func(found []topics.TopicRecord) (seqs []int64) {
		for _, record := range found {
			seqs = append(seqs, record.Seq)
		}
		return
	}
	first := page.Records[0]
	meta := map[string]json.RawMessage{}
	for key, value := range first.Meta.Value {
		meta[key] = json.RawMessage(value)
	}
	said, _ := json.Marshal(map[string]any{
		"seqs":      appended.Seqs,
		"record":    map[string]any{"seq": first.Seq, "tag": first.Tag.Value, "node": first.Node.Value, "meta": meta, "data": json.RawMessage(first.Data)},
		"is_recent": first.Ts > 1_600_000_000_000,
		"null_data": json.RawMessage(given.Records[0].Data),
		"loss":      map[bool]any{true: nil, false: page.Tombstone.Value}[page.Tombstone.Null],
		"matched":   seqs(matched.Records),
		"stable":    seqs(stable.Response.Records),
		"deleted":   deleted.Deleted,
		"purged":    []any{purged.Success, purged.Purged},
		"job":       map[string]any{"seq": job.Seq, "data": json.RawMessage(job.Data), "deliveries": job.Deliveries},
		"acked":     acked.Acked,
		"tombstone": []any{lost.GapFrom, lost.GapTo, lost.Reason},
		"filter":    router.Filter,
		"metrics":   strings.Contains(string(metrics), "topics_topics"),
		"error":     []any{404, absent.Error.Code},
	})
	fmt.Println(string(said))
}
