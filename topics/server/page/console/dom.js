// Elements and words: what every module needs.  Text goes in as text nodes only; nothing here, or
// anywhere in the console, makes markup of a string.  What would turn the order of the text beside it, or
// is never seen, is spelled out, as on a terminal (topics/visible.py has the same table).

export const $ = (id) => document.getElementById(id);

const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]", "gu");
const escape = (char) => char === "\r" ? "\\r" : char.split("").map((unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0")).join("");

/** Text that reorders nothing; line ends and tabs stay. */
export const visible = (text) => (typeof text === "string" ? text.replace(HIDDEN, escape) : text);

/** An element with a class; strings inside become text nodes, whatever is in them. */
export function make(tag, className = "", ...inside) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...inside.map(visible));
  return node;
}

export function set(node, text) {
  const shown = visible(String(text ?? ""));
  if (node.textContent !== shown) node.textContent = shown;
}
export const show = (node, isShown) => { node.hidden = !isShown; };

/** A button.  The second click of a double click does nothing, as long as what the first one began goes on. */
export function button(text, act, className = "") {
  const made = make("button", className, text);
  let isBusy = false;
  made.type = "button";
  made.onclick = async (event) => {
    if (isBusy) return;
    isBusy = true;
    try { await act(event); } finally { isBusy = false; }
  };
  return made;
}

export function link(text, hash, className = "") {
  const made = make("a", className, text);
  made.href = hash;
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...inside) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside.map(visible));
  return made;
}

export const digits = (n) => Number(n).toLocaleString("en");
export const count = (n, what) => `${digits(n)} ${what}${n === 1 ? "" : "s"}`;
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export function size(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
  return (unit && bytes < 100 ? bytes.toFixed(1).replace(/\.0$/, "") : Math.round(bytes)) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

/** A number for an axis or a rate: three digits and a letter. */
export function short(n) {
  let unit = 0;
  for (; Math.abs(n) >= 1000 && unit < 4; unit++) n /= 1000;
  const places = n === 0 || Math.abs(n) >= 100 || Number.isInteger(n) ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return n.toFixed(places).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + ["", "k", "M", "G", "T"][unit];
}

export function duration(ms) {
  const days = Math.floor(ms / 86400000);
  return (days ? `${count(days, "day")} ` : "") + new Date(ms % 86400000).toISOString().slice(11, 19);
}

/** A span of time in its largest unit: 250 ms, 12 s, 3 min, 5 h, 2 days. */
export function span(ms) {
  for (const [unit, of] of [["day", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= of) {
      const n = Math.round((10 * ms) / of) / 10;
      return unit === "day" ? count(n, unit) : `${digits(n)} ${unit}`;
    }
  }
  return `${Math.round(ms)} ms`;
}

/** The time zone of every time on the page, by its name. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const local = (ms) => new Date(ms - 60000 * new Date(ms).getTimezoneOffset()).toISOString().slice(0, -1).split("T");

/** The time of day, and the date before it where that is not today. */
export function clock(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime()) || Math.abs(ms) > 8.64e15 - 864e5) return String(ms);
  const [day, time] = local(ms);
  return day === local(Date.now())[0] ? time : `${day} ${time}`;
}

/** The same without milliseconds. */
export const toSecond = (ms) => clock(ms).replace(/\.\d+$/, "");

/** Of a field for a date and a time, in milliseconds since the epoch; null where it is empty. */
export const momentOf = (input) => (input.value ? new Date(input.value).getTime() : null);

/** The value of such a field. */
export const fieldOf = (ms) => (ms === null ? "" : local(ms).join("T").slice(0, 19));

/** Copy to the clipboard; where a page over plain HTTP has none, by way of a selection. */
export async function copy(text, from) {
  const before = from.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", "unseen");
    area.value = text;
    from.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    from.focus();
  }
  set(from, "Copied");
  setTimeout(() => set(from, before), 1200);
}

/** Arrow keys, Home and End move the focus in a list of which one item is in the order of Tab. */
export function roves(list, items) {
  list.addEventListener("keydown", (event) => {
    const all = [...list.querySelectorAll(items)], at = all.indexOf(event.target.closest(items));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || !all[to] || event.target.matches("input, textarea, select")) return;
    if (event.key.match(/Left|Right/) && list.getAttribute("role") !== "tablist") return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
}
