// Groups of consumers: which there are, and of the chosen one its members, and how far it is in each partition.

import { getJson, onKey, why } from "./api.js";
import { $, clock, count, digits, link, make, set, show } from "./dom.js";

const GROUPS_MAX = 200;

let chosen, anew = () => {};

export const hashOf = (name) => "#/groups/" + encodeURIComponent(name);

/** Show a group beside the list; undefined: none. */
export function openGroup(name, refresh) {
  anew = refresh;
  if (name === chosen) return;
  chosen = name;
  forget();
}

function forget() {
  show($("group"), false);
  show($("group-trouble"), false);
}

export async function refreshGroups(isCurrent) {
  const name = chosen, asked = new URLSearchParams({ page_size: GROUPS_MAX, prefix: $("group-prefix").value });
  const one = name === undefined ? undefined : getJson("/v0/groups/" + encodeURIComponent(name));
  const [list, group] = await Promise.allSettled([getJson("/v0/groups?" + asked), one]);
  if (!isCurrent() || name !== chosen) return;
  told($("groups-trouble"), list.reason);
  if (list.value) drawList(list.value);
  told($("group-trouble"), list.reason ? undefined : group.reason);
  if (group.value) drawGroup(group.value);
  else show($("group"), false);
}

function told(bar, error) {
  set(bar, error ? why(error) : "");
  show(bar, error !== undefined);
}

function drawList({ groups, next_cursor: next }) {
  set($("groups-count"), groups.length ? digits(groups.length) + (next === undefined ? "" : "+") : "");
  $("group-list").replaceChildren(...groups.map((each) => {
    const row = make(
      "tr", "",
      make("td", "", link(each.group, hashOf(each.group))), make("td", "", each.state.replaceAll("_", " ")),
      make("td", "number", digits(each.generation)), make("td", "number", digits(each.members)),
    );
    if (each.group === chosen) row.setAttribute("aria-current", "true");
    return row;
  }));
  show($("more-groups"), next !== undefined);
  show($("no-group"), !groups.length && $("group-prefix").value !== "");
  show($("first-group"), !groups.length && $("group-prefix").value === "");
}

function drawGroup(group) {
  const lag = group.offsets.reduce((sum, each) => sum + each.lag, 0), lost = group.offsets.reduce((sum, each) => sum + each.lost, 0);
  const isCut = group.next_cursor !== undefined;
  set($("group-name"), group.group);
  set($("group-about"), [group.state.replaceAll("_", " "), `generation ${digits(group.generation)}`, group.protocol, `${count(lag, "record")}${isCut ? " and more" : ""} behind`]
    .filter(Boolean).join(" · "));
  set($("group-alarm"), lost ? `${digits(lost)} lost before it came to them` : "");
  $("member-list").replaceChildren(...group.members.map((each) => make(
    "tr", "",
    make("td", "", each.instance_id ?? each.member_id), make("td", "", each.client_id), make("td", "", each.client_host),
    make("td", "", (each.assignment ?? []).map(({ topic, partitions }) => `${topic} ${partitions.join(", ")}`).join("; ")),
  )));
  show($("members"), group.members.length > 0);
  show($("no-member"), !group.members.length);
  $("offset-list").replaceChildren(...group.offsets.map((each) => make(
    "tr", "",
    make("td", "", link(each.topic, "#/topics/" + each.topic)), make("td", "number", digits(each.partition)),
    make("td", "number", digits(each.seq)), make("td", "number", digits(each.lag)),
    make("td", each.lost ? "number bad" : "number", digits(each.lost)), make("td", "", clock(each.ts)),
  )));
  show($("more-offsets"), isCut);
  show($("group"), true);
}

$("group-prefix").oninput = () => anew();
onKey(() => {
  forget();
  $("group-list").replaceChildren();
});
set($("group-curl"), `curl ${new URL("v0/groups/readers/commit", document.baseURI)}`
  + ` -H content-type:application/json -d '{"offsets":[{"topic":"hello","seq":1}]}'`);
