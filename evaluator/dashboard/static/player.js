// The player: one or several episodes side by side, step by step, with what the policy wrote and what it was worth.
// The address holds which ones (#e=ID,ID), so that a view can be shared and the browser's Back closes it.
import {$, el, get, button, empty, fact, drawMark, decimal, duration, known, number, plural} from "./dom.js";
import {Screen} from "./wall.js";

const PLAY_MS = 700;
const ZOOM = 2.5;
const SIBLINGS = 200;
const SWIPE_PX = 40;
const MEASURES = {value: "Value", advantage: "Advantage", ratio: "Ratio", probability: "Probability", reward: "Reward"};

/** One episode in the player. */
class Reel {
  constructor(episode) {
    const {row, tone, steps, final} = episode;
    this.episode = episode;
    this.length = steps.length + (final ? 1 : 0);
    this.screen = new Screen();
    this.frame = el("div.frame", this.screen.node);
    this.film = el("ol.film", {"aria-label": "Steps and their advantages"});
    this.text = el("div.text-side");
    const about = [`reward ${decimal(row.reward)}`, row.versions || "expert", plural(row.steps, "step"), row.id.slice(0, 12)].join(" · ");
    this.node = el("article.reel", {"aria-label": `${row.goal}: ${row.ended}`},
      el("header", el(`span.chip.${tone}`, row.ended), row.mode_words && el("span.chip", row.mode_words), el("span.small.soft", about)),
      el("div.reel-body", this.frame, this.film, this.text));
  }

  /** Every screen in small, and below it the advantage of its step. `go` is called with the number that is clicked. */
  drawFilm(go) {
    const {steps, final} = this.episode, top = Math.max(...steps.map(step => Math.abs(step.advantage ?? 0)));
    this.pictures = [...steps, ...final ? [{shot: final}] : []].map(({number, action, advantage, shot}, index) => {
      const words = number ? `Step ${number}: ${action}` : "The end", bar = el(advantage < 0 ? "i.down" : "i.up");
      bar.style.height = `${50 * Math.abs(advantage ?? 0) / (top || 1)}%`;
      return button([
        shot.image && el("img", {src: shot.image, alt: "", loading: "lazy"}),
        top > 0 && el("span", bar),
      ], () => go(index), {title: known(advantage) ? `${words}\nAdvantage ${decimal(advantage)}` : words, "aria-label": words, tabIndex: -1});
    });
    this.film.replaceChildren(...this.pictures.map(picture => el("li", picture)));
  }

  /** Draws a step, or the last one; `zoom` enlarges around its `point`, by default around the mark. */
  draw(index, zoom) {
    const {steps, final, reason} = this.episode, at = Math.min(index, this.length - 1), step = steps[at], shot = step?.shot ?? final;
    if (!shot) return this.text.replaceChildren(empty(reason || "This episode has no steps."));
    const ratio = shot.height / shot.width, mark = step?.mark.kind ? step.mark : {kind: ""};
    this.screen.image.alt = step ? `Screen before step ${step.number}` : "The final screen";
    this.screen.show(shot.image, shot.width, shot.height, drawMark(mark, 100 * ratio), "screenshot not stored");
    const [x, y] = zoom?.point ?? (mark.kind ? [mark.x, mark.y / ratio] : [50, 50]);
    Object.assign(this.screen.node.style, {transformOrigin: `${x}% ${y}%`, transform: zoom ? `scale(${ZOOM})` : ""});
    this.text.replaceChildren(...step ? stepWords(step, this.episode.trained) : [el("h3", "The end")], ...this.judgement(!step));
    this.pictures.forEach((picture, i) => picture.setAttribute("aria-current", i === at ? "step" : "false"));
    const {offsetLeft, offsetWidth} = this.pictures[at], {scrollLeft, clientWidth} = this.film;
    if (offsetLeft < scrollLeft || offsetLeft + offsetWidth > scrollLeft + clientWidth) this.film.scrollLeft = offsetLeft - clientWidth / 2;
  }

  judgement(open) {
    const {reason, judged} = this.episode;
    if (!reason && !judged.length) return [];
    return [el("details", {open}, el("summary", judged.length ? "What the judge said" : "Why it ended"), reason && el("p.small", reason),
      el("dl.judged", judged.map(([name, words]) => [el("dt", name), el("dd", words)])))];
  }
}

/** `trained` is the newest update that used the episode: value, advantage and ratio are what it made of them. */
function stepWords(step, trained) {
  const touched = known(step.touched) && step.elements?.find(one => one.number === step.touched);
  const measures = Object.entries(MEASURES).filter(([name]) => known(step[name])).map(([name, title]) => fact(title, decimal(step[name])));
  const rewards = Object.entries(step.rewards).map(([name, value]) =>
    el(value > 0 ? "span.plus" : "span.minus", `${value > 0 ? "+" : ""}${number(value)} ${name} `));
  const times = Object.entries(step.seconds).map(([name, seconds]) => `${name} ${duration(seconds)}`).join(" · ");
  return [
    el("h3", el("span.faint", `${step.number} `), step.action, " ", step.app && el("span.chip", step.app)),
    touched && el("p.small.soft", `on element ${touched.number}, ${touched.class} “${touched.text}”`),
    step.detail && el("p.small.minus", step.detail),
    el("dl.facts", measures, fact("Weights", step.versions || "none")),
    known(trained) && el("p.note", `value, advantage and ratio as of update ${trained}, the newest that used this episode`),
    rewards.length && el("p.small", rewards),
    ...step.calls.flatMap(callWords),
    step.elements?.length && elementList(step),
    times && el("p.note", times),
  ].filter(Boolean);
}

function callWords({answer, prompt, tokens, logprob}) {
  if (!tokens.length) return [el("h4", "The answer"), el("div.text.mono", answer || "(nothing)"), unfold("The prompt", prompt)];
  const about = `${plural(tokens.length, "token")}, log μ = ${decimal(logprob)}; the stronger the tint, the less likely`;
  return [el("h4", about), el("div.tokens", tokens.map(token)), unfold("What the model wrote", answer), unfold("The prompt", prompt)];
}

function token({text, logprob, shade}) {
  const node = el("span.token.mono", text, known(logprob) && el("small", decimal(logprob)));
  node.style.setProperty("--doubt", shade);
  return node;
}

const unfold = (title, text) => text && el("details", el("summary", title), el("div.text.mono", text));

function elementList({elements, touched}) {
  const rows = elements.map(one => el(one.number === touched ? "tr.touched" : "tr",
    el("td.n", one.number), el("td", one.class), el("td", one.text), el("td.soft", one.flags.join(", "))));
  return el("details", el("summary", `${plural(elements.length, "element")} on the screen`), el("div.scroll.elements", el("table", rows)));
}

export class Player {
  constructor() {
    this.dialog = $("#player");
    this.dialog.tabIndex = -1;
    this.index = 0;
    this.reels = [];
    this.dialog.addEventListener("keydown", event => this.key(event));
    this.dialog.addEventListener("close", () => {
      this.play(false);
      if (location.hash.startsWith("#e=")) history.replaceState(null, "", location.pathname);
    });
    addEventListener("hashchange", () => this.follow());
  }

  open(ids) { location.hash = `e=${ids.join(",")}`; }

  /** Shows what the address says. */
  async follow() {
    const ids = location.hash.startsWith("#e=") ? location.hash.slice(3).split(",").filter(Boolean) : [];
    if (!ids.length) return this.dialog.close();
    try {
      await this.load(ids);
    } catch (error) {
      this.dialog.replaceChildren(empty(error.message), button("Close", () => this.dialog.close()));
      if (!this.dialog.open) this.dialog.showModal();
      return;
    }
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.focus();
    this.go(this.index);
  }

  async load(ids) {
    const kept = new Map(this.reels.map(reel => [reel.episode.row.id, reel]));
    const load = async id => kept.get(id) ?? new Reel(await get(`/api/episode/${encodeURIComponent(id)}`));
    this.reels = await Promise.all(ids.map(load));
    const first = this.reels[0].episode.row;
    const others = async task => (await get("/api/episodes", {task, limit: SIBLINGS})).rows.filter(row => row.id !== first.id);
    const same = await others(first.task);
    if (!kept.has(first.id)) this.index = 0;
    this.build(same, same.length ? same : await others(first.template));
  }

  /** `same` are other attempts at the first one's task; `others` are those to compare with: its template's if there are none. */
  build(same, others) {
    const {row, group} = this.reels[0].episode, alone = this.reels.length === 1;
    this.length = Math.max(...this.reels.map(reel => reel.length), 1);
    this.range = el("input", {type: "range", min: "0", max: String(this.length - 1), "aria-label": "Step"});
    this.range.addEventListener("input", () => this.go(Number(this.range.value)));
    this.where = el("span.small.soft");
    this.playing = button("Play", () => this.play(!this.timer));
    this.zoomed = button("Zoom", () => this.zoom());
    const before = same.at(-1), after = same[0], pair = before?.seq < row.seq ? [before, row] : [row, after];
    const show = rows => this.open(rows.map(one => one.id));
    const tools = alone ? [
      group.length > 0 && button(`Its group (${group.length + 1})`, () => show([row, ...group])),
      same.length > 0 && button("Before and after", () => show(pair)),
      others.length > 0 && this.compare(row, others),
    ] : [button("Only the first", () => show([row]))];
    this.dialog.replaceChildren(
      el("header.player-head",
        el("div.player-title", el("h2", row.goal || row.task), el("p.mono.small.soft", row.task)),
        el("div.player-tools", tools, button("Close", () => this.dialog.close())),
        el("div.player-bar", this.playing, this.range, this.where, this.zoomed, el("span.note.keys", "← → step · space play · z zoom"))),
      el("div.reels", this.reels.map(reel => reel.node)));
    for (const reel of this.reels) {
      reel.drawFilm(index => this.go(index));
      reel.frame.onclick = event => this.zoom(event, reel.screen.node);
      reel.frame.ontouchstart = event => { this.swipeFrom = event.changedTouches[0].clientX; };
      reel.frame.ontouchend = event => {
        const by = event.changedTouches[0].clientX - this.swipeFrom;
        if (Math.abs(by) > SWIPE_PX) this.go(this.index - Math.sign(by));
      };
    }
  }

  compare(row, others) {
    const words = ({versions, ended, steps, task, goal}) =>
      [versions || "expert", ended, plural(steps, "step"), ...task === row.task ? [] : [goal]].join(" · ");
    const field = el("select", {"aria-label": "Compare with another episode"}, el("option", {value: ""}, "Compare with…"),
      others.map(other => el("option", {value: other.id}, words(other))));
    field.addEventListener("change", () => this.open([row.id, field.value]));
    return field;
  }

  go(index) {
    this.index = Math.min(Math.max(index, 0), this.length - 1);
    this.range.value = String(this.index);
    this.where.textContent = `${this.index + 1} of ${this.length}`;
    this.zoomed.setAttribute("aria-pressed", String(Boolean(this.zoomAt)));
    for (const reel of this.reels) reel.draw(this.index, this.zoomAt);
    if (this.index === this.length - 1) this.play(false);
  }

  /** Zooms in at a click, or at the mark; or out again. */
  zoom(event, node) {
    if (this.zoomAt) this.zoomAt = null;
    else if (node) {
      const box = node.getBoundingClientRect();
      this.zoomAt = {point: [100 * (event.clientX - box.left) / box.width, 100 * (event.clientY - box.top) / box.height]};
    } else this.zoomAt = {};
    this.go(this.index);
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.go(this.index + 1), PLAY_MS) : null;
    if (this.playing) this.playing.textContent = on ? "Pause" : "Play";
  }

  key(event) {
    const {key, target} = event;
    if (["SELECT", "SUMMARY"].includes(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = {ArrowLeft: this.index - 1, ArrowRight: this.index + 1, Home: 0, End: Infinity}[key];
    if (to !== undefined) this.go(to);
    else if (key === "z") this.zoom();
    else if (key === " " && target.tagName !== "BUTTON") this.play(!this.timer);
    else return;
    event.preventDefault();
  }
}
