// The scripted experts of MiniWoB++: page -> the next step, from what the page shows now.
//
// A step is {kind, at: [x, y], to: [x, y], text}, in CSS pixels. `a || b` is b once a has nothing left to do; a
// page's expert that has no step either is stuck. `goal` is the instruction, `seed` that of the episode.
const goal = spoken(), [seed] = arguments;
const quoted = [...goal.matchAll(/"([^"]*)"/g)].map(match => match[1]);
const numbers = [...goal.matchAll(/-?\d+/g)].map(match => +match[0]);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const $1 = (selector, inside = document) => inside.querySelector(selector);
const textOf = one => one.textContent.replace(/\s+/g, " ").trim();
const named = (selector, text, inside) => all(selector, inside).find(one => textOf(one) === text);
const after = (start, end = /$/) => goal.split(start)[1]?.split(end)[0].trim();
const isShown = one => !!one && one.getClientRects().length > 0;
const centre = one => { const box = one.getBoundingClientRect(); return [(box.left + box.right) / 2, (box.top + box.bottom) / 2]; };

// A point of an element that a click reaches: its centre if possible, on the screen and not covered.
const reach = one => {
  const places = [0.5, 0.3, 0.7, 0.1, 0.9];
  for (const box of one.getClientRects()) for (const fx of places) for (const fy of places) {
    const x = box.left + fx * box.width, y = box.top + fy * box.height;
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
    if (one.contains(document.elementFromPoint(x, y))) return [x, y];
  }
  return null;
};
const swipe = (at, by) => ({kind: "swipe", at, to: [at[0] + by[0], at[1] + by[1]]});
const scrollTo = one => {
  for (let box = one.parentElement; box; box = box.parentElement) {
    const root = box === document.documentElement;
    if (box.scrollHeight <= box.clientHeight + 1 || !(root || /auto|scroll/.test(getComputedStyle(box).overflowY))) continue;
    const view = root ? {top: 0, bottom: innerHeight, height: innerHeight} : box.getBoundingClientRect(), y = centre(one)[1];
    if (y > view.top + 3 && y < view.bottom - 3) continue;
    return swipe(root ? [innerWidth / 2, innerHeight / 2] : centre(box), [0, (y < view.top + 3 ? 0.45 : -0.45) * view.height]);
  }
  return null;
};
const tap = one => {
  if (!isShown(one)) return null;
  const at = reach(one);
  return at ? {kind: "tap", at} : scrollTo(one);
};
const enter = text => ({kind: "type", text});
const press = kind => ({kind});
const wait = () => press("wait");
const erase = text => "\b".repeat(text.length < 6 ? 1 : 6);
const leave = () => enter("\t");
const fill = (field, text) => {
  if (!field || field.value === text) return null;
  if (document.activeElement !== field) return tap(field);
  return enter(field.value ? erase(field.value) : text);
};
const check = (box, on = true) => box.checked === on ? null : tap(box);
const ticks = wanted => all("#area input[type=checkbox]").reduce((step, box, at) => step || check(box, wanted(box, at)), null);
const submit = (selector = "#subbtn") => tap($1(selector));
const push = (one, across, down) => {  // a swipe that begins and ends inside
  const box = one.getBoundingClientRect(), by = [0.6 * across * box.width, 0.6 * down * box.height], [x, y] = centre(one);
  return swipe([x - by[0] / 2, y - by[1] / 2], by);
};
const drag = (one, to) => { const at = reach(one); return at && {kind: "swipe", at, to: Array.isArray(to) ? to : centre(to)}; };
const listed = text => text.split(/, ?/);
const select = (field, text) => {  // one that page.js opens
  if (field.value === text) return null;
  return tap(named("[role=option]", text)) || tap(field);
};

// jQuery UI
const slide = (slider, value) => {
  const handle = $1(".ui-slider-handle", slider), missing = value - $(slider).slider("value");
  if (!missing) return null;
  if (document.activeElement !== handle) return tap(handle);
  return enter((missing > 0 ? "→" : "←").repeat(Math.abs(missing) < 10 ? 1 : 10));
};
const date = (field, text) => {
  if (field.value === text) return null;
  const picker = $1("#ui-datepicker-div");
  if (!isShown(picker)) return document.activeElement === field ? leave() : tap(field);
  const [month, day, year] = text.split("/").map(Number);
  const months = "January February March April May June July August September October November December".split(" ");
  const shown = 12 * +textOf($1(".ui-datepicker-year")) + months.indexOf(textOf($1(".ui-datepicker-month"))) + 1;
  const missing = 12 * year + month - shown;
  if (missing) return tap($1(missing > 0 ? ".ui-datepicker-next" : ".ui-datepicker-prev"));
  return tap(named("#ui-datepicker-div a.ui-state-default", String(day)));
};
const completed = (field, typed, accepts) => {
  const item = all(".ui-menu-item").find(one => isShown(one) && accepts(textOf(one)));
  if (accepts(field.value)) return null;
  return item ? tap($1("div", item) || item) || fill(field, textOf(item)) : fill(field, typed) || wait();
};
const menu = path => {  // with the arrow keys, since a click on a parent counts as a choice
  const top = $1("#menu"), active = all("#menu .ui-state-active").at(-1)?.closest("li");
  if (!top.contains(document.activeElement)) return enter("\t");
  if (!active) return enter("↓");
  const trail = [];
  for (let one = active; one && top.contains(one) && one !== top; one = one.parentElement.closest("li")) trail.unshift(one);
  const depth = trail.findIndex((one, at) => textOf($1("div", one)) !== path[at]);
  if (depth === -1) return trail.length === path.length ? press("enter") : enter("→");
  if (depth < trail.length - 1) return enter("←");
  const rows = [...active.parentElement.children], missing = rows.findIndex(one => textOf($1("div", one)) === path[depth]) - rows.indexOf(active);
  return missing + rows.indexOf(active) < 0 ? enter("←") : enter(missing > 0 ? "↓" : "↑");
};

// SVG: what shapes.js draws, and what a goal says of it
const looks = one => {
  const text = one.tagName === "text" ? textOf(one) : {rect: "rectangle", circle: "circle", polygon: "triangle"}[one.tagName];
  const kind = one.tagName !== "text" ? "shape" : /\d/.test(text) ? "digit" : "letter";
  const size = one.tagName === "text" ? parseFloat(one.getAttribute("font-size")) : one.getBBox().width;
  return new Set([text, kind, "item", size > 15 ? "large" : "small", one.getAttribute("fill")]);
};
const shaped = words => all("#area_svg > *").filter(one => words.every(word => looks(one).has(word)));
const boxed = (one, box) => { const [x, y] = [shapes.gridCoords(one), box.getBBox()]; return x.x > y.x && x.x < y.x + y.width && x.y > y.y && x.y < y.y + y.height; };
const moved = by => $1("#area svg > *").getAttribute("transform") ? null : push($1("#area svg > *"), ...{left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1]}[by]);

// Marks text by a long press, or a part of it by dragging from its start to its end; null once it is marked.
const marked = (one, text = one.textContent) => {
  const plain = string => string.replace(/\s/g, ""), range = document.createRange(), node = one.firstChild;
  if (plain(getSelection().toString()) === plain(text)) return null;
  if (plain(text) === plain(one.textContent)) return {kind: "long_press", at: centre(one)};
  const start = node.nodeType === 3 ? node.data.indexOf(text) : 0;
  if (start >= 0 && node.nodeType === 3) { range.setStart(node, start); range.setEnd(node, start + text.length); } else range.selectNodeContents(one);
  const boxes = [...range.getClientRects()].filter(box => box.width > 0), [first, last] = [boxes[0], boxes.at(-1)];
  return {kind: "swipe", at: [first.left + 0.5, (first.top + first.bottom) / 2], to: [last.right + 0.5, (last.top + last.bottom) / 2]};
};

// Pages that several others resemble
const link = text => tap(all(".alink").find(one => isShown(one) && textOf(one) === text));
const next = (all, isOpen) => tap(all[(all.findIndex(isOpen) + 1) % all.length]);
const section = text => link(text) || next(all("#area h3"), one => one.classList.contains("ui-state-active"));
const tab = text => link(text) || next(all("#area ul a"), one => one.parentElement.classList.contains("ui-tabs-active"));
const login = () => tap($1("#popup-cancel")) || fill($1("#username"), quoted[0]) || fill($1("#password"), quoted[1]) || submit();
const movies = () => {
  const values = {genre: after("for ", " movies"), director: after("directed by ", " from"), year: String(numbers.at(-1)), date: String(numbers.at(-1))};
  for (const field of all("#area input")) {
    const label = textOf(field.closest("p, .row, tr, .field, .ui-entry")).toLowerCase();
    const step = fill(field, Object.entries(values).find(([word]) => label.includes(word))[1]);
    if (step) return step;
  }
  return tap($1("#area button, #area .final, #area .ui-submit"));
};
const email = () => {
  const fields = core.currentFields ?? {};
  const by = fields.by ?? after("email by ", / and /), to = fields.to ?? after("forward that email to ", /\.$/), message = fields.message ?? quoted[0];
  const action = fields.task ?? (message ? "reply" : to ? "forward" : goal.includes("trash") ? "delete" : "star");
  const thread = all("#main .email-thread").find(one => textOf($1(".email-sender", one)) === by), opened = $1("#email .email-sender");
  if (isShown($1("#search"))) return tap($1("#search-cancel"));
  if (isShown($1("#forward"))) return to && textOf(opened) === by ? fill($1(".forward-sender"), to) || tap($1("#send-forward")) : tap($1("#close-forward"));
  if (isShown($1("#reply"))) return action === "reply" && textOf(opened) === by ? fill($1("#reply-text"), message) || tap($1("#send-reply")) : tap($1("#close-reply"));
  if (opened && textOf(opened) !== by) return tap($1("#close-email"));
  if (opened) return tap($1({reply: "#email .email-reply", forward: "#email .email-forward", delete: "#email .trash", star: "#email .star"}[action]));
  return tap($1({delete: ".trash", star: ".star"}[action] ?? ".email-sender", thread));
};
const posts = some => {
  const user = after(/ by /, " and"), kind = quoted[0].toLowerCase();
  const mine = all(".media").filter(one => textOf($1(".username", one)) === user);
  const wanted = new Set(mine.slice(0, some ? numbers[0] : mine.length).map(one => $1("." + kind, one)));
  const wrong = all(".reply, .retweet, .like, .share").find(one => one.classList.contains("active") !== wanted.has(one));
  return wrong ? tap(wrong) : tap($1("#submitRow button"));
};
const flight = () => {
  if (isShown($1("#results"))) {
    const cost = one => goal.includes("cheapest") ? +$1(".flight-price", one).dataset.price : +$1(".time-duration", one).dataset.duration;
    return tap($1(".flight-price", all(".flight").sort((a, b) => cost(a) - cost(b))[0]));
  }
  const [from, to, day] = [after("from: ", " to:"), after(" to: ", " on "), after(" on ", /\.$/)];
  const city = (field, text) => completed(field, text, value => DOMESTIC_FLIGHTS.includes(value) && value.includes(text));
  return city($1("#flight-from"), from) || city($1("#flight-to"), to) || date($1("#datepicker"), day) || submit("#search");
};
const place = (columns, count) => {
  const rows = all("#sortable li > div"), at = rows.findIndex(one => textOf(one) === goal.split(" ")[1]);
  const [across, down] = [/left/.test(goal) ? 0 : /right/.test(goal) ? 2 : 1, /top/.test(goal) ? 0 : /bottom/.test(goal) ? 2 : 1];
  const by = {up: -columns, down: columns, left: -1, right: 1}[/(up|down|left|right) by one/.exec(goal)?.[1]];
  return drag(rows[at], rows[by ? at + by : columns > 1 ? 3 * down + across : /top/.test(goal) ? 0 : /bottom/.test(goal) ? count - 1 : numbers.at(-1) - 1]);
};
const hex = text => {  // the picker covers the button
  const field = $1("#col");
  if (field.value.toLowerCase() !== text) return fill(field, text);
  return document.activeElement === field ? leave() : document.activeElement === $1("#subbtn") ? press("enter") : tap(field);
};
const win = () => {
  const lines = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];
  const value = (at, who) => {  // lines that a mark there completes, then those it opens
    const open = lines.filter(line => line.includes(at)).map(line => line.map(cell => cell === at ? who : gameState[cell]));
    return open.filter(line => line.every(mark => mark === who)).length * 100 + open.filter(line => !line.includes(-who) && line.filter(mark => mark === who).length === 2).length;
  };
  const worth = at => [value(at, 1) >= 100 ? 1e4 : 0, value(at, -1) >= 100 ? 1e3 : 0, value(at, 1) * 10, value(at, -1), at === 4 ? 5 : at % 2 ? 0 : 2].reduce((a, b) => a + b);
  return tap($1("#ttt-" + [...freeSpaces].sort((a, b) => worth(b) - worth(a))[0]));
};

const PAGES = {
  "ascending-numbers": () => tap(named("#area_svg text", "1") || $1("#area_svg rect")),
  "book-flight": flight,
  "book-flight-nodelay": flight,
  "buy-ticket": () => {
    const cost = one => /cost/.test(goal) ? +$1(".buy-ticket", one).dataset.price : +$1(".time-duration", one).dataset.duration;
    const order = all(".flight").sort((a, b) => cost(a) - cost(b));
    return tap($1(".buy-ticket", /cheapest|shortest/.test(goal) ? order[0] : order.at(-1)));
  },
  "choose-date": () => date($1("#datepicker"), goal.split(" ")[1]) || submit(),
  "choose-date-easy": () => PAGES["choose-date"](),
  "choose-date-medium": () => PAGES["choose-date"](),
  "choose-date-nodelay": () => PAGES["choose-date"](),
  "choose-list": () => select($1("#options"), after("Select ", " from the list")) || submit("#area button"),
  "click-button": () => tap(named("#area button", quoted[0])),
  "click-button-sequence": () => tap($1(buttonsPushed.length ? "#subbtn2" : "#subbtn")),
  "click-checkboxes": () => ticks(box => listed(after("Select ", " and click")).includes(textOf(box.parentElement))) || submit(),
  "click-checkboxes-large": () => PAGES["click-checkboxes"](),
  "click-checkboxes-soft": () => {
    const alike = SYNONYMS.filter(words => listed(after("similar to ", " and click")).some(word => words.includes(word)));
    return ticks(box => alike.some(words => words.includes(textOf(box.parentElement)))) || submit();
  },
  "click-checkboxes-transfer": () => PAGES["click-checkboxes"](),
  "click-collapsible": () => isShown($1(".ui-accordion-content")) ? submit() : tap($1("#area h3")),
  "click-collapsible-nodelay": () => PAGES["click-collapsible"](),
  "click-collapsible-2": () => section(quoted[0]),
  "click-collapsible-2-nodelay": () => section(quoted[0]),
  "click-color": () => tap($1(`#area [data-color="${goal.split(" ")[3]}"]`)),
  "click-dialog": () => tap($1(".ui-dialog-titlebar-close")),
  "click-dialog-2": () => tap(quoted[0] === "x" ? $1(".ui-dialog-titlebar-close") : named(".ui-dialog-buttonset button", quoted[0])),
  "click-link": () => link(quoted[0]),
  "click-menu": () => menu(after("Select ").split(">")),
  "click-menu-2": () => {
    const icon = after("with the ", " icon"), item = all("#menu div").find(one => icon ? $1(".ui-icon-" + icon, one) : textOf(one) === quoted.at(-1));
    return !isShown($1("#menu")) ? tap($1("#open-menu")) : tap(item) || tap(named("#menu div", "Playback"));
  },
  "click-option": () => {
    const label = named("label", after("Select ", " and click")), box = $1("input", label);
    return check(box) || submit();
  },
  "click-pie": () => {
    const label = all("#divWheel text").find(one => textOf(one) === quoted[0] && isShown(one));
    const isOpen = label?.getBoundingClientRect().height > 12;  // it grows
    return isOpen && tap($1("tspan", label)) || tap(named("#divWheel text", "+")?.firstChild) || wait();
  },
  "click-pie-nodelay": () => PAGES["click-pie"](),
  "click-scroll-list": () => {
    const wanted = listed(after("Select ", " from the scroll list"));
    return tap(all("option").find(one => one.selected !== wanted.includes(one.value))) || submit("#area button");
  },
  "click-shades": () => {
    const wanted = after("shades of ", " and");
    return tap(all("#area span").find(one => (one.dataset.color === wanted) !== (one.className === "selected"))) || submit("#submit");
  },
  "click-shape": () => shaped(after("Click on a ").split(" ")).reduce((step, one) => step || tap(one), null),
  "click-tab": () => tap($1(`a[href="#tabs-${numbers[0]}"]`)),
  "click-tab-2": () => tab(quoted[0]),
  "click-tab-2-easy": () => tab(quoted[0]),
  "click-tab-2-hard": () => tab(quoted[0]),
  "click-tab-2-medium": () => tab(quoted[0]),
  "click-test": () => submit(),
  "click-test-2": () => submit(),
  "click-test-transfer": () => submit(),
  "click-widget": () => tap($1(`.widget [data-type="${quoted[0]}"]`)),
  "copy-paste": () => fill($1("#answer-input"), $1("#to-copy").value) || submit(),
  "copy-paste-2": () => fill($1("#answer-input"), $1(`#text-${numbers[0]}`).value) || submit(),
  "count-shape": () => {
    const words = after("How many ", "s are there").split(" ");
    return tap(named("#count-buttons button", String(shaped(words).length)));
  },
  "count-sides": () => {
    Math.seedrandom(seed);
    core.randi(0, 181);
    return tap($1(`[data-sides="${core.randi(3, 8)}"]`));
  },
  "drag-box": () => smallBoxContained() ? submit() : drag($1("#draggableSmall"), $1("#draggableLarge")),
  "drag-circle": () => moved(after("circle ", " then")) || submit(),
  "drag-items": () => place(1, 5),
  "drag-items-grid": () => place(3, 9),
  "drag-shapes": () => {
    const tag = {rectangles: "rect", circles: "circle", triangles: "polygon"}[after("all ", " into")], box = $1("#shape-container");
    const left = all("#area_svg > :not(#shape-container)").find(one => one.tagName === tag && !boxed(one, box));
    return left ? drag(left, box) : submit();
  },
  "drag-shapes-2": () => {
    const [first, second] = all("#shape-container"), word = after("all ", /( shapes)? into/);
    const tag = {rectangles: "rect", circles: "circle", triangles: "polygon"}[word];
    const home = one => (tag ? one.tagName === tag : one.getAttribute("fill") === word) ? first : second;
    const left = all("#area_svg > :not(#shape-container)").find(one => !boxed(one, home(one)));
    return left ? drag(left, home(left)) : submit();
  },
  "drag-single-shape": () => moved(after("item ", " then")) || submit(),
  "drag-sort-numbers": () => {
    const rows = all("#sortable li > div"), values = rows.map(one => +textOf(one)), order = [...values].sort((a, b) => a - b);
    const to = values.findIndex((value, at) => value !== order[at]);
    return to < 0 ? submit() : drag(rows[values.lastIndexOf(order[to])], rows[to]);
  },
  "draw-line": () => {
    const [x, y] = centre($1("#circ"));
    return $1("path") ? submit("#controls button") : swipe([x - 2, y - 2], goal.includes("horizontal") ? [x < 80 ? 60 : -60, 0] : [0, y < 100 ? 50 : -50]);
  },
  "email-inbox": email,
  "email-inbox-delete": email,
  "email-inbox-forward": email,
  "email-inbox-forward-nl": email,
  "email-inbox-forward-nl-turk": email,
  "email-inbox-important": email,
  "email-inbox-nl-turk": email,
  "email-inbox-noscroll": email,
  "email-inbox-reply": email,
  "email-inbox-star-reply": email,
  "enter-date": () => {
    const [month, day, year] = after("Enter ", " as").split("/");
    return $1("#tt").value === [year, month, day].join("-") ? submit() : document.activeElement === $1("#tt") ? enter(month + "/" + day + "/" + year) : tap($1("#tt"));
  },
  "enter-password": () => fill($1("#password"), quoted[0]) || fill($1("#verify"), quoted[0]) || submit(),
  "enter-text": () => fill($1("#tt"), quoted[0]) || submit(),
  "enter-text-2": () => fill($1("#tt"), goal.includes("upper case") ? quoted[0].toUpperCase() : quoted[0].toLowerCase()) || submit(),
  "enter-text-dynamic": () => PAGES["enter-text"](),
  "enter-time": () => {
    const [, hour, minute, half] = /(\d+):(\d+).([AP]M)/.exec(goal), wanted = String(hour % 12 + (half === "PM" ? 12 : 0)).padStart(2, "0") + ":" + minute;
    return $1("#tt").value === wanted ? submit() : document.activeElement === $1("#tt") ? enter(hour + ":" + minute + " " + half) : tap($1("#tt"));
  },
  "find-greatest": () => {
    const best = all(".card").sort((a, b) => +textOf(b) - +textOf(a))[0];
    return best.classList.contains("hidden") ? tap(best) : submit("#submit");
  },
  "find-word": () => fill($1("#answer-input"), textOf($1("#area p")).split(" ")[numbers[0] - 1].replace(/[^a-zA-Z]+/g, "")) || submit(),
  "focus-text": () => tap($1("#tt")),
  "focus-text-2": () => tap($1("#tt" + numbers[0])),
  "form-sequence": () => slide($1("#slider"), numbers[0]) || ticks((_, at) => at === numbers[1] - 1) || submit(),
  "form-sequence-2": () => check(all("[type=radio]")[numbers[0] - 1]) || fill($1("#input-" + numbers[2]), quoted[0]) || submit(),
  "form-sequence-3": () => {
    const wanted = after("Choose ", " from");
    if ($1("#dropdown").value === wanted) return tap(named("#buttons button", quoted[0]));
    return isShown($1(".selectric-items")) ? tap(named(".selectric-items li", wanted)) : tap($1(".selectric"));
  },
  "generate-number": () => {
    const shown = textOf($1("#display-number")), bound = numbers[0];
    const fits = shown !== "-" && (/less/.test(goal) ? shown < bound : /greater/.test(goal) ? shown > bound : shown % 2 === (/odd/.test(goal) ? 1 : 0));
    return submit(fits ? "#submit" : "#generate");
  },
  "grid-coordinate": () => tap(document.getElementById(/\(.*\)/.exec(goal)[0])),
  "guess-number": () => {
    const [higher, lower] = ["higher", "lower"].map(name => isShown($1("#" + name)) ? textOf($1(`#${name} span`)) : null);
    const guess = higher !== null ? {5: 7, 7: 8, 8: 9, 2: 3, 3: 4}[higher] : lower !== null ? {5: 2, 2: 1, 1: 0, 7: 6}[lower] : 5;
    return fill($1("#tt"), String(guess ?? 5)) || submit();
  },
  "highlight-text": () => marked($1("#randomText")) || submit(),
  "highlight-text-2": () => marked(all("#randomText p")[numbers[0] - 1]) || submit(),
  "identify-shape": () => {
    const seen = looks($1("#area_svg > *"));
    return tap(all("#area-buttons button").find(one => seen.has(one.dataset.type)));
  },
  "login-user": login,
  "login-user-popup": login,
  "multi-layouts": movies,
  "multi-orderings": movies,
  "navigate-tree": () => {
    const found = all("#tree span").filter(one => textOf(one) === quoted[0]);
    return tap(found.find(isShown)) || tap(all("#tree li.expandable > span").find(isShown));
  },
  "number-checkboxes": () => ticks((_, at) => PATTERNS[+quoted[0]].flat()[at] === 1) || submit(),
  "odd-or-even": () => {
    for (const row of all(".row")) {
      const button = $1(+textOf($1(".display-number", row)) % 2 ? ".odd" : ".even", row);
      if (!button.classList.contains("selected")) return tap(button);
    }
    return submit("#submit");
  },
  "order-food": () => {
    const amount = one => +one.dataset.quantity, items = all(".food-item"), byName = after("each item: ")?.split(", ");
    const fits = items.filter(one => byName ? byName.includes(one.dataset.item.trim()) : MENU[one.dataset.id].types.includes(after("that are ")));
    const wanted = new Map(items.map(one => [one, 0])), count = byName ? 2 : numbers[0];
    for (let at = 0; at < count; at++) wanted.set(fits[at % fits.length], wanted.get(fits[at % fits.length]) + 1);
    const wrong = items.find(one => amount(one) !== wanted.get(one));
    return wrong ? tap($1(amount(wrong) < wanted.get(wrong) ? ".add" : ".remove", wrong)) : tap($1("#submit-order button"));
  },
  "phone-book": () => {
    const kind = after(" on their ", /( number)?\.$/);
    return textOf($1("#contact .name")) === after("Find ", " in the contact book") ? tap($1("#contact ." + kind)) : tap($1(".next:not(.disabled) a") || $1(".prev a"));
  },
  "read-table": () => fill($1("#tt"), textOf(named("td", after("value of ", " into")).nextSibling)) || submit(),
  "read-table-2": () => [1, 2].reduce((step, at) => step || fill($1("#tt" + at), textOf(named("td", textOf($1("#ll" + at)).slice(0, -1)).nextSibling)), null) || submit(),
  "resize-textarea": () => {
    const box = $1("#tt"), larger = goal.includes("larger"), side = goal.includes("width") ? "width" : "height";
    const start = +(box.dataset[side] ??= $(box)[side]()), by = larger ? 1 : -1;  // as it was at the first call
    if (larger ? $(box)[side]() > start : $(box)[side]() < start) return submit("#submit");
    return side === "width" ? push($1(".ui-resizable-se"), by, 0) : push($1(".ui-resizable-se"), 0, by);
  },
  "scroll-text": () => fill($1("#answer-input"), $1("#text-area").value.split(/\s/).at(-1).replace(/[^a-zA-Z0-9]/g, "")) || submit(),
  "scroll-text-2": () => {
    const area = $1("#text-area"), down = goal.includes("bottom");
    const missing = down ? area.scrollHeight - area.clientHeight - area.scrollTop : area.scrollTop;
    return missing > 4 ? push(area, 0, down ? -1 : 1) : submit();
  },
  "search-engine": () => {
    const at = numbers[0] - 1, found = $1(`a[data-result="${at}"]`);
    if ($1("#search-text").value !== quoted[0]) return fill($1("#search-text"), quoted[0]);
    if (!$1('a[data-result]:not([data-result="-1"])')) return submit("#search");
    return tap(found) || tap(named("#pagination a", String(Math.floor(at / 3) + 1)));
  },
  "sign-agreement": () => {
    const area = $1("#text-area");
    if (/cancel button/.test(goal)) return submit("#cancel");
    if ($1("#name").disabled) return swipe(centre(area), [0, -100]);
    return fill($1("#name"), quoted[0]) || submit(quoted[1] === "Agree" ? "#agree" : "#cancel");
  },
  "simple-algebra": () => {
    const [, left, sign, right, total] = /(\w+) ([-+]) (\w+) = (-?\d+)/.exec(textOf($1("#math-problem")));
    const x = left === "x" ? (sign === "+" ? total - right : +total + +right) : sign === "+" ? total - left : left - total;
    return fill($1("#math-answer"), String(x)) || submit();
  },
  "simple-arithmetic": () => {
    const [, a, sign, b] = /(\d+) (.) (\d+)/.exec(textOf($1("#math-problem")));
    return fill($1("#math-answer"), String({"+": +a + +b, "-": a - b, x: a * b}[sign])) || submit();
  },
  "social-media": () => {
    const user = after("user ", ", click"), kind = Object.keys(ACTIONS).find(key => ACTIONS[key] === quoted[0]);
    const post = all(".media").find(one => textOf($1(".username", one)) === user), button = $1("." + kind, post);
    return isShown(button) ? tap(button) : tap($1(".more", post));
  },
  "social-media-all": () => posts(false),
  "social-media-some": () => posts(true),
  "terminal": () => {
    const extension = /extension \.(.*)$/.exec(goal)?.[1], listing = all("#terminal .output").map(textOf).find(text => text === currentFiles.join(" "));
    const file = currentFiles.find(name => extension ? name.endsWith("." + extension) : !name.includes(".")), command = listing ? "rm " + file : "ls";
    const typed = $1("#active-input").textContent;
    if (document.activeElement !== $1("#terminal-target")) return tap($1("#terminal"));
    return typed === command ? press("enter") : enter(command.startsWith(typed) ? command.slice(typed.length) : "\b".repeat(typed.length));
  },
  "text-editor": () => {
    const body = $1(".ql-editor p"), style = /style (\w+)/.exec(goal)?.[1], color = /color (\w+)/.exec(goal)?.[1];
    const wanted = goal.includes("everything") ? body.textContent : /give the text (.*) the (style|color) /.exec(goal)[1];
    const styled = $1({bold: "strong", italics: "em", underlined: "u"}[style] ?? "span", body);
    if (styled?.textContent === wanted) return submit();
    if (isShown($1(".ql-picker-options"))) return tap($1(`.ql-picker-item[data-value="${COLOR_MAP[color][0]}"]`));
    return marked(body, wanted) || tap($1({bold: ".ql-bold", italics: ".ql-italic", underlined: ".ql-underline"}[style] ?? ".ql-picker-label"));
  },
  "text-transform": () => {  // letter by letter, as they are shown
    const field = $1("#tt"), text = all("#captcha span").map(textOf).join(""), typed = field.value;
    if (typed === text) return submit();
    if (document.activeElement !== field) return tap(field);
    return enter(text.startsWith(typed) ? text[typed.length] : erase(typed));
  },
  "tic-tac-toe": win,
  "unicode-test": () => PAGES["click-button"](),
  "use-autocomplete": () => completed($1("#tags"), quoted[0], value => value.startsWith(quoted[0]) && value.endsWith(quoted[1] ?? "")) || submit() || leave(),
  "use-autocomplete-nodelay": () => PAGES["use-autocomplete"](),
  "use-colorwheel": () => hex(ui_utils.colorNameToHex(goal.split(" ")[1]).slice(1)),
  "use-colorwheel-2": () => hex(after("color #", " with")),
  "use-slider": () => slide($1("#slider"), numbers[0]) || submit(),
  "use-slider-2": () => [1, 2, 3].reduce((step, at) => step || slide($1("#slider-" + at), numbers[at - 1]), null) || submit(),
  "use-spinner": () => {
    const missing = numbers[0] - $1("#spinner").value;
    return missing ? tap($1(missing > 0 ? ".ui-spinner-up" : ".ui-spinner-down")) : submit();
  },
  "visual-addition": () => fill($1("#math-answer"), String(all(".addition-block").length)) || submit(),
};
