// The list of episodes: filtered by the server, newest first, kept up to date while its first page is shown.
import {$, el, get, empty, known, count, decimal, duration} from "./dom.js";

const LIMIT = 25;
const OUTCOMES = [["success", "solved"], ["failure", "not solved"], ["step-limit", "out of steps"], ["impossible-claimed", "gave up"], ["unjudged", "not judged"]];
const FAULTS = [["none", "no fault"], ["any", "any fault"], ["device", "device"], ["env", "environment"], ["inference", "inference"]];
const COLUMNS = [["Task", ""], ["Ended", ""], ["Why it failed", ""], ["Steps", "n"], ["Reward", "n"], ["Seconds", "n"], ["Weights", ""], ["Staleness", "n"], ["Group", ""], ["Ago", "n"]];

const tone = row => row.fault ? "fault" : row.outcome === "success" ? "good" : "bad";

export class Episodes {
  /** `open` is called with the ids of the episodes to play. */
  constructor(open) {
    this.open = open;
    this.query = {};
    this.rows = [];
    this.fields = {
      outcome: select("Ended", OUTCOMES), fault: select("Fault", FAULTS), mode: select("Why it failed", []), task: input("Task or template", "search"),
      group: input("Group", "search"), purpose: select("Purpose", [["train", "training"], ["eval", "evaluation"], ["demo", "demonstration"]]),
      min_staleness: input("Staleness from", "number"),
    };
    for (const [name, field] of Object.entries(this.fields)) field.addEventListener("change", () => this.choose({[name]: field.value}));
    this.tasks = el("datalist", {id: "templates"});
    this.fields.task.setAttribute("list", "templates");
    this.window = el("button", {type: "button", hidden: true, title: "Show all times again"});
    this.window.addEventListener("click", () => this.choose({after: "", until: "", words: ""}));
    this.body = el("tbody");
    this.older = el("button", {type: "button", textContent: "Show older", hidden: true});
    this.older.addEventListener("click", () => this.load(true));
    this.place = el("div", {className: "scroll"}, el("table", {}, el("thead", {}, el("tr", {}, COLUMNS.map(([textContent, className]) => el("th", {scope: "col", textContent, className})))), this.body));
    this.nothing = el("div");
    $("#episodes").replaceChildren(el("div", {className: "filters"}, Object.values(this.fields).map(field => field.label), this.window, this.tasks),
      this.place, this.nothing, el("div", {className: "pager"}, this.older));
  }

  /** Changes filters and loads the first page; `words` names a span of time. */
  choose(changes) {
    Object.assign(this.query, changes);
    for (const [name, field] of Object.entries(this.fields)) field.value = this.query[name] ?? "";
    this.window.hidden = !this.query.words;
    this.window.textContent = `${this.query.words} ✕`;
    return this.load();
  }

  /** Shows what is new, unless older pages are shown or the keyboard is in the list. */
  arrived() {
    if (this.rows.length <= LIMIT && !this.body.contains(document.activeElement)) return this.load();
  }

  async load(older = false) {
    const {words, ...query} = this.query, mine = this.asked = {};
    const answer = await get("/api/episodes", {...query, limit: LIMIT, before: older ? this.rows.at(-1).seq : ""});
    if (mine !== this.asked) return;
    this.rows = older ? [...this.rows, ...answer.rows] : answer.rows;
    this.older.hidden = !answer.more;
    const modes = this.fields.mode;
    if (modes.length === 1) modes.append(...Object.entries(answer.modes).map(([value, textContent]) => el("option", {value, textContent})));
    this.tasks.replaceChildren(...answer.templates.map(value => el("option", {value})));
    this.body.replaceChildren(...this.rows.map(row => this.line(row)));
    this.place.hidden = !this.rows.length;
    const filtered = Object.values(query).some(Boolean);
    this.nothing.replaceChildren(...this.rows.length ? [] : [empty(filtered ? "No episode matches these filters." : "No episodes yet: each one appears here when it has ended.")]);
    $("#found").textContent = answer.indexed < answer.total ? `reading the store: ${count(answer.indexed)} of ${count(answer.total)} episodes` : `${count(answer.total)} stored`;
  }

  line(row) {
    const play = el("button", {type: "button", className: "open"}, el("span", {className: "goal", textContent: row.goal || row.task}));
    play.addEventListener("click", () => this.open([row.id]));
    const group = row.group ? el("button", {type: "button", className: "open mono small", textContent: row.group.slice(0, 8), title: "Only this group"}) : "";
    if (group) group.addEventListener("click", () => this.choose({group: row.group}));
    const cells = [
      [play, el("div", {className: "mono small soft", textContent: row.task})],
      [el("span", {className: `chip ${tone(row)}`, textContent: row.ended}), row.quarantined ? el("span", {className: "chip fault", textContent: "quarantined", title: row.quarantined}) : null],
      row.mode_words, row.steps, decimal(row.reward), row.duration_s.toFixed(1), row.versions, known(row.staleness) ? row.staleness : "–", group, duration(Date.now() / 1000 - row.started_at),
    ];
    return el("tr", {}, cells.map((cell, index) => el("td", {className: index ? COLUMNS[index][1] : "task"}, cell)));
  }
}

function input(title, type) {
  const field = el("input", {type, min: "0"});
  field.label = el("label", {}, title, field);
  return field;
}

function select(title, choices) {
  const field = el("select", {}, [["", "all"], ...choices].map(([value, textContent]) => el("option", {value, textContent})));
  field.label = el("label", {}, title, field);
  return field;
}
