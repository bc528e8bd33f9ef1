// Learning curves: cards around uPlot, a global of uPlot.js. The cursors of all charts with one axis move together.
import {$, el, button, empty, known, get, number, percent} from "./dom.js";

const {uPlot} = window;
const COLOURS = ["after", "fault", "good", "bad", "before", "train"];
const EVALUATED = {colour: "after", style: "dots"}, TRAINED = {colour: "train", style: "thin"};
const HEIGHTS = {large: 300, small: 110};
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const last = values => values.findLast(known) ?? null;

/** A card with one chart; its legend shows the values under the cursor, else the newest. */
class Plot {
  constructor(title, note, size) {
    this.title = title;
    this.height = HEIGHTS[size];
    this.legend = el("div.legend");
    this.reading = el("b");
    this.box = el("div.canvas", {role: "img"});
    this.node = el(`div.card.${size}`, el("h3", title, this.reading), note && el("p", note), this.legend, this.box);
    new ResizeObserver(() => this.plot?.setSize({width: this.box.clientWidth, height: this.height})).observe(this.box);
    dark.addEventListener("change", () => this.draw());
  }

  /** `lines` are {label, colour, style: line, thin or dots, points: [[x, y, low, high], …]}; low and high make a band. */
  update(xLabel, lines, say = number, range = null) {
    const key = JSON.stringify([xLabel, lines]);
    if (key === this.key) return;
    const x = [...new Set(lines.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b);
    const place = new Map(x.map((value, index) => [value, index]));
    const column = (line, which) => {
      const values = new Array(x.length).fill(null);
      for (const point of line.points) values[place.get(point[0])] = point[which];
      return values;
    };
    const filled = lines.map(line => ({...line, values: column(line, 1), low: column(line, 2), high: column(line, 3)}));
    const shape = JSON.stringify([xLabel, lines.map(({label, points}) => [label, points.length === 1, points[0]?.length])]);
    const before = this.x, grown = shape === this.shape && this.plot;
    Object.assign(this, {key, shape, x, xLabel, lines: filled, say, range});
    if (grown) this.grow(before);
    else requestAnimationFrame(() => this.draw());
  }

  /** Columns as uPlot takes them: x, and for each line its band's edges, where it has one, and its values. */
  columns() {
    return [this.x, ...this.lines.flatMap(({values, low, high}) => low.some(known) ? [high, low, values] : [values])];
  }

  /** New points of the same lines: the cursor and a zoomed axis stay. */
  grow(before) {
    const {min, max} = this.plot.scales.x, zoomed = min > before[0] || max < before.at(-1);
    this.plot.setData(this.columns(), !zoomed);
    if (zoomed) this.plot.redraw();
    this.read(this.plot.cursor.idx);
  }

  draw() {
    if (!this.x || !this.box.clientWidth) return;
    this.plot?.destroy();
    this.readings = this.lines.length > 1 ? this.lines.map(() => el("b")) : [this.reading];
    this.legend.replaceChildren(...this.lines.length > 1 ? this.lines.map(({label, colour, style}, index) =>
      el(`span.c-${colour}`, el(`i.${style}`), el("span.soft", `${label} `, this.readings[index]))) : []);
    const series = [{}], bands = [], hidden = {stroke: "transparent", points: {show: false}, spanGaps: true};
    for (const {colour, values, style, low} of this.lines) {
      if (low.some(known)) {
        bands.push({series: [series.length, series.length + 1], fill: paint("accent-soft")});
        series.push(hidden, hidden);
      }
      const stroke = paint(colour === "after" ? "accent" : colour);
      const points = {show: style === "dots" || values.filter(known).length === 1, size: 7, fill: stroke};
      series.push({stroke, width: style === "thin" ? 1.25 : 2, spanGaps: true, points});
    }
    const grid = {stroke: paint("line"), width: 1};
    const axis = {stroke: paint("faint"), font: "11px system-ui, sans-serif", grid, ticks: {show: false}};
    this.plot = new uPlot({
      width: this.box.clientWidth, height: this.height, series, bands, legend: {show: false},
      scales: {x: {time: false}, y: this.range ? {range: this.range} : {}},
      axes: [
        {...axis, grid: {show: false}, size: 24, gap: 4, space: 56, values: (_, ticks) => ticks.map(number)},
        {...axis, size: 46, gap: 6, space: 28, values: (_, ticks) => ticks.map(this.say)},
      ],
      cursor: {sync: {key: this.xLabel}, y: false, points: {size: 6}},
      padding: [8, 18, 0, 0],
      hooks: {setCursor: [plot => this.read(plot.cursor.idx)]},
    }, this.columns(), this.box);
    this.read(null);
  }

  /** Shows the values at the cursor; without one, the newest. */
  read(index) {
    const words = this.lines.map(({values}) => this.say(last(known(index) ? values.slice(0, index + 1) : values)));
    words.forEach((word, i) => { this.readings[i].textContent = word; });
    const readings = this.lines.map(({label}, i) => `${label} ${words[i]}`).join(", ");
    this.box.setAttribute("aria-label", `${this.title} over ${this.xLabel}: ${readings}`);
  }
}

const plots = new Map();
let axis = 0;

/** Fetches the metrics and draws them. */
export async function drawCurves() {
  const {success, signals} = await get("/api/metrics"), names = Object.keys(success), lines = success[names[axis]];
  drawAxis(names);
  const place = $("#curves"), shown = [];
  const plot = (title, note, size) => {
    if (!plots.has(title)) plots.set(title, new Plot(title, note, size));
    shown.push(plots.get(title));
    return plots.get(title);
  };
  if (lines.length) {  // those of evaluations have intervals
    const painted = lines.map(line => ({...line, ...line.points[0].length > 2 ? EVALUATED : TRAINED}));
    plot("Success", "", "large").update(names[axis], painted, percent, [0, 1]);
  }
  for (const {title, note, lines} of signals) {
    const painted = lines.map((line, index) => ({...line, colour: COLOURS[index % COLOURS.length], style: "line"}));
    plot(title, note, "small").update("update", painted);
  }
  const nodes = shown.map(one => one.node);
  if (!nodes.length) nodes.push(empty("No curves yet: the first points come with the first update, or the first evaluation."));
  if (nodes.some((node, index) => node !== place.children[index])) place.replaceChildren(...nodes);
}

function drawAxis(names) {
  if ($("#axis").children.length) return;
  const buttons = names.map((name, index) => button(name, () => {
    axis = index;
    buttons.forEach((other, i) => other.setAttribute("aria-pressed", String(i === axis)));
    drawCurves();
  }, {"aria-pressed": String(index === axis)}));
  $("#axis").append(...buttons);
}
