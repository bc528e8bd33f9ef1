// A slot that a person plays: touches on its screen, keys and words become actions of a demonstration.
import {el, fill, button} from "./dom.js";

const LONG_MS = 600, FAR = 0.03, KEEP_MS = 30_000;
const KEYS = {back: "Back", home: "Home", enter: "Enter", wait: "Wait", complete: "Task is done", impossible: "Task is impossible"};

export class Hand {
  /** `screen` is what is touched; `act` posts an owner's action with a body, and returns what is wrong with it. */
  constructor(screen, act) {
    this.screen = screen;
    this.act = act;
    this.node = el("div.hand");
    this.words = el("input", {type: "text", placeholder: "Text to type", "aria-label": "Text to type", maxLength: 200});
    this.words.addEventListener("keydown", event => { if (event.key === "Enter") this.type(); });
    screen.draggable = false;
    screen.addEventListener("pointerdown", event => {
      event.preventDefault();
      this.from = {at: this.place(event), time: Date.now()};
      screen.setPointerCapture(event.pointerId);
    });
    screen.addEventListener("pointerup", event => this.touch(this.place(event)));
  }

  /** Draws what can be done with `slot`, of a learner that this page may command or not. */
  update(slot, key, allowed) {
    this.key = key;
    this.playing = slot.hand !== null;
    this.screen.parentNode.classList.toggle("played", this.playing);
    if (this.playing && Date.now() > this.keepAt) this.send();
    const hint = this.problem || slot.hint || (this.asked && !this.playing ? "Ending the slot's episode; its task then starts again." : "");
    if (this.playing) this.asked = false;
    fill(this.node, [allowed, this.playing, this.asked, hint, key], () => !allowed ? [] : [
      this.playing ? [
        el("p.small.soft", "You play this slot: tap, hold or swipe on the screen. What you do is stored as a demonstration."),
        el("div.keys", this.words, button("Type", () => this.type())),
        el("div.keys", Object.entries(KEYS).map(([kind, words]) => button(words, () => this.send({kind})))),
        button("Give the slot back", () => this.leave()),
      ] : button("Take over", () => this.take(), {disabled: this.asked, title: "Ends this episode and lets you play its task"}),
      hint && el("p.small", {role: "status"}, hint),
    ].flat());
  }

  take() {
    this.asked = true;
    this.send();
  }

  leave() {
    if (this.playing || this.asked) this.act("leave", {slot: this.key});
    this.asked = false;
  }

  /** An action; without one the slot is kept. */
  async send(action) {
    this.keepAt = Date.now() + KEEP_MS;
    this.problem = await this.act("play", {slot: this.key, action});
    if (this.problem) this.asked = false;
  }

  type() {
    if (this.words.value) this.send({kind: "type", text: this.words.value});
    this.words.value = "";
  }

  touch(to) {
    const from = this.from;
    this.from = null;
    if (!this.playing || !from) return;
    if (Math.hypot(to[0] - from.at[0], to[1] - from.at[1]) > FAR) this.send({kind: "swipe", point: from.at, to});
    else this.send({kind: Date.now() - from.time > LONG_MS ? "long_press" : "tap", point: from.at});
  }

  /** Where on the screen, as fractions of it. */
  place({clientX, clientY}) {
    const {left, top, width, height} = this.screen.getBoundingClientRect(), within = part => Math.min(1, Math.max(0, part));
    return [within((clientX - left) / width), within((clientY - top) / height)];
  }
}
