// Tasks × time: how often each task was solved, and how often it faulted. A cell opens its episodes.
import {$, el, get, button, empty, count} from "./dom.js";

const MOVES = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
const BINS = {wide: 24, narrow: 10};
const FINE_S = 60;
const STRONG = 0.55;
let current = [0, 0];

/** Fetches the map and draws it; `choose` is called with the task and the span of time of a cell. */
export async function drawHeat(choose) {
  const {times, rows} = await get("/api/heatmap", {bins: innerWidth < 700 ? BINS.narrow : BINS.wide});
  const place = $("#heat");
  if (!rows.length) {
    place.replaceChildren(empty("No episodes yet: each finished episode counts here, in the row of its task."));
    return;
  }
  const exact = times[1] - times[0] < FINE_S ? {second: "2-digit"} : {};
  const style = {hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...exact};
  const clocks = times.map(time => new Date(1000 * time).toLocaleTimeString([], style));
  const bins = times.length - 1, every = Math.ceil(bins / 5);
  const titles = clocks.slice(0, -1).map((clock, bin) => el("th", {scope: "col"}, bin % every ? "" : clock));
  const lines = rows.map(({task, episodes, cells}, row) => el("tr", el("th", {scope: "row"}, task), cells.map((numbers, bin) => {
    const span = {task, purpose: "own", after: times[bin], until: times[bin + 1], words: `${clocks[bin]}–${clocks[bin + 1]}`};
    return el("td", cell(numbers, span, [row, bin], choose));
  }), el("td.n.soft", count(episodes))));
  const table = el("table.heat", el("thead", el("tr", el("td"), titles, el("td"))), el("tbody", lines));
  const hadFocus = place.contains(document.activeElement);
  place.replaceChildren(el("div.card.scroll", table));
  const start = walk(table);
  if (hadFocus) start.focus({preventScroll: true});
}

/** Makes the cells one stop of the Tab key, in which arrow keys move. Returns the current cell. */
function walk(table) {
  const at = ([row, bin]) => table.tBodies[0].rows[row]?.cells[bin + 1]?.querySelector("button");
  const go = place => {
    const cell = at(place);
    if (!cell) return null;
    at(current)?.setAttribute("tabindex", "-1");
    current = place;
    cell.tabIndex = 0;
    return cell;
  };
  table.addEventListener("keydown", event => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    go([current[0] + move[0], current[1] + move[1]])?.focus();
  });
  table.addEventListener("focusin", ({target}) => target.place && go(target.place));
  return go(current) ?? go([0, 0]);
}

function cell([episodes, successes, faults, judged], span, place, choose) {
  const rate = judged ? successes / judged : 0, others = {faulted: faults, "not judged": episodes - faults - judged};
  const rest = Object.entries(others).map(([words, n]) => n ? `, ${n} ${words}` : "").join("");
  const words = episodes ? `${successes} of ${judged} solved${rest}` : "no episodes";
  const node = button(judged ? Math.round(100 * rate) : "", () => episodes && choose(span), {
    place, tabIndex: -1, title: `${span.task}, ${span.words}\n${words}`, "aria-label": `${span.task}, ${span.words}: ${words}`,
    className: !episodes ? "none" : rate > STRONG ? "strong" : "",
  });
  if (judged) node.style.setProperty("--rate", `${Math.round(10 + 90 * rate)}%`);
  if (faults) node.appendChild(el("i.faulted")).style.width = `${100 * faults / episodes}%`;
  return node;
}

export const heatLegend = () => [
  el("span", el("i.ramp"), "0 to 100% solved"),
  el("span.c-fault", el("i"), "share of faults"),
];
