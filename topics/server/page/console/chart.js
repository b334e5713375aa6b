// A line chart over time as SVG: axes, lines, and the values at the pointer.
//
// Its size is in pixels of the element that holds it, so that lines and letters keep theirs.  Colours
// are classes, which the style sheet has for light and dark.

import { clock, make, set, svg, toSecond } from "./dom.js";

const PAD = { left: 50, right: 8, top: 8, bottom: 18 };

/** A round step, so that at most `lines` of them cover `most`; of bytes, a power of two. */
function roundStep(most, lines, isBytes) {
  const raw = most / lines;
  if (isBytes) return 2 ** Math.max(Math.ceil(Math.log2(raw)), 0);
  const unit = 10 ** Math.floor(Math.log10(raw));
  return unit * [1, 2, 5, 10].find((n) => n * unit >= raw * (1 - 1e-9));
}

export class Chart {
  /**
   * @param title Text above it.
   * @param series `[{label, kind}]`; `kind` is the class that colours it.
   * @param format Of a value.
   * @param isBytes Whether the axis counts by powers of two.
   */
  constructor(title, series, format, isBytes = false) {
    Object.assign(this, { series, format, isBytes, times: [], columns: series.map(() => []), from: 0, to: 1 });
    this.values = series.map(() => make("b"));
    this.when = make("span", "when");
    const legend = make("span", "legend", ...series.map(({ label, kind }, i) =>
      make("span", kind, make("i", "key"), label + " ", this.values[i])));
    this.canvas = svg("svg", { role: "img", "aria-label": title });
    this.plot = make("div", "plot", this.canvas);
    this.box = make("figure", "chart", make("figcaption", "", make("span", "title", title), legend, this.when), this.plot);
    this.plot.onpointermove = (event) => this.point(event.clientX - this.plot.getBoundingClientRect().left);
    this.plot.onpointerleave = () => this.point(null);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** New data: `times` rise; a value for each time in each column; `from` and `to` are the axis. */
  update(times, columns, from, to) {
    Object.assign(this, { times, columns, from, to });
    this.draw();
  }

  x(at) { return PAD.left + ((at - this.from) / (this.to - this.from)) * (this.width - PAD.left - PAD.right); }
  y(value) { return this.height - PAD.bottom - (value / this.top) * (this.height - PAD.top - PAD.bottom); }

  draw() {
    this.width = this.plot.clientWidth;
    this.height = this.plot.clientHeight;
    if (!this.width || !this.height) return;
    const most = Math.max(...this.columns.map((column) => column.reduce((a, b) => Math.max(a, b), 0)), 0);
    const step = roundStep(most || 1, 3, this.isBytes);
    this.top = step * Math.max(Math.ceil(most / step), 1);
    this.canvas.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.canvas.replaceChildren(...this.grid(step), ...this.lines());
    this.cursor = svg("line", { class: "cursor", y1: PAD.top, y2: this.height - PAD.bottom });
    this.cursor.style.display = "none";
    this.canvas.append(this.cursor);
    this.point(null);
  }

  grid(step) {
    const found = [];
    for (let value = 0; value <= this.top + step / 2; value += step) {
      const y = this.y(value), label = svg("text", { x: PAD.left - 6, y: y + 3.5, "text-anchor": "end" });
      label.append(this.format(value));
      found.push(svg("line", { class: "grid", x1: PAD.left, x2: this.width - PAD.right, y1: y, y2: y }), label);
    }
    const ticks = this.width < 360 ? 2 : 4;
    for (let i = 0; i <= ticks; i++) {
      const at = this.from + ((this.to - this.from) * i) / ticks;
      const anchor = i === 0 ? "start" : i === ticks ? "end" : "middle";
      const label = svg("text", { x: this.x(at), y: this.height - 4, "text-anchor": anchor });
      const [time] = clock(at).split(" ").slice(-1);
      label.append(this.to - this.from > 900000 ? time.slice(0, 5) : time.slice(0, 8));
      found.push(label);
    }
    return found;
  }

  lines() {
    return this.columns.map((column, i) => {
      const points = this.times.map((at, n) => `${this.x(at).toFixed(1)},${this.y(column[n]).toFixed(1)}`);
      return svg("polyline", { class: "line " + this.series[i].kind, points: points.join(" ") });
    });
  }

  /** Show the values at an abscissa; the last ones where there is none. */
  point(x) {
    const { times } = this;
    let n = times.length - 1;
    if (x !== null && n >= 0) {
      const at = this.from + ((x - PAD.left) / (this.width - PAD.left - PAD.right)) * (this.to - this.from);
      n = times.reduce((best, time, i) => (Math.abs(time - at) < Math.abs(times[best] - at) ? i : best), 0);
      for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(times[n]));
    }
    if (this.cursor) this.cursor.style.display = x === null || n < 0 ? "none" : "";
    this.values.forEach((value, i) => set(value, n < 0 ? "–" : this.format(this.columns[i][n])));
    set(this.when, x === null || n < 0 ? "" : toSecond(times[n]));
  }
}
