import com.google.gson.GsonBuilder;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.QueuesApi;
import org.openapitools.client.api.RecordsApi;
import org.openapitools.client.api.RoutersApi;
import org.openapitools.client.api.ServerApi;
import org.openapitools.client.api.TopicsApi;
import org.openapitools.client.model.*;

/**
 * A client by openapi-generator's `java`.
 *
 * <p>Of `TagMatch` and `Nodes` it can send the text, and not the list: its template for okhttp-gson
 * writes any list of a `oneOf` as a primitive.  A field that is null it leaves out, `data` too.
 */
public class OpenapiGenerator {
    static Map<String, Object> object(Object... pairs) {
        Map<String, Object> made = new TreeMap<>();
        for (int i = 0; i < pairs.length; i += 2) made.put((String) pairs[i], pairs[i + 1]);
        return made;
    }

    public static void main(String[] args) throws Exception {
        ApiClient at = new ApiClient().setBasePath(args[0]);
        TopicsApi topics = new TopicsApi(at);
        RecordsApi records = new RecordsApi(at);
        QueuesApi queues = new QueuesApi(at);

        topics.putTopic("log", new ConfigBody().durability(Durability.DISK));
        RecordBody order = new RecordBody()
            .data(object("order", 1, "lines", Arrays.asList(1.5, null)))
            .tag("eu.open")
            .node("shop")
            .meta(object("from", List.of("web", object("a", 1))));
        AppendBody two = new AppendBody().addRecordsItem(order).addRecordsItem(new RecordBody().data(List.of(2.5)).tag("us.open"));
        Appended appended = records.appendRecords("log", two, true, "once");
        Page page = records.readRecords("log", new DiffBody().includeTags(true));
        Page matched = records.readRecords("log", new DiffBody().match(new TagMatch("eu.*")).node(new Nodes("other")));
        StablePage stable = records.readRecordsPage("log", 1L, null, null, null, null, null, null, null);
        Page given = records.readRecords("given", null);
        RecordsDeleted deleted = records.deleteRecords("log", new DeleteBody().match(new TagMatch("us.open")));
        Purged purged = records.purgeRecords("log", null);

        topics.putTopic("jobs", new ConfigBody().type(TopicType.QUEUE));
        records.appendRecords("jobs", new AppendBody().addRecordsItem(new RecordBody().data(object("mail", 1))), null, null);
        Job job = queues.claimJobs("jobs", new ClaimBody().node("w")).getClaimed().get(0);
        Acked acked = queues.ackJobs("jobs", new AckBody().node("w").addSeqsItem(job.get$Seq()).addLeaseIdsItem(job.getLeaseId()));

        AppendBody three = new AppendBody().config(new ConfigBody().capRecords(1L));
        for (int n = 1; n <= 3; n++) three.addRecordsItem(new RecordBody().data(n));
        records.appendRecords("small", three, null, null);
        Tombstone lost = records.readRecords("small", null).getTombstone();

        RouterBody copies = new RouterBody().source("log").dest("copy").filter(new TagMatch("eu.*"));
        RouterPut router = new RoutersApi(at).putRouter("copies", copies);
        String metrics = new ServerApi(at).getMetrics();
        List<Object> error = null;
        try {
            topics.getTopic("absent", null);
        } catch (ApiException refusal) {
            error = List.of(refusal.getCode(), ErrorEnvelope.fromJson(refusal.getResponseBody()).getError().getCode());
        }

        TopicRecord first = page.getRecords().get(0);
        System.out.println(new GsonBuilder().serializeNulls().create().toJson(object(
            "seqs", appended.getSeqs(),
            "record", object("seq", first.get$Seq(), "tag", first.get$Tag(), "node", first.get$Node(), "meta", first.getMeta(), "data", first.getData()),
            "is_recent", first.get$Ts() > 1_600_000_000_000L,
            "null_data", given.getRecords().get(0).getData(),
            "loss", page.getTombstone(),
            "matched", matched.getRecords().stream().map(TopicRecord::get$Seq).toList(),
            "stable", stable.getRecords().stream().map(TopicRecord::get$Seq).toList(),
            "deleted", deleted.getDeleted(),
            "purged", List.of(purged.getSuccess(), purged.getPurged()),
            "job", object("seq", job.get$Seq(), "data", job.getData(), "deliveries", job.getDeliveries()),
            "acked", acked.getAcked(),
            "tombstone", List.of(lost.getGapFrom(), lost.getGapTo(), lost.getReason()),
            "filter", router.getFilter(),
            "metrics", metrics.contains("topics_topics"),
            "error", error)));
        System.exit(0);
    }
}
