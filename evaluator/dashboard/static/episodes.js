// The list of episodes: filtered by the server, newest first, kept up to date while its first page is shown.
import {$, el, get, button, empty, known, count, decimal, duration} from "./dom.js";

const LIMIT = 25;
const OUTCOMES = {
  success: "solved", failure: "not solved", "step-limit": "out of steps", "impossible-claimed": "gave up", unjudged: "not judged",
};
const FAULTS = {none: "no fault", any: "any fault", device: "device", env: "environment", inference: "inference"};
const PURPOSES = {own: "the agent's own", train: "training", eval: "evaluation", demo: "demonstration", imagined: "imagined"};
const COLUMNS = ["Task", "Ended", "Why it failed", "Steps", "Reward", "Seconds", "Weights", "Staleness", "Group", "Ago"];
const NUMBERS = new Set(["Steps", "Reward", "Seconds", "Staleness", "Ago"]);

const tone = row => row.fault ? "fault" : row.solved ? "good" : "bad";

export class Episodes {
  /** `open` is called with the ids of the episodes to play. */
  constructor(open) {
    this.open = open;
    this.query = {};
    this.rows = [];
    this.fields = {
      outcome: select("Ended", OUTCOMES), fault: select("Fault", FAULTS), mode: select("Why it failed", {}),
      task: input("Task or template", "search"), group: input("Group", "search"),
      purpose: select("Purpose", PURPOSES), min_staleness: input("Staleness from", "number"),
    };
    for (const [name, field] of Object.entries(this.fields))
      field.addEventListener("change", () => this.choose({[name]: field.value}));
    this.tasks = el("datalist", {id: "templates"});
    this.fields.task.setAttribute("list", "templates");
    this.span = button("", () => this.choose({after: "", until: "", words: ""}), {hidden: true, title: "Show all times again"});
    this.older = button("Show older", () => this.load(true), {hidden: true});
    this.body = el("tbody");
    const head = el("tr", COLUMNS.map(title => el("th", {scope: "col", className: NUMBERS.has(title) ? "n" : ""}, title)));
    this.table = el("div.scroll", el("table", el("thead", head), this.body));
    this.nothing = el("div");
    const labels = Object.values(this.fields).map(field => field.label);
    $("#episodes").append(el("div.filters", labels, this.span, this.tasks), this.table, this.nothing, el("div.pager", this.older));
  }

  /** Changes filters and loads the first page; `words` names the span of time from `after` to `until`. */
  choose(changes) {
    Object.assign(this.query, changes);
    for (const [name, field] of Object.entries(this.fields)) field.value = this.query[name] ?? "";
    this.span.hidden = !this.query.words;
    this.span.textContent = `${this.query.words} ✕`;
    return this.load();
  }

  /** Shows what is new, unless older pages are shown or the keyboard is in the list. */
  async arrived() {
    if (this.rows.length <= LIMIT && !this.body.contains(document.activeElement)) await this.load();
  }

  async load(older = false) {
    const {words, ...query} = this.query, mine = this.asked = {};
    const answer = await get("/api/episodes", {...query, limit: LIMIT, before: older ? this.rows.at(-1).seq : ""});
    if (mine !== this.asked) return;
    this.rows = older ? [...this.rows, ...answer.rows] : answer.rows;
    this.older.hidden = !answer.more;
    if (this.fields.mode.length === 1) this.fields.mode.append(...options(answer.modes));
    this.tasks.replaceChildren(...answer.templates.map(value => el("option", {value})));
    this.body.replaceChildren(...this.rows.map(row => this.line(row)));
    this.table.hidden = !this.rows.length;
    const filtered = Object.values(query).some(Boolean);
    const nothing = filtered ? "No episode matches these filters." : "No episodes yet: each one appears here when it has ended.";
    this.nothing.replaceChildren(...this.rows.length ? [] : [empty(nothing)]);
    const {indexed, total} = answer;
    $("#found").textContent = indexed < total ? `reading the store: ${count(indexed)} of ${count(total)} episodes` : `${count(total)} stored`;
  }

  line(row) {
    const play = button(el("span.goal", row.goal || row.task), () => this.open([row.id]), {className: "open"});
    const group = row.group && button(row.group.slice(0, 8), () => this.choose({group: row.group}), {
      className: "open mono small", title: "Only this group",
    });
    const cells = [
      [play, el("div.mono.small.soft", row.task)],
      [el(`span.chip.${tone(row)}`, row.ended), row.quarantined && el("span.chip.fault", {title: row.quarantined}, "quarantined")],
      row.mode_words, row.steps, decimal(row.reward), row.duration_s.toFixed(1), row.versions,
      known(row.staleness) ? row.staleness : "–", group, duration(Date.now() / 1000 - row.started_at),
    ];
    return el("tr", cells.map((cell, index) => el("td", {className: index ? NUMBERS.has(COLUMNS[index]) ? "n" : "" : "task"}, cell)));
  }
}

const options = choices => Object.entries(choices).map(([value, words]) => el("option", {value}, words));

const labelled = (title, field) => Object.assign(field, {label: el("label", title, field)});
const input = (title, type) => labelled(title, el("input", {type, min: "0"}));
const select = (title, choices) => labelled(title, el("select", el("option", {value: ""}, "all"), options(choices)));
