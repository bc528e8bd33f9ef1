// The parts of the page that a snapshot fills: the line, alarms, owner's actions, flow, devices, costs.
import {$, el, svg, fill, button, fact, dot, empty, count, duration, known, number, percent} from "./dom.js";

const PHASES = {demonstrations: "collecting demonstrations", "warm-up": "warm start"};
const LINKS = {
  none: ["recorded", ""],
  joining: ["joining the learner", "fault"],
  joined: ["live", "good"],
  lost: ["learner lost, retrying", "bad"],
  refused: ["refused by the learner", "bad"],
  done: ["finished", "good"],
};
const HISTORY = 120;

const capital = text => text && text[0].toUpperCase() + text.slice(1);
const interval = ({low, high}) => `${percent(low).slice(0, -1)}–${percent(high)}`;

/** Text whose parts between backticks are code. */
const inline = text => text.split("`").map((part, index) => index % 2 ? el("code", part) : part);

/** How the page is connected to the run: the learner's state, or "done" for good. */
export const linkOf = ({line, learner}) => line.phase === "done" ? "done" : learner.state;

export function drawLine(snapshot, act) {
  const {run, line, learner, actions} = snapshot, {success, validation} = line;
  document.title = `${success ? `${percent(success.rate)} · ` : ""}${run.name} · distrl`;
  Object.assign($("#run"), {textContent: run.name, title: run.path});
  const elapsed = duration(line.elapsed_s);
  fill($("#line"), [line, actions.paused], () => [
    fact("Phase", PHASES[line.phase] ?? line.phase, actions.paused && "leases paused"),
    fact("Version", count(line.version), `${count(line.updates)} updates`),
    success && fact("Success", percent(success.rate), `${interval(success)}, n = ${success.n}`),
    validation && fact("Validation", percent(validation.rate), `${interval(validation)}, n = ${validation.n}`),
    fact(capital(line.unit), count(line.done), line.total ? `of ${count(line.total)}` : ""),
    known(line.left_s) ? fact("Time left", duration(line.left_s), `${elapsed} so far`) : fact("Time", elapsed),
  ]);
  const share = line.total ? Math.min(1, line.done / line.total) : 0;
  $("#progress i").style.width = `${100 * share}%`;
  $("#progress").setAttribute("aria-valuenow", Math.round(100 * share));
  const [words, tone] = LINKS[linkOf(snapshot)] ?? [learner.state, ""];
  showLink(words, tone, learner.note || learner.address);
  const alarms = tone === "bad" ? [{level: "bad", text: `${capital(words)}.`, remedy: learner.note}, ...line.alarms] : line.alarms;
  fill($("#alarms"), alarms, () => alarms.map(({level, text, remedy}) => el(`li.${level}`, el("b", text), " ", inline(remedy))));
  fill($("#actions"), actions, () => actions.allowed ? [
    actions.paused ? button("Resume leases", () => act("resume")) : button("Pause leases", () => act("pause")),
    button("Checkpoint now", event => act("checkpoint", event.currentTarget, "Checkpoint requested")),
  ] : []);
}

export function showLink(words, tone, title = "") {
  Object.assign($("#link"), {textContent: words, className: `chip ${tone}`, title});
}

const histories = new Map();

export function drawFlow({flow, learner}) {
  const {stages, bottleneck, why} = flow;
  $("#bottleneck").textContent = bottleneck ? `Bottleneck: ${bottleneck}. ${capital(why)}.` : capital(why);
  if (!stages.some(({rate, facts}) => known(rate) || facts.length)) {
    $("#flow").replaceChildren(el("li", empty("No rates yet: they come with the first heartbeats of workers and servers.")));
    return;
  }
  $("#flow").replaceChildren(...stages.map(({name, rate, unit, facts}) => {
    const values = [...histories.get(name) ?? [], rate ?? 0].slice(-HISTORY), slow = name === bottleneck;
    histories.set(name, values);
    return el(slow ? "li.card.limit" : "li.card",
      el("h3", name, slow && el("span.chip.fault", "bottleneck")),
      known(rate) && el("p.rate", el("b", number(rate)), ` ${unit}`),
      known(rate) && learner.state === "joined" && spark(values),
      el("dl", facts.map(([term, value]) => el("div", el("dt", term), el("dd", value)))));
  }));
}

/** The last two minutes of a rate, from 0 up. */
function spark(values) {
  const top = Math.max(...values) || 1, x = index => 100 - (values.length - 1 - index) * 100 / (HISTORY - 1);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${(19 - 17 * value / top).toFixed(1)}`).join(" ");
  const box = {class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true"};
  return svg("svg", box, svg("polyline", {points}));
}

const NO_POOL = "No device pool: each slot of this run has its environment to itself. Phones and emulators of a pool appear " +
  "here, with faults, repairs and post-mortems.";
const TONES = {__proto__: null, ready: "good", busy: "good", quarantined: "bad", absent: "bad"};

export function drawDevices({devices, time}) {
  const {counts, pool, faults, postmortems} = devices;
  const words = Object.entries(faults).map(([kind, n]) => `${count(n)} ${kind}`).join(" · ");
  $("#device-words").textContent = words ? `Faulted episodes: ${words}` : "";
  fill($("#devices"), [counts, pool, postmortems], () => {
    if (!Object.keys(counts).length && !postmortems.length) return empty(NO_POOL);
    const states = Object.entries(counts).map(([state, n]) => dot(state, `${n} ${state}`));
    const devices = pool.map(({id, worker, state, faults, reason}) =>
      [mono(id), worker, el(`span.chip.${TONES[state] ?? "fault"}`, state), count(faults), reason]);
    const autopsies = postmortems.map(({name, device, time: at, result, error, files}) =>
      [mono(device), `${duration(time - at)} ago`, result, error, files.flatMap(file => [download(name, file), " "])]);
    return el("div.card", el("div.legend", states),
      table(["Device", "Worker", "State", "Faults", "Reason"], devices),
      table(["Device", "When", "Repair", "Error", "Post-mortem"], autopsies));
  });
}

const mono = text => el("span.mono.small", text);
const download = (name, file) => el("a.mono.small",
  {href: `/api/postmortem/${[name, file].map(encodeURIComponent).join("/")}`, download: `${name}_${file}`}, file);
const table = (titles, rows) => rows.length ? el("div.scroll", el("table",
  el("thead", el("tr", titles.map(title => el("th", {scope: "col"}, title)))),
  el("tbody", rows.map(cells => el("tr", cells.map(cell => el("td", cell))))))) : null;

export function drawCosts({costs}) {
  const nothing = "Nothing yet: what judges cost, what is sent and stored, and the free disk space appear here.";
  fill($("#cost"), costs, () => costs.length ? el("dl.facts", costs.map(([name, value]) => fact(name, value))) : empty(nothing));
}
