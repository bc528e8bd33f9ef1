// The page's one loop: server-sent events → the parts that they change. A lost connection is said and tried again.
import {$, el, button} from "./dom.js";
import {Follower, drawWall} from "./wall.js";
import {linkOf, drawLine, drawFlow, drawDevices, drawCosts, showLink} from "./live.js";
import {drawCurves} from "./charts.js";
import {drawHeat, heatLegend} from "./heatmap.js";
import {Episodes} from "./episodes.js";
import {Player} from "./player.js";

const RETRY_MS = {least: 500, most: 8000};
const KEEP_MS = 10_000;  // a fresh stream has no slots until workers have been asked for their screens
const DONE_MS = 4000;
const NO_SLOTS = {
  none: "No live screens: this page reads the directory of a run. Started with the learner's address, it shows every slot here.",
  joining: "Joining the learner: every slot's screen appears here.",
  joined: "No slots yet: every slot's screen appears here as soon as a worker connects.",
  lost: "The learner does not answer. The screens come back with it.",
  refused: "The learner refused this page, so there are no screens.",
  done: "The run is finished: no slot is active any more. Its episodes are below.",
};

const player = new Player();
const episodes = new Episodes(ids => player.open(ids));
const follower = new Follower(connect, (name, body) => act(name, null, "", body));
let source = null, retryMs = RETRY_MS.least, retryTimer = 0, wallInView = false, keepUntil = 0;
let seen = {};  // how many rows of metrics and episodes are drawn

/** Opens the stream of events, for what is looked at now: screens only while the wall is in view. */
function connect() {
  if ($(".token-form")) return;
  clearTimeout(retryTimer);
  source?.close();
  keepUntil = Date.now() + KEEP_MS;
  const wanted = new URLSearchParams();
  if (wallInView && !document.hidden) wanted.set("wall", "1");
  if (follower.key) wanted.set("follow", follower.key);
  source = new EventSource(`/api/events?${wanted}`);
  source.addEventListener("open", opened);
  source.addEventListener("error", failed);
  source.addEventListener("message", event => draw(JSON.parse(event.data)));
}

function opened() {
  retryMs = RETRY_MS.least;
  say("");
}

async function failed() {
  source.close();
  seen = {};
  showLink("connection lost", "bad");
  say("The connection to the dashboard is lost. The page shows the last data and reconnects automatically.");
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, retryMs);
  retryMs = Math.min(2 * retryMs, RETRY_MS.most);
  const answer = await fetch("/api/snapshot").catch(() => null);
  if (answer?.status === 401 && !$(".token-form")) askForToken();
}

function draw(snapshot) {
  const {slots, run, rows, indexed} = snapshot;
  document.body.classList.toggle("no-directory", !run.path);
  drawLine(snapshot, act);
  const stays = !slots.length && $(".tile") && Date.now() < keepUntil;
  if (!stays && (slots.length || wallInView)) drawWall(slots, NO_SLOTS[linkOf(snapshot)], follow);
  follower.update(slots, snapshot.actions.allowed);
  drawFlow(snapshot);
  drawDevices(snapshot);
  drawCosts(snapshot);
  if (rows !== seen.rows) curves();
  if (indexed !== seen.indexed) { list(); heat(); }
  seen = {rows, indexed};
}

function follow(key) {
  follower.open(key);
  connect();
}

/** Posts an owner's action; returns what is wrong. A button that stays says `done` for a moment. */
async function act(name, pressed = null, done = "", body = {}) {
  const answer = await fetch(`/api/${name}`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  const problem = answer.ok ? "" : (await answer.json()).error;
  say(problem);
  if (!pressed || problem) return problem;
  const words = pressed.textContent;
  Object.assign(pressed, {textContent: done, disabled: true});
  setTimeout(() => Object.assign(pressed, {textContent: words, disabled: false}), DONE_MS);
}

function askForToken() {
  clearTimeout(retryTimer);
  source.close();
  const field = el("input", {type: "password", autocomplete: "current-password"}), wrong = el("p.minus", {role: "alert"});
  const enter = async () => {
    const answer = await fetch(`/login?token=${encodeURIComponent(field.value)}`, {redirect: "manual"});
    if (answer.type === "opaqueredirect") location.reload(); else wrong.textContent = (await answer.json()).error;
  };
  field.addEventListener("keydown", event => { if (event.key === "Enter") enter(); });
  $("main").replaceChildren(el("div.card.token-form", el("h2", "Access token"),
    el("p.soft", "This dashboard was started with DISTRL_DASHBOARD_TOKEN: enter that token."),
    el("label", "Token", field), button("Open", enter), wrong));
  showLink("locked", "fault");
  say("");
}

const say = words => { $("#trouble").textContent = words; };

/** `work` at most once in `everyMs`, but always after the last call. Its errors are shown. */
function calm(everyMs, work) {
  let timer = 0, next = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      next = Date.now() + everyMs;
      work().catch(error => { if (retryMs === RETRY_MS.least) say(error.message); });
    }, Math.max(0, next - Date.now()));
  };
}

const curves = calm(2000, drawCurves);
const list = calm(3000, async () => episodes.arrived());
const heat = calm(5000, () => drawHeat(span => {
  episodes.choose(span);
  $("#h-episodes").scrollIntoView({behavior: "smooth"});
}));

document.addEventListener("visibilitychange", connect);
new IntersectionObserver(([{isIntersecting}]) => {
  if (isIntersecting === wallInView && source) return;
  wallInView = isIntersecting;
  connect();
}).observe($("#wall"));
$("#heat-legend").append(...heatLegend());
player.follow();
