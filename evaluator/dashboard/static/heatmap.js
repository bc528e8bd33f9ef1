// Tasks × time: how often each task was solved, and how often it faulted. A cell opens its episodes.
import {$, el, get, empty, percent, count} from "./dom.js";

const MOVES = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
const FINE_S = 60;
let current = [0, 0];

/** Fetches the map and draws it; `choose` is called with {task, after, until, words}. */
export async function drawHeat(choose) {
  const {times, rows} = await get("/api/heatmap", {bins: innerWidth < 700 ? 10 : 24});
  const place = $("#heat");
  if (!rows.length) {
    place.replaceChildren(empty("No episodes yet: each finished episode counts here, in the row of its task."));
    return;
  }
  const exact = times[1] - times[0] < FINE_S ? {second: "2-digit"} : {};
  const clock = seconds => new Date(1000 * seconds).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...exact});
  const hadFocus = place.contains(document.activeElement), bins = times.length - 1;
  const head = el("tr", {}, el("td"), times.slice(0, -1).map((time, bin) =>
    el("th", {scope: "col", textContent: bin % Math.ceil(bins / 5) ? "" : clock(time)})), el("td"));
  const body = rows.map(({task, episodes, cells}, row) => el("tr", {}, el("th", {scope: "row", textContent: task}),
    cells.map((cell, bin) => el("td", {}, heatCell(cell, {task, after: times[bin], until: times[bin + 1], words: `${clock(times[bin])}–${clock(times[bin + 1])}`}, [row, bin], choose))), el("td", {className: "n soft", textContent: count(episodes)})));
  const table = el("table", {className: "heat"}, el("thead", {}, head), el("tbody", {}, body));
  const at = (row, bin) => table.tBodies[0].rows[row]?.cells[bin + 1]?.firstElementChild;
  const focus = (row, bin) => {
    const button = at(row, bin);
    if (button?.tagName !== "BUTTON") return;
    at(...current)?.setAttribute("tabindex", "-1");
    button.tabIndex = 0;
    current = [row, bin];
    return button;
  };
  table.addEventListener("keydown", event => {
    const [down, right] = MOVES[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    focus(current[0] + down, current[1] + right)?.focus();
  });
  table.addEventListener("focusin", ({target}) => target.place && focus(...target.place));
  place.replaceChildren(el("div", {className: "card scroll"}, table));
  const start = focus(...current) ?? focus(0, 0);
  if (hadFocus) start.focus({preventScroll: true});
}

function heatCell([episodes, successes, faults], span, place, choose) {
  const judged = episodes - faults, rate = judged ? successes / judged : 0;
  const button = el("button", {type: "button", tabIndex: -1, className: judged && rate > 0.55 ? "strong" : ""});
  button.place = place;
  const label = episodes ? `${successes} of ${judged} solved${faults ? `, ${faults} faulted` : ""}` : "no episodes";
  button.setAttribute("aria-label", `${span.task}, ${span.words}: ${label}`);
  button.title = `${span.task}, ${span.words}\n${label}`;
  if (judged) {
    button.style.setProperty("--rate", `${Math.round(10 + 90 * rate)}%`);
    button.textContent = Math.round(100 * rate);
  }
  if (faults) {
    const bar = button.appendChild(el("i", {className: "faulted"}));
    bar.style.width = `${100 * faults / episodes}%`;
  }
  if (episodes) button.addEventListener("click", () => choose(span));
  else button.className = "none";
  return button;
}

export const heatLegend = () => [
  el("span", {}, el("i", {className: "ramp"}), "0 to 100% solved"), el("span", {className: "c-fault"}, el("i"), "share of faults")];
