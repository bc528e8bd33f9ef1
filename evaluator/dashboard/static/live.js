// The parts of the page that a snapshot fills: the line, alarms, owner's actions, flow, devices, costs.
import {$, el, svg, fill, fact, empty, count, duration, known, number, percent} from "./dom.js";

const PHASES = {starting: "starting", demonstrations: "collecting demonstrations", "warm-up": "warm start: cloning", stopped: "stopped"};
const LINKS = {none: ["recorded", ""], joining: ["joining the learner", "fault"], joined: ["live", "good"], lost: ["learner lost, retrying", "bad"], refused: ["refused by the learner", "bad"]};
const HISTORY = 120;

const interval = ({low, high}) => `${percent(low).slice(0, -1)}–${percent(high)}`;

export function drawLine({run, line, learner, actions}, act) {
  const {success, validation} = line;
  document.title = `${success ? `${percent(success.rate)} · ` : ""}${run.name} · distrl`;
  $("#run").textContent = run.name;
  $("#run").title = run.path;
  fill($("#line"), line, () => [
    fact("Phase", PHASES[line.phase] ?? line.phase, actions.paused ? "leases paused" : ""),
    fact("Version", count(line.version), `${count(line.updates)} updates`),
    success && fact("Success", percent(success.rate), `${interval(success)}, n = ${success.n}`),
    validation && fact("Validation", percent(validation.rate), `${interval(validation)}, n = ${validation.n}`),
    fact(line.unit[0].toUpperCase() + line.unit.slice(1), count(line.done), line.total ? `of ${count(line.total)}` : ""),
    known(line.left_s) ? fact("Time left", duration(line.left_s), `${duration(line.elapsed_s)} so far`) : fact("Time", duration(line.elapsed_s)),
  ]);
  const share = line.total ? Math.min(1, line.done / line.total) : 0;
  $("#progress i").style.width = `${100 * share}%`;
  $("#progress").setAttribute("aria-valuenow", Math.round(100 * share));
  const [words, tone] = LINKS[learner.state] ?? [learner.state, ""];
  showLink(words, tone, learner.note || learner.address);
  const alarms = ["lost", "refused"].includes(learner.state) ? [{level: "bad", text: `${words[0].toUpperCase()}${words.slice(1)}.`, remedy: learner.note}, ...line.alarms] : line.alarms;
  fill($("#alarms"), alarms, () => alarms.map(alarm =>
    el("li", {className: alarm.level}, el("b", {textContent: alarm.text}), " ", inline(alarm.remedy))));
  fill($("#actions"), actions, () => actions.allowed ? [
    button(actions.paused ? "Resume leases" : "Pause leases", () => act(actions.paused ? "resume" : "pause")),
    button("Checkpoint now", () => act("checkpoint"))] : []);
}

export function showLink(words, tone, title = "") {
  Object.assign($("#link"), {textContent: words, className: `chip ${tone}`, title});
}

/** Text whose parts between backticks are code. */
const inline = text => text.split("`").map((part, index) => index % 2 ? el("code", {textContent: part}) : part);

const button = (textContent, work) => {
  const made = el("button", {type: "button", textContent});
  made.addEventListener("click", work);
  return made;
};

const histories = new Map();

export function drawFlow({flow, learner}) {
  const {stages, bottleneck, why} = flow;
  $("#bottleneck").textContent = bottleneck ? `Bottleneck: ${bottleneck}. ${why[0].toUpperCase()}${why.slice(1)}.` : why || "";
  for (const {name, rate} of stages) histories.set(name, [...histories.get(name) ?? [], rate ?? 0].slice(-HISTORY));
  $("#flow").replaceChildren(...stages.map(({name, rate, unit, facts}) => el("li", {className: name === bottleneck ? "card limit" : "card"},
    el("h3", {}, name, name === bottleneck ? el("span", {className: "chip fault", textContent: "bottleneck"}) : null),
    known(rate) ? el("p", {className: "rate"}, el("b", {textContent: number(rate)}), ` ${unit}`) : null,
    known(rate) && learner.state === "joined" ? spark(histories.get(name)) : null,
    el("dl", {}, facts.map(([term, value]) => el("div", {}, el("dt", {textContent: term}), el("dd", {textContent: value})))))));
  if (!stages.length) $("#flow").replaceChildren(el("li", {}, empty("No rates yet: they come with the first heartbeats of workers and servers.")));
}

/** The last two minutes of a rate, from 0 up. */
function spark(values) {
  const top = Math.max(...values) || 1, x = index => 100 - (values.length - 1 - index) * 100 / (HISTORY - 1);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${(20 - 18 * value / top).toFixed(1)}`).join(" ");
  return svg("svg", {class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true"},
    svg("polyline", {points}));
}

export function drawDevices({devices, time}) {
  const {counts, pool, faults, postmortems} = devices;
  const faultWords = Object.entries(faults).map(([kind, n]) => `${count(n)} ${kind}`).join(" · ");
  $("#device-words").textContent = faultWords ? `Faulted episodes: ${faultWords}` : "";
  fill($("#devices"), [counts, pool, postmortems], () => {
    if (!Object.keys(counts).length && !postmortems.length)
      return empty("No device pool: each slot of this run has its environment to itself. Phones and emulators of a pool appear here, with faults, repairs and post-mortems.");
    return el("div", {className: "card"},
      el("div", {className: "legend"}, Object.entries(counts).map(([state, n]) => el("span", {}, el("i", {className: "dot", dataset: {state}}), `${n} ${state}`))),
      pool.length ? table(["Device", "Worker", "State", "Faults", "Reason"], pool.map(one => [
        mono(one.id), one.worker, el("span", {className: `chip ${tone(one.state)}`, textContent: one.state}), count(one.faults), one.reason])) : null,
      postmortems.length ? table(["Post-mortem", "Device", "When", "Repair", "Error"], postmortems.map(one => [
        mono(one.name), mono(one.device), `${duration(time - one.time)} ago`, one.result, one.error])) : null);
  });
}

const tone = state => ({ready: "good", busy: "good", quarantined: "bad", absent: "bad"})[state] ?? "fault";
const mono = textContent => el("span", {className: "mono small", textContent});
const table = (titles, rows) => el("div", {className: "scroll"}, el("table", {},
  el("thead", {}, el("tr", {}, titles.map(textContent => el("th", {scope: "col", textContent})))),
  el("tbody", {}, rows.map(cells => el("tr", {}, cells.map(cell => el("td", {}, cell)))))));

export function drawCosts({costs}) {
  fill($("#cost"), costs, () => costs.length ? costs.map(([name, value]) => fact(name, value)) : el("div", {}, empty("Nothing has been stored, sent or judged yet.")));
}
