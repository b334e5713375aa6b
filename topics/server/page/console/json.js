// Records as they are stored.  JSON.parse would round numbers, so a value is kept as its tokens: a text,
// or a node with `text` and `parts`, pairs of a name (with its quotes) and a value.

import { button, make, visible } from "./dom.js";

const SHOWN_CHARS = 4000;

export function parse(text) {
  const token = /["{}[\]]|[^\s"{}[\],:]+/g;
  const next = () => {
    const [found] = token.exec(text);
    if (found !== '"') return found;
    const from = token.lastIndex - 1;
    for (let isEscaped = true; isEscaped; token.lastIndex++) {
      let back = token.lastIndex = text.indexOf('"', token.lastIndex);
      while (text[back - 1] === "\\") back--;
      isEscaped = (token.lastIndex - back) % 2 === 1;
    }
    return text.slice(from, token.lastIndex);
  };
  const read = (found) => {
    if (found !== "{" && found !== "[") return found;
    const from = token.lastIndex - 1, node = { isObject: found === "{", parts: [], size: 2, text: "" };
    for (let part = next(); part !== "}" && part !== "]"; part = next()) {
      const name = node.isObject ? part : "", value = read(node.isObject ? next() : part);
      node.parts.push([name, value]);
      node.size += name.length + (value.size ?? value.length) + 4;
    }
    node.text = text.slice(from, token.lastIndex);
    return node;
  };
  return read(next());
}

export const fields = (node) => Object.fromEntries(node.parts.map(([name, value]) => [JSON.parse(name), value]));

/** Spans of a value laid out for reading, at most `room` characters of them; whether all fit. */
function layOut(value, room, out) {
  const put = (className, text) => {
    if (room <= 0) return;
    const shown = text.slice(0, room);
    room -= text.length;
    out.append(className ? make("span", className, shown) : visible(shown));
  };
  const walk = (node, indent) => {
    if (room <= 0) return;
    // A string is shown without its needless escapes.
    if (node[0] === '"') return put("string", node.includes("\\") ? JSON.stringify(JSON.parse(node)) : node);
    if (typeof node === "string") return put(/[tfn]/.test(node[0]) ? "word" : "number", node);
    const [open, close] = node.isObject ? "{}" : "[]";
    const isShort = node.size <= 76, inner = indent + "  ";
    put("", open);
    node.parts.forEach(([name, part], i) => {
      if (room <= 0) return;
      put("", (i ? (isShort ? ", " : ",") : "") + (isShort ? "" : "\n" + inner));
      if (name) { put("name", name); put("", ": "); }
      walk(part, inner);
    });
    put("", (isShort || !node.parts.length ? "" : "\n" + indent) + close);
  };
  walk(value, "");
  return room >= 0;
}

export function laidOut(value, label = "", room = SHOWN_CHARS) {
  const out = make("div", "body", label);
  if (layOut(value, room, out)) return out;
  out.append(button("… show all", () => out.replaceWith(laidOut(value, label, Infinity))));
  return out;
}

/** The text of a value, byte for byte. */
export const textOf = (value) => (typeof value === "string" ? value : value.text);

/** The beginning of a value on one line. */
export function preview(value, room) {
  let text = "";
  const walk = (node) => {
    if (text.length > room) return;
    if (typeof node === "string") { text += node.slice(0, room + 1); return; }
    text += node.isObject ? "{" : "[";
    for (const [i, [name, part]] of node.parts.entries()) {
      if (text.length > room) return;
      text += (i ? ", " : "") + (name ? name + ": " : "");
      walk(part);
    }
    text += node.isObject ? "}" : "]";
  };
  walk(value);
  return text.length > room ? text.slice(0, room) + "…" : text;
}

/** Whether a text is JSON. */
export function isJson(text) {
  try { JSON.parse(text); } catch { return false; }
  return true;
}
