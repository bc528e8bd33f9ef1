// The wall: the present screen of every slot. Pictures are fetched only for tiles on screen while the page is visible.
import {Hand} from "./hand.js";
import {$, el, fill, button, empty, fact, dot, duration, drawMark, markOfTouch} from "./dom.js";

const LATE_S = 60;
const WORDS = {
  acting: "acting", thinking: "waiting for the policy", played: "played by a person", resetting: "resetting", waiting: "waiting for a lease",
  pausing: "pausing after a failure",
  starting: "device starts", suspect: "device under suspicion", recovering: "device recovering", quarantined: "device quarantined",
  absent: "device absent", gone: "worker gone",
};
const TROUBLES = ["starting", "suspect", "recovering", "quarantined", "absent"];
const stateOf = slot => TROUBLES.includes(slot.device_state) ? slot.device_state : slot.state;
const keyOf = slot => `${slot.worker}/${slot.slot}`;
const nameOf = slot => `${slot.worker}, slot ${slot.slot}`;
const stepOf = slot => slot.goal ? `${slot.step}/${slot.max_steps}` : "";

/** A screen with a mark over it; words instead where there is no picture. */
export class Screen {
  constructor() {
    this.image = el("img", {decoding: "async", hidden: true});
    this.words = el("span.none");
    this.mark = el("div.mark", {hidden: true});
    this.node = el("div.shot", this.words, this.image, this.mark);
    this.image.addEventListener("load", () => this.settle(true));
    this.image.addEventListener("error", () => this.settle(false));
  }

  /** Shows a picture by its address, and its mark when it is there. While one is loading, only the newest waits. */
  show(source, width, height, mark, words) {
    this.node.style.setProperty("--ratio", (height || 20) / (width || 9));
    this.next = {source, mark, words};
    if (!this.loading) this.advance();
  }

  advance() {
    const {source, mark} = this.now = this.next;
    if (source && source === this.source) return this.mark.replaceChildren(mark);
    this.source = source;
    if (!source) return this.settle(false);
    this.loading = true;
    if (this.image.hidden) this.words.textContent = "loading …";
    this.image.src = source;
  }

  /** The picture `now` is there, or cannot be had: it is tried again when it is shown again. */
  settle(good) {
    const {source, mark, words} = this.now;
    this.loading = false;
    this.image.hidden = this.mark.hidden = !good;
    this.words.textContent = good ? "" : words;
    this.mark.replaceChildren(mark);
    if (!good) this.source = null;
    if (this.next.source !== source) this.advance();
    else this.mark.replaceChildren(this.next.mark);
  }

  showSlot(slot) {
    const words = slot.goal ? "no picture yet" : WORDS[slot.state] ?? slot.state;
    const height = 100 * (slot.width ? slot.height / slot.width : 2);
    this.show(slot.screen, slot.width, slot.height, drawMark(markOfTouch(slot.goal && slot.touch, height), height), words);
  }
}

class Tile {
  constructor(slot, follow) {
    this.screen = new Screen();
    this.screen.image.alt = "";
    this.goal = el("span.goal");
    this.step = el("span");
    this.idle = el("span");
    this.node = button([this.screen.node, this.goal, el("span.when", this.step, this.idle)], () => follow(keyOf(slot)), {className: "tile"});
    this.node.tile = this;
    watcher.observe(this.node);
  }

  update(slot) {
    this.slot = slot;
    const state = stateOf(slot), idle = slot.idle_s + slot.age_s, goal = slot.goal || WORDS[state] || state;
    this.node.dataset.state = state;
    this.goal.textContent = slot.goal || slot.screen ? goal : "\u00a0";
    this.step.textContent = stepOf(slot);
    this.idle.textContent = duration(idle);
    this.idle.className = slot.goal && idle > LATE_S ? "minus" : "";
    this.node.title = `${nameOf(slot)}: ${WORDS[state] ?? state}\n${goal}`;
    const step = slot.goal ? `${slot.goal}, step ${slot.step} of ${slot.max_steps}, ` : "";
    this.node.setAttribute("aria-label", `${nameOf(slot)}, ${WORDS[state] ?? state}. ${step}last action ${duration(idle)} ago`);
    this.draw();
  }

  draw() {
    if (this.slot && this.onScreen && !document.hidden) this.screen.showSlot(this.slot);
  }
}

const tiles = new Map();
const watcher = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    target.tile.onScreen = isIntersecting;
    target.tile.draw();
  }
});

/** Draws the slots of a snapshot; `nothing` says why there are none, `follow` is called with a tile's key. */
export function drawWall(slots, nothing, follow) {
  const keys = slots.map(keyOf);
  $("#wall").dataset.size = slots.length > 96 ? "many" : slots.length > 24 ? "some" : "few";
  fill($("#wall"), keys.length ? keys : nothing, () => {
    const kept = slots.map(slot => [keyOf(slot), tiles.get(keyOf(slot)) ?? new Tile(slot, follow)]);
    tiles.clear();
    for (const [key, tile] of kept) tiles.set(key, tile);
    return kept.length ? kept.map(([, tile]) => tile.node) : empty(nothing);
  });
  for (const slot of slots) tiles.get(keyOf(slot)).update(slot);
  const tally = Object.keys(WORDS).map(state => [state, slots.filter(slot => stateOf(slot) === state).length]).filter(([, n]) => n);
  fill($("#states"), tally, () => tally.map(([state, n]) => dot(state, `${n} ${WORDS[state]}`)));
}

/** The dialog that shows one slot large until it is closed, and lets the owner play it. */
export class Follower {
  constructor(closed, act) {
    this.dialog = $("#follow");
    this.screen = new Screen();
    this.screen.image.alt = "The slot's present screen";
    this.where = el("p.small.soft");
    this.goal = el("h3");
    this.task = el("p.mono.small.soft");
    this.facts = el("dl.facts");
    this.hand = new Hand(this.screen.mark, act);
    const head = el("div.head", this.where, button("Close", () => this.dialog.close()));
    this.dialog.append(this.screen.node, el("div", head, this.goal, this.task, this.facts, this.hand.node));
    this.dialog.addEventListener("close", () => { this.hand.leave(); this.key = ""; closed(); });
  }

  open(key) {
    this.key = key;
    this.update(this.slots, this.allowed);
    this.dialog.showModal();
  }

  update(slots, allowed) {
    Object.assign(this, {slots, allowed});
    const slot = this.key && slots.find(one => keyOf(one) === this.key);
    if (!slot) return;
    const state = stateOf(slot);
    this.screen.showSlot(slot);
    this.hand.update(slot, this.key, allowed);
    this.where.textContent = `${nameOf(slot)}${slot.device ? ` on ${slot.device}` : ""}`;
    this.goal.textContent = slot.goal || "No task at the moment";
    this.task.textContent = slot.task;
    this.facts.replaceChildren(fact("State", WORDS[state] ?? state), fact("Step", stepOf(slot) || "–"),
      fact("Last action", slot.touch?.text || "–", `${duration(slot.idle_s + slot.age_s)} ago`), fact("Purpose", slot.purpose || "–"));
  }
}
