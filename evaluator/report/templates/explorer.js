"use strict";
// The table of all episodes: filters, sorts and pages the rows of #explorer-data. No library, no network.
(() => {
  const PAGE = 50;
  const box = document.getElementById("explorer");
  const source = document.getElementById("explorer-data");
  if (!box || !source) return;
  const data = JSON.parse(source.textContent);
  const place = Object.fromEntries(data.columns.map((name, index) => [name, index]));
  const ID = data.columns.length, ANCHOR = ID + 1;
  const TITLES = {evaluation: "Evaluation", seed: "Seed", split: "Split", template: "Template", task: "Task", ended: "Ended",
    mode: "Why it failed", steps: "Steps", expert: "Expert’s", reward: "Reward", seconds: "Seconds"};
  const NUMBERS = new Set(["seed", "steps", "expert", "reward", "seconds"]);
  const CHOICES = ["evaluation", "split", "template", "ended", "mode"];
  const valuesOf = name => [...new Set(data.rows.map(row => row[place[name]]))].sort();
  const several = name => valuesOf(name).length > 1;
  const shown = data.columns.filter(name => name !== "goal" && (!["evaluation", "seed", "split"].includes(name) || several(name)));
  const wanted = {};
  let sort = null, ascending = true, page = 0, found = data.rows;

  const make = (tag, values = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), values);
    node.append(...children);
    return node;
  };
  const words = (name, value) => value === null || value === "" ? "–" : name === "mode" ? data.modes[value] : String(value);

  // For a shell: any worker may have chosen the id.
  const quoted = text => /^[\w./=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  const counts = row => !row[place.ended].endsWith("fault") && row[place.ended] !== "not judged";

  const selects = {};
  const filters = make("div", {className: "filters"});
  for (const name of CHOICES.filter(several)) {
    const select = make("select", {}, make("option", {value: "*", textContent: "all"}),
      ...valuesOf(name).map(value => make("option", {value, textContent: words(name, value)})));
    select.addEventListener("change", () => choose({[name]: select.value}));
    selects[name] = select;
    filters.append(make("label", {}, TITLES[name], select));
  }
  const search = make("input", {type: "search", placeholder: "part of a goal or an id"});
  search.addEventListener("input", () => { page = 0; draw(); });
  filters.append(make("label", {}, "Search", search));

  const head = make("tr"), body = make("tbody");
  for (const name of shown) {
    const cell = make("th", {textContent: TITLES[name], className: NUMBERS.has(name) ? "n" : "", tabIndex: 0});
    const turn = () => {
      ascending = sort === name ? !ascending : true;
      sort = name;
      page = 0;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      draw();
    };
    cell.addEventListener("click", turn);
    cell.addEventListener("keydown", event => { if (event.key === "Enter") turn(); });
    head.append(cell);
  }
  head.append(make("th"));
  const count = make("span", {className: "count"});
  const back = make("button", {textContent: "Back", type: "button"}), next = make("button", {textContent: "Next", type: "button"});
  back.addEventListener("click", () => { page -= 1; draw(); });
  next.addEventListener("click", () => { page += 1; draw(); });
  const number = make("span");
  const table = make("table", {}, make("thead", {}, head), body);
  box.replaceChildren(filters, make("div", {className: "scroll"}, table), make("div", {className: "pager"}, count, back, number, next));

  function choose(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (!(name in selects)) continue;
      selects[name].value = value;
      wanted[name] = value;
    }
    page = 0;
    draw();
  }

  function passes(row, text) {
    for (const [name, value] of Object.entries(wanted)) if (value !== "*" && row[place[name]] !== value) return false;
    return !text || (row[place.task] + "\n" + row[place.goal]).toLowerCase().includes(text) || row[ID].startsWith(text);
  }

  function compare(one, other) {
    const a = one[place[sort]], b = other[place[sort]];
    if (a === b) return 0;
    if (a === null || a === "") return 1;
    if (b === null || b === "") return -1;
    return (a < b ? -1 : 1) * (ascending ? 1 : -1);
  }

  function line(row) {
    const cells = shown.map(name => make("td", {
      textContent: words(name, row[place[name]]),
      className: NUMBERS.has(name) ? "n" : name === "task" ? "mono small" : "",
    }));
    const end = cells[shown.indexOf("ended")];
    const tone = row[place.ended] === "solved" ? "good" : counts(row) ? "bad" : "fault";
    if (row[place.goal]) Object.assign(cells[shown.indexOf("task")], {className: "task"}).replaceChildren(
      make("div", {textContent: row[place.goal]}), make("div", {className: "mono small soft", textContent: row[place.task]}));
    end.replaceChildren(make("span", {className: "chip " + tone, textContent: row[place.ended]}));
    const link = row[ANCHOR]
      ? make("a", {href: "#" + row[ANCHOR], textContent: "▸", title: "Step by step"})
      : make("button", {className: "open", type: "button", textContent: row[ID].slice(0, 8), title: "How to look at it"});
    const whole = make("tr", {}, ...cells, make("td", {}, link));
    if (!row[ANCHOR]) link.addEventListener("click", () => {
      const command = ["distrl", "inspect", data.places[row[place.evaluation]], "--trajectory", row[ID]].map(quoted).join(" ");
      const cell = make("td", {className: "mono small command", colSpan: shown.length + 1, textContent: command});
      if (whole.nextSibling && whole.nextSibling.dataset.command) whole.nextSibling.remove();
      else { const extra = make("tr", {}, cell); extra.dataset.command = "1"; whole.after(extra); }
    });
    return whole;
  }

  function draw() {
    const text = search.value.trim().toLowerCase();
    found = data.rows.filter(row => passes(row, text));
    if (sort) found.sort(compare);
    const counted = found.filter(counts);
    const solved = counted.filter(row => row[place.ended] === "solved").length;
    const share = counted.length ? `, ${(100 * solved / counted.length).toFixed(1)}% solved` : "";
    count.textContent = `${found.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} episodes${share}`;
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    back.disabled = page === 0;
    next.disabled = page === pages - 1;
    number.textContent = `${page + 1} of ${pages}`;
    body.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(line));
  }

  for (const link of document.querySelectorAll("a.pick")) link.addEventListener("click", () => {
    for (const name of CHOICES) choose({[name]: link.dataset[name] ?? "*"});
    search.value = "";
    draw();
  });
  draw();
})();
