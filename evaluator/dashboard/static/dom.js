// Elements, numbers and requests. Text reaches the page only as text; styles are set through the CSSOM.

export const known = value => value !== null && value !== undefined;

/** An element: el("p.small.soft", {title}, "text", child, [more children]). Plain objects are properties; text stays
 *  text; what is null, undefined, false or "" is left out. */
export function el(spec, ...parts) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag);
  node.classList.add(...classes);
  for (const part of parts.flat(2)) {
    if (part?.constructor === Object) assign(node, part);
    else if (known(part) && part !== false && part !== "") node.append(part);
  }
  return node;
}

function assign(node, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role") node.setAttribute(name, value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node[name] = value;
  }
}

/** A button that calls `work` with the event. */
export function button(words, work, properties = {}) {
  const node = el("button", {type: "button", ...properties}, words);
  node.addEventListener("click", work);
  return node;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const $ = selector => document.querySelector(selector);

/** Puts children into a node, but only if `key` has changed since the last time: keeps focus and selection. */
export function fill(node, key, make) {
  const text = JSON.stringify(key);
  if (node.filledWith === text) return;
  node.filledWith = text;
  node.replaceChildren(...[make()].flat().filter(Boolean));
}

/** 1,250 · 0.25 · 12k · 1.2e-5; "–" where nothing is known. The report's short_number. */
export function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size < 1e-15) return "0";
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return (size >= 1e-3 ? String(Number(value.toPrecision(3))) : value.toExponential(1)).replace("-", "−");
}

export const count = value => known(value) ? Math.round(value).toLocaleString("en") : "–";
export const decimal = value => known(value) ? value.toFixed(2).replace("-", "−") : "–";
export const percent = value => known(value) ? `${Math.min(99, Math.round(100 * value)) + Math.floor(value)}%` : "–";
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A time span: 40 ms, 3.2 s, 45 s, 4 min, 2 h 10 min. */
export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0.1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The JSON at a path of the server. Throws an Error with the server's own words. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => known(value) && value !== ""));
  const response = await fetch(query.size ? `${path}?${query}` : path);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

/** What stands in an empty place, and says what will appear there. */
export const empty = words => el("p.empty", words);

/** A term and its value in a <dl class="facts">. */
export const fact = (name, value, note) => el("div", el("dt", name), el("dd", value, note ? el("small", note) : null));

/** A coloured dot of a state, for legends. */
export const dot = (state, words) => el("span", el("i.dot", {dataset: {state}}), words);

/** A mark as episodes have it, {kind, x, y, arrow} in a box 100 wide and `height` high, of a slot's touch. */
export function markOfTouch(touch, height) {
  if (!touch?.point) return {kind: ""};
  const [x, y] = [100 * touch.point[0], height * touch.point[1]];
  if (!touch.to) return {kind: touch.kind, x, y, arrow: ""};
  const [toX, toY] = [100 * touch.to[0], height * touch.to[1]], angle = Math.atan2(toY - y, toX - x);
  const barb = turn => `M${toX} ${toY}L${toX - 7 * Math.cos(angle + turn)} ${toY - 7 * Math.sin(angle + turn)}`;
  return {kind: touch.kind, x, y, arrow: `M${x} ${y}L${toX} ${toY}${barb(0.5)}${barb(-0.5)}`};
}

/** Draws a mark: hollow rings and arrows, so that what was touched stays visible. */
export function drawMark({kind, x, y, arrow}, height) {
  const box = svg("svg", {viewBox: `0 0 100 ${height}`, "aria-hidden": "true"});
  if (!kind) return box;
  const twice = (tag, attributes) => box.append(...["halo", "ring"].map(name => svg(tag, {...attributes, class: name})));
  if (arrow) twice("path", {d: arrow});
  twice("circle", {cx: x, cy: y, r: arrow ? 3.4 : 7.5});
  if (kind === "long_press" || kind === "double_tap") twice("circle", {cx: x, cy: y, r: 11.5});
  return box;
}
