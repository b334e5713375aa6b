// New topics and routers, by forms.  A name that is taken is refused: a PUT would replace what is there (§1.1, §6.1).

import { getJson, sendJson, why } from "./api.js";
import { $, set, show } from "./dom.js";
import { isJson } from "./json.js";

let onRouter = () => {};

/** Called when there is a new router. */
export const onNewRouter = (call) => { onRouter = call; };

/** Raises where a list has an item of this name. */
async function requireFree(list, noun, name) {
  const found = await getJson(`/v0/${list}?` + new URLSearchParams({ prefix: name, page_size: 1 }));
  if (found[list][0]?.[noun] === name) throw new Error(`There is a ${noun} ${name} already.`);
}

/** A form behind a button: it makes something, says what was wrong, and goes. */
function formOf(id, opener, make) {
  const form = $(id), trouble = $(id + "-trouble"), sent = form.querySelector("button.main");
  const close = () => { show(form, false); };
  $(opener).onclick = () => {
    form.reset();
    set(trouble, "");
    show(form, true);
    form.querySelector("input").focus();
  };
  $(id + "-cancel").onclick = close;
  form.onsubmit = async (event) => {
    event.preventDefault();
    set(trouble, "");
    sent.disabled = true;
    try {
      await make();
      close();
    } catch (error) {
      set(trouble, why(error));
    } finally {
      sent.disabled = false;
    }
  };
}

async function makeTopic() {
  const name = $("topic-name").value.trim(), type = $("topic-type").value, letters = $("topic-letters").value.trim(), more = $("topic-more").value.trim();
  if (more && !(isJson(more) && more.startsWith("{"))) throw new Error("The rest of the configuration is not a JSON object.");
  const config = { type, durability: $("topic-durability").value, ...(type === "queue" && letters && { dead_letter: letters, max_deliveries: 5 }), ...(more && JSON.parse(more)) };
  await requireFree("topics", "topic", name);
  await sendJson("PUT", `/v0/topics/${encodeURIComponent(name)}`, config);
  location.hash = `#/topics/${name}/settings`;
}

async function makeRouter() {
  const source = $("router-source").value.trim(), dest = $("router-dest").value.trim(), filter = $("router-filter").value.trim();
  const name = $("router-name").value.trim() || `${source}->${dest}`;
  await requireFree("routers", "router", name);
  const asked = { source, dest, guarantee: $("router-guarantee").value, ...(filter && { filter }) };
  await sendJson("PUT", `/v0/routers/${encodeURIComponent(name)}`, asked);
  onRouter();
}

formOf("topic-form", "topic-new", makeTopic);
formOf("router-form", "router-new", makeRouter);
$("topic-type").onchange = () => show($("topic-letters").parentElement, $("topic-type").value === "queue");
$("topic-form").onreset = () => show($("topic-letters").parentElement, false);
