// Where one is, and the rounds: every two seconds, while the page is in sight, what is on show is asked for
// again.  A round that is late never meets the next one.

import { getJson, hasKey, onKey, onKeyAsked, Refused, useKey } from "./api.js";
import { refreshClients } from "./clients.js";
import { findCluster, forgetCluster, refreshCluster } from "./cluster.js";
import { $, duration, set, show, visible, ZONE } from "./dom.js";
import { openGroup, refreshGroups } from "./groups.js";
import { forgetOverview, refreshOverview } from "./overview.js";
import { markTopic, refreshRouters } from "./routers.js";
import { openSchedules, refreshSchedules } from "./schedules.js";
import { forgetTopic, leaveTopic, openTopic, refreshTopic, TABS } from "./topic.js";
import { forgetTopics, refreshTopics } from "./topics.js";

const REFRESH_MS = 2000;
const VIEWS = ["overview", "topics", "topic", "groups", "schedules", "clients", "cluster"];

let round = 0, timer, view = "";

// ---- where one is: #/, #/clients, #/cluster, #/groups, #/groups/NAME, #/schedules, #/topics, #/topics/NAME, #/topics/NAME/TAB, #/topics/NAME/records/SEQ

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function place() {
  const group = location.hash.match(/^#\/groups(?:\/([^/]+))?$/); // any text is the name of a group: it is decoded by itself
  if (group) return { view: "groups", name: group[1] && decoded(group[1]) };
  const [, noun = "", name, part, seq] = decoded(location.hash).match(/^#\/([^/]*)(?:\/([^/]+))?(?:\/([^/]+))?(?:\/(\d+))?/) ?? [];
  if (noun === "topics" && name) return { view: "topic", name, part: TABS.includes(part) ? part : "records", seq: seq && Number(seq) };
  return { view: ["topics", "schedules", "clients", "cluster"].includes(noun) ? noun : "overview" };
}

function arrive() {
  if (location.hash.length > 1 && location.hash[1] !== "/") {
    location.replace(`#/topics/${location.hash.slice(1)}/live`); // #NAME, as it was bookmarked once
    return;
  }
  const at = place();
  for (const each of VIEWS) show($("view-" + each), each === at.view);
  for (const each of VIEWS.filter((view) => view !== "topic")) {
    if (each === at.view || (each === "topics" && at.view === "topic")) $("go-" + each).setAttribute("aria-current", "page");
    else $("go-" + each).removeAttribute("aria-current");
  }
  if (at.view === "topic") {
    openTopic(at.name, at.part, at.seq);
    markTopic(at.name);
  } else leaveTopic();
  if (at.view === "groups") openGroup(at.name, refresh);
  if (at.view === "schedules") openSchedules(refresh);
  document.title = at.name !== undefined ? `${visible(at.name)} · topics` : "topics";
  view = at.view;
  refresh();
}

// ---- rounds

const REFRESHES = {
  overview: (isCurrent) => refreshOverview(isCurrent),
  topics: (isCurrent) => refreshTopics(isCurrent).then(() => refreshRouters(isCurrent)),
  topic: (isCurrent) => refreshTopic(isCurrent),
  groups: (isCurrent) => refreshGroups(isCurrent),
  schedules: (isCurrent) => refreshSchedules(isCurrent),
  clients: (isCurrent) => refreshClients(isCurrent),
  cluster: (isCurrent) => refreshCluster(isCurrent),
};

async function refresh() {
  clearTimeout(timer);
  const mine = ++round, isCurrent = () => mine === round; // what an older round hears is dropped
  if (document.hidden) return;
  await Promise.all([refreshServer(isCurrent), findCluster(), REFRESHES[view](isCurrent)]);
  if (isCurrent()) timer = setTimeout(refresh, REFRESH_MS);
}

async function refreshServer(isCurrent) {
  const [ready, { value }] = await Promise.allSettled([getJson("/v0/ready"), getJson("/v0/health")]);
  if (!isCurrent()) return;
  const [mood, phase] = ready.value ? ["good", "ready"] : phaseOf(ready.reason);
  $("server").className = mood;
  set($("phase"), phase);
  set($("about"), value ? `version ${value.version} · up ${duration(value.uptime_ms)}` : "");
}

function phaseOf(error) {
  if (!(error instanceof Refused)) return ["bad", "unreachable"];
  const { replay_progress: progress, reason } = error.detail;
  if (reason === "read_only") return ["bad", "read-only after a failed write"];
  if (progress !== undefined) return ["warn", `replaying, ${Math.floor(100 * progress)} %`];
  return ["warn", error.message];
}

for (const each of document.querySelectorAll(".zone")) set(each, ZONE);
onKeyAsked(() => show($("access"), true));
$("access").onsubmit = (event) => {
  event.preventDefault();
  useKey($("key").value);
  showAccess();
};
// A key that is pasted often has a space or a line's end around it.
$("key").oninput = () => {
  if ($("key").value !== $("key").value.trim()) $("key").value = $("key").value.trim();
};
$("key-forget").onclick = () => {
  $("key").value = "";
  useKey("");
  showAccess();
};

/** With a key there is a way to be without one. */
function showAccess() {
  if (hasKey()) show($("access"), true);
  show($("key-forget"), hasKey());
}

showAccess();
onKey(() => {
  forgetTopics();
  forgetOverview();
  forgetTopic();
  forgetCluster();
  refresh();
});
document.onvisibilitychange = refresh;
addEventListener("hashchange", arrive);
// "/" goes to the search, as elsewhere.
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, textarea, select") || view !== "topics") return;
  event.preventDefault();
  $("search").focus();
});
arrive();
