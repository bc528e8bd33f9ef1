// The player: one or several episodes side by side, step by step, with what the policy wrote and what it was worth.
// The address holds which ones (#e=ID,ID), so that a view can be shared and the browser's Back closes it.
import {$, el, get, fact, drawMark, decimal, duration, known, number} from "./dom.js";
import {Screen} from "./wall.js";

const PLAY_MS = 700;
const ZOOM = 2.5;
const SIBLINGS = 200;

/** One episode in the player. */
class Reel {
  constructor(episode) {
    this.episode = episode;
    this.screen = new Screen();
    this.frame = el("div", {className: "frame"}, this.screen.node);
    this.text = el("div", {className: "text-side"});
    const {row} = episode;
    this.credit = el("ol", {className: "credit", "aria-label": "Steps and their advantages"});
    this.node = el("article", {className: "reel", "aria-label": `${row.goal}: ${row.ended}`},
      el("header", {}, el("span", {className: `chip ${episode.tone}`, textContent: row.ended}), row.mode_words ? el("span", {className: "chip", textContent: row.mode_words}) : null,
        el("span", {className: "small soft", textContent: `${row.versions || "expert"} · reward ${decimal(row.reward)} · ${row.steps} steps · ${row.short}`})),
      el("div", {className: "reel-body"}, this.frame, this.credit, this.text));
  }

  get length() { return this.episode.steps.length + (this.episode.final ? 1 : 0); }

  /** Draws step `index`, or the last one; `zoom` enlarges around the mark or the point [x, y]. */
  draw(index, zoom) {
    const {steps, final} = this.episode, at = Math.min(index, this.length - 1), step = steps[at], shot = step?.shot ?? final;
    if (!shot) return this.text.replaceChildren(el("p", {className: "empty", textContent: this.episode.reason || "This episode has no steps."}));
    this.screen.image.alt = step ? `Screen before step ${step.number}` : "The final screen";
    this.screen.show(shot.image, shot.width, shot.height, drawMark(step?.mark ?? {}, 100 * shot.height / shot.width), "screenshot not stored");
    const [x, y] = zoom?.point ?? (step?.mark.kind ? [step.mark.x, step.mark.y * shot.width / shot.height] : [50, 50]);
    this.screen.node.style.transformOrigin = `${x}% ${y}%`;
    this.screen.node.style.transform = zoom ? `scale(${ZOOM})` : "";
    const next = steps[at + 1]?.shot.image;
    if (next) new Image().src = next;
    this.text.replaceChildren(...step ? this.stepText(step) : [el("h3", {textContent: "The end"})], ...this.judgement(!step));
    this.buttons.forEach((button, i) => button.setAttribute("aria-current", i === at ? "step" : "false"));
    const box = this.credit, now = this.buttons[at];
    if (now.offsetLeft < box.scrollLeft || now.offsetLeft + now.offsetWidth > box.scrollLeft + box.clientWidth) box.scrollLeft = now.offsetLeft - box.clientWidth / 2;
  }

  stepText(step) {
    const touched = known(step.touched) && step.elements?.find(one => one.number === step.touched);
    const rewards = Object.entries(step.rewards).map(([name, value]) =>
      el("span", {className: value > 0 ? "plus" : "minus", textContent: `${value > 0 ? "+" : ""}${number(value)} ${name} `}));
    const times = Object.entries(step.seconds).map(([name, seconds]) => `${name} ${seconds < 1 ? `${Math.round(1000 * seconds)} ms` : duration(seconds)}`).join(" · ");
    return [
      el("h3", {}, el("span", {className: "faint", textContent: `${step.number} ` }), step.action, " ", step.app ? el("span", {className: "chip", textContent: step.app}) : null),
      touched ? el("p", {className: "small soft", textContent: `on element ${touched.number}, ${touched.class} “${touched.text}”`}) : null,
      step.detail ? el("p", {className: "small minus", textContent: step.detail}) : null,
      el("dl", {className: "facts"}, [["Value", step.value], ["Advantage", step.advantage], ["Ratio", step.ratio], ["Probability", step.probability], ["Reward", step.reward]]
        .filter(([, value]) => known(value)).map(([name, value]) => fact(name, decimal(value))), fact("Weights", step.versions || "none")),
      rewards.length ? el("p", {className: "small"}, rewards) : null,
      ...step.calls.flatMap(call => [
        el("h4", {textContent: call.tokens.length ? `${call.tokens.length} tokens, log μ = ${decimal(call.logprob)}; the stronger the tint, the less likely` : "The answer"}),
        call.tokens.length ? el("div", {className: "tokens"}, call.tokens.map(token)) : el("div", {className: "text mono", textContent: call.answer || "(nothing)"}),
        call.tokens.length ? details("What the model wrote", call.answer) : null, details("The prompt", call.prompt),
      ]),
      step.elements?.length ? elementList(step) : null,
      times ? el("p", {className: "note", textContent: times}) : null,
    ].filter(Boolean);
  }

  judgement(open) {
    const {reason, judged} = this.episode;
    if (!reason && !judged.length) return [];
    return [el("details", {open}, el("summary", {textContent: judged.length ? "What the judge said" : "Why it ended"}), reason ? el("p", {className: "small", textContent: reason}) : null,
      el("dl", {className: "judged"}, judged.flatMap(([name, words]) => [el("dt", {textContent: name}), el("dd", {textContent: words})])))];
  }

  /** A film of the episode: every screen, and below it the advantage of its step. A click goes there. */
  drawCredit(go) {
    const {steps, final} = this.episode, top = Math.max(...steps.map(step => Math.abs(step.advantage ?? 0)));
    this.buttons = [...steps, ...final ? [{shot: final}] : []].map(({number, action, advantage, shot}, index) => {
      const words = number ? `Step ${number}: ${action}` : "The end";
      const button = el("button", {type: "button", title: words, "aria-label": words, tabIndex: -1}, shot.image ? el("img", {src: shot.image, alt: "", loading: "lazy"}) : null);
      if (top) {
        const bar = el("i", {className: advantage < 0 ? "down" : "up"});
        bar.style.height = `${50 * Math.abs(advantage ?? 0) / top}%`;
        button.append(el("span", {}, bar));
        button.title += known(advantage) ? `\nAdvantage ${decimal(advantage)}` : "";
      }
      button.addEventListener("click", () => go(index));
      return button;
    });
    this.credit.replaceChildren(...this.buttons.map(button => el("li", {}, button)));
  }
}

const details = (title, text) => text ? el("details", {}, el("summary", {textContent: title}), el("div", {className: "text mono", textContent: text})) : null;

const elementList = ({elements, touched}) => el("details", {}, el("summary", {textContent: `${elements.length} elements on the screen`}),
  el("div", {className: "scroll elements"}, el("table", {}, elements.map(one => el("tr", {className: one.number === touched ? "touched" : ""},
    el("td", {className: "n", textContent: one.number}), el("td", {textContent: one.class}), el("td", {textContent: one.text}), el("td", {className: "soft", textContent: one.flags.join(", ")}))))));

function token({text, logprob, shade}) {
  const node = el("span", {className: "token mono"}, text, known(logprob) ? el("small", {textContent: decimal(logprob)}) : null);
  node.style.setProperty("--doubt", shade);
  return node;
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
    const kept = new Map(this.reels.map(reel => [reel.episode.row.id, reel]));
    try {
      this.reels = await Promise.all(ids.map(async id => kept.get(id) ?? new Reel(await get(`/api/episode/${encodeURIComponent(id)}`))));
    } catch (error) {
      this.dialog.replaceChildren(el("p", {className: "empty", textContent: error.message}), this.button("Close", () => this.dialog.close()));
      if (!this.dialog.open) this.dialog.showModal();
      return;
    }
    const first = this.reels[0].episode, others = async task => (await get("/api/episodes", {task, limit: SIBLINGS})).rows.filter(row => row.id !== first.row.id);
    const same = await others(first.row.task);
    if (!kept.has(ids[0])) this.index = 0;
    this.build(first, same, same.length ? same : await others(first.row.template));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.focus();
    this.go(this.index);
  }

  /** `same` are other attempts at the task; `others` those to compare with, of its template if there are none. */
  build(first, same, others) {
    const {row, group} = first, length = Math.max(...this.reels.map(reel => reel.length));
    this.range = el("input", {type: "range", min: "0", max: String(length - 1), "aria-label": "Step"});
    this.range.addEventListener("input", () => this.go(Number(this.range.value)));
    this.where = el("span", {className: "small soft"});
    this.playing = this.button("Play", () => this.play(!this.timer));
    this.zoomed = this.button("Zoom", () => this.zoom());
    const alone = this.reels.length === 1;
    const before = same.at(-1), after = same[0];
    const pair = before && before.seq < row.seq ? [before.id, row.id] : after && [row.id, after.id];
    this.dialog.replaceChildren(
      el("header", {className: "player-head"},
        el("div", {className: "player-title"}, el("h2", {textContent: row.goal || row.task}), el("p", {className: "mono small soft", textContent: row.task})),
        el("div", {className: "player-tools"},
          alone && group.length ? this.button(`Its group (${group.length + 1})`, () => this.open([row.id, ...group.map(one => one.id)])) : null,
          alone && pair ? this.button("Before and after", () => this.open(pair)) : null,
          alone && others.length ? this.compare(row, others) : null,
          alone ? null : this.button("Only the first", () => this.open([row.id])),
          this.button("Close", () => this.dialog.close())),
        el("div", {className: "player-bar"}, this.playing, this.range, this.where, this.zoomed, el("span", {className: "note keys", textContent: "← → step · space play · z zoom"}))),
      el("div", {className: "reels", dataset: {count: this.reels.length}}, this.reels.map(reel => reel.node)));
    for (const reel of this.reels) {
      reel.drawCredit(index => this.go(index));
      reel.frame.onclick = event => this.zoom(event, reel.screen.node);
    }
  }

  compare(row, others) {
    const field = el("select", {"aria-label": "Compare with another episode"}, el("option", {value: "", textContent: "Compare with…"}),
      others.map(other => el("option", {value: other.id, textContent: `${other.versions || "expert"} · ${other.ended} · ${other.steps} steps${other.task === row.task ? "" : ` · ${other.goal}`}`})));
    field.addEventListener("change", () => this.open([row.id, field.value]));
    return field;
  }

  button(textContent, work) {
    const made = el("button", {type: "button", textContent});
    made.addEventListener("click", work);
    return made;
  }

  go(index) {
    const length = Number(this.range.max) + 1;
    this.index = Math.min(Math.max(index, 0), length - 1);
    this.range.value = String(this.index);
    this.where.textContent = `${this.index + 1} of ${length}`;
    this.zoomed.setAttribute("aria-pressed", String(Boolean(this.zoomAt)));
    for (const reel of this.reels) reel.draw(this.index, this.zoomAt);
    if (this.index === length - 1) this.play(false);
  }

  zoom(event, node) {
    if (this.zoomAt) this.zoomAt = null;
    else if (!event || !node) this.zoomAt = {};
    else {
      const box = node.getBoundingClientRect();
      this.zoomAt = {point: [100 * (event.clientX - box.left) / box.width, 100 * (event.clientY - box.top) / box.height]};
    }
    this.go(this.index);
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.go(this.index + 1), PLAY_MS) : null;
    if (this.playing) this.playing.textContent = on ? "Pause" : "Play";
  }

  key(event) {
    if (["SELECT", "SUMMARY"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = {ArrowLeft: this.index - 1, ArrowRight: this.index + 1, Home: 0, End: Infinity}[event.key];
    if (to !== undefined) this.go(to);
    else if (event.key === "z") this.zoom();
    else if (event.key === " " && event.target.tagName !== "BUTTON") this.play(!this.timer);
    else return;
    event.preventDefault();
  }
}
