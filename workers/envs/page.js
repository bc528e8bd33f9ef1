// Runs in every page before the page's own scripts. What it offers is in `window.distrl`.
(() => {
  // What takes clicks, and what takes the finger when it moves.
  const clickable = new WeakSet(), movable = new WeakSet(), add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (/^(click|dblclick|mouse(down|up)|pointer(down|up)|touch(start|end))$/.test(kind)) clickable.add(this);
    if (/^(mousedown|pointerdown|touchstart|dragstart)$/.test(kind)) movable.add(this);
    return add.call(this, kind, ...rest);
  };

  // The browser draws the options of a <select> and the calendar of a date field outside the page, so that no
  // screenshot shows them and no click reaches them. Options are a list below (or above, where there is more space)
  // instead; calendars do not open, and dates are typed.
  let list = null;
  const close = () => { list?.remove(); list = null; };
  const choose = (select, option, on) => {
    if (option.selected == on) return;
    option.selected = on;
    for (const kind of ["input", "change"]) select.dispatchEvent(new Event(kind, {bubbles: true}));
  };
  const open = select => {
    const box = select.getBoundingClientRect(), above = box.top > innerHeight - box.bottom;
    list = document.createElement("div");
    list.select = select;
    list.role = "listbox";
    list.style.cssText = `position: fixed; left: ${box.left}px; min-width: ${box.width}px; z-index: 2147483647;
      ${above ? `bottom: ${innerHeight - box.top}px` : `top: ${box.bottom}px`}; overflow-y: auto; cursor: pointer;
      max-height: ${above ? box.top : innerHeight - box.bottom}px; box-sizing: border-box; border: 1px solid #777;
      background: white; color: black; font: ${getComputedStyle(select).font}; line-height: 1.4`;
    for (const option of select.options) {
      const entry = document.createElement("div");
      entry.role = "option";
      entry.ariaSelected = String(option.selected);
      entry.ariaDisabled = option.disabled ? "true" : null;
      entry.textContent = option.label || "\u00a0";
      entry.style.cssText = `padding: 0 3px; white-space: nowrap; background: ${option.selected ? "#cde" : "none"}`;
      entry.onmousedown = () => { if (!option.disabled) { choose(select, option, true); close(); } };
      list.append(entry);
    }
    document.documentElement.append(list);
    list.querySelector("[aria-selected=true]")?.scrollIntoView({block: "nearest"});
  };
  const isDate = one => ["date", "time", "month", "week", "datetime-local"].includes(one.type);
  add.call(window, "keydown", event => { if (event.key === " " && isDate(event.target)) event.preventDefault(); }, true);
  add.call(window, "mousedown", event => {
    const select = event.target.closest?.("select"), opened = list?.select;
    if (list?.contains(event.target)) return event.preventDefault();
    close();
    if (isDate(event.target)) {
      event.target.blur();
      event.target.focus();  // at its first part, wherever it is tapped, so that a whole date can be typed
      return event.preventDefault();
    }
    if (!select || select.disabled || event.button) return;
    if (select.multiple) {  // a tap selects or deselects one option, as on a touch screen
      const option = event.target.closest("option");
      if (option && !option.disabled) choose(select, option, !option.selected);
    } else if (select.size > 1) return;
    else if (select !== opened) open(select);
    event.preventDefault();
    select.focus();
  }, true);

  // Scrolls what lies under (x, y) as a finger that moves by (dx, dy) does. False if nothing there scrolls that way,
  // or if what lies there takes the finger itself, such as a slider or something that can be dragged.
  const scroll = (x, y, dx, dy) => {
    const across = Math.abs(dx) > Math.abs(dy), [shown, whole] = across
      ? ["clientWidth", "scrollWidth"] : ["clientHeight", "scrollHeight"];
    const root = document.scrollingElement;
    for (let one = document.elementFromPoint(x, y); one; one = one.parentElement) {
      if (movable.has(one) && one !== document.body || one.draggable && one.tagName !== "A" && one.tagName !== "IMG") return false;
      const style = getComputedStyle(one)[across ? "overflowX" : "overflowY"];
      const scrolls = one === root ? !["hidden", "clip"].includes(style) : ["auto", "scroll"].includes(style);
      if (!scrolls || one === document.body || one[whole] <= one[shown] + 1) continue;
      one.scrollBy(-dx, -dy);
      return new Promise(done => requestAnimationFrame(() => setTimeout(() => done(true))));  // after its events
    }
    return false;
  };

  // Selects the paragraph at (x, y), as a long press does. False if there is none, or if it takes clicks itself.
  const select = (x, y) => {
    const one = document.elementFromPoint(x, y);
    for (let around = one; !one?.isContentEditable && around && around !== document.body; around = around.parentElement)
      if (tags.includes(around.tagName) || around.onclick || clickable.has(around)) return false;
    if (![...one?.childNodes ?? []].some(node => node.nodeType == 3 && node.data.trim())) return false;
    getSelection().selectAllChildren(one);
    return true;
  };

  // The elements that can be seen and have a text, a description or a state, or can be acted on.
  const clean = text => String(text instanceof Object ? "" : text ?? "").replace(/\s+/g, " ").trim();  // a form's title may be an input
  const first = texts => texts.map(clean).find(Boolean) ?? "";
  const tags = ["A", "BUTTON", "INPUT", "LABEL", "OPTION", "SELECT", "SUMMARY", "TEXTAREA"];
  const roles = ["button", "checkbox", "link", "menuitem", "option", "radio", "slider", "switch", "tab"];
  const isPointed = one => one && /pointer|resize/.test(getComputedStyle(one).cursor);
  const hues = ["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"], starts = [0, 20, 45, 70, 160, 195, 255, 290, 345];
  const hue = css => {  // the name of a colour that has none in the page
    const [r, g, b, a] = (css.match(/[\d.]+/g) ?? []).map(Number);
    if (b === undefined || a === 0) return "";
    const most = Math.max(r, g, b), span = most - Math.min(r, g, b);
    if (span < 25) return most > 230 ? "white" : most < 40 ? "black" : "gray";
    const turn = 60 * (most == r ? ((g - b) / span + 6) % 6 : most == g ? (b - r) / span + 2 : (r - g) / span + 4);
    return hues[starts.findLastIndex(start => turn >= start) % 8];
  };
  const shapes = {rect: "rectangle", circle: "circle", ellipse: "ellipse", polygon: "polygon", line: "line", text: "letter"};
  const drawn = one => {  // a shape: size, colour and what it is
    const box = one.getBBox(), corners = one.points?.numberOfItems, fill = one.getAttribute("fill");
    const size = one.tagName == "text" ? parseFloat(getComputedStyle(one).fontSize) : Math.max(box.width, box.height);
    const name = corners == 3 ? "triangle" : one.tagName == "text" && /^\d+$/.test(one.textContent) ? "digit" : shapes[one.tagName];
    return clean([size > 15 ? "large" : "small", fill && !fill.includes("#") ? fill : hue(getComputedStyle(one).fill), name].join(" "));
  };
  const isCovered = (one, box) => {  // by a shape that is drawn later
    const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    return top instanceof SVGElement && !top.contains(one) && !one.contains(top) && one.compareDocumentPosition(top) & 4;
  };
  const common = (a, b) => {  // what two boxes share
    const left = Math.max(a.left, b.left), top = Math.max(a.top, b.top);
    return new DOMRect(left, top, Math.max(0, Math.min(a.right, b.right) - left), Math.max(0, Math.min(a.bottom, b.bottom) - top));
  };
  const painted = one => one.style.backgroundColor.match(/^[a-z]+$/)?.[0] ?? hue(getComputedStyle(one).backgroundColor);
  // Without what has no text and takes clicks only around something that takes them, too, and fills most of it.
  const unwrapped = found => {
    const size = one => (one.bounds[2] - one.bounds[0]) * (one.bounds[3] - one.bounds[1]);
    const wraps = one => !one.text && !one.description && one.flags.every(flag => flag == "clickable");
    const idle = new Set(found.map(one => one.parent).filter((at, place) => at >= 0 && wraps(found[at])
      && found[place].flags.includes("clickable") && size(found[place]) > 0.5 * size(found[at])));
    const places = [];
    let count = 0;
    for (const [at, one] of found.entries()) places.push(idle.has(at) ? places[one.parent] ?? -1 : count++);
    return found.filter((_, at) => !idle.has(at)).map(one => ({...one, parent: places[one.parent] ?? -1}));
  };
  const elements = (most, longest) => {
    const found = [], places = new Map(), cut = text => text.slice(0, longest).toWellFormed();
    const screen = new DOMRect(0, 0, innerWidth, innerHeight), windows = new Map();  // where what is in an element can be seen
    const active = document.activeElement, pointed = active?.getAttribute("aria-activedescendant");
    for (const one of document.querySelectorAll("body *:not([data-goal], [data-goal] *), html > [role=listbox], html > [role=listbox] *")) {
      if (found.length == most) break;
      if (["SCRIPT", "STYLE", "TSPAN"].includes(one.tagName.toUpperCase()) || !one.checkVisibility({visibilityProperty: true})) continue;
      const area = box => box.width * box.height, inside = edge => Math.min(1, Math.max(0, edge));
      const whole = [...one.getClientRects()].reduce((a, b) => area(b) > area(a) ? b : a, new DOMRect());
      const style = getComputedStyle(one), isLifted = ["absolute", "fixed"].includes(style.position);
      const seen = windows.get(isLifted ? one.offsetParent : one.parentElement) ?? screen, box = common(whole, seen);
      windows.set(one, style.overflowY == "visible" || style.display == "inline" ? seen : box);
      if (box.width < 2 || box.height < 2 || one instanceof SVGElement && isCovered(one, whole)) continue;
      const isShape = one instanceof SVGElement && one.tagName in shapes;
      const own = [...one.childNodes].filter(node => node.nodeType == 3 || node.tagName == "tspan").map(node => node.textContent).join(" ");
      const checkable = ["checkbox", "radio"].includes(one.type), picks = one.tagName == "SELECT" && !one.multiple;
      const value = checkable || one.tagName == "LI" || one.type == "password" ? "" : one.value;
      const isEditable = one.isContentEditable || one.tagName == "TEXTAREA" || one.tagName == "INPUT" &&
        !["button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"].includes(one.type);
      const isClickable = tags.includes(one.tagName) || roles.includes(one.role) || one.onclick || clickable.has(one)
        || isPointed(one) && !isPointed(one.parentElement);
      const text = picks ? clean(one.selectedOptions[0]?.text) : isEditable && value || first([own, value]);
      let description = first([one.ariaLabel, one.alt, one.placeholder, one.title, one.labels?.[0]?.textContent]);
      if (!description && isShape) description = drawn(one);
      if (!description && !text && isClickable && !isEditable && !checkable)
        description = first([one.textContent.trim() ? "" : painted(one) + " " + (one.getAttribute("class") ?? "").replace(/ui-(state|corner|widget|button)\S*|selected|active/g, "")]);
      const flags = [
        checkable && (one.checked ? "checked" : "unchecked"),
        (one.selected || one.ariaSelected == "true" || one.id && one.id == pointed || /\b(selected|active|clicked)\b/.test(one.getAttribute("class") ?? "")) && "selected",
        one === active && "focused", (one.disabled || one.ariaDisabled == "true") && "disabled", isClickable && "clickable", isEditable && "editable",
        ["auto", "scroll"].includes(style.overflowY) && one.scrollHeight > one.clientHeight + 1 && "scrollable",
      ].filter(Boolean);
      if (!(text || description || flags.length)) continue;
      let around = one.parentElement;
      while (around && !places.has(around)) around = around.parentElement;
      places.set(one, found.length);
      const kind = one.tagName.toLowerCase() + (one.tagName == "INPUT" && one.type != "text" ? ":" + one.type : "");
      found.push({
        text: cut(text), description: cut(description), class_name: cut(kind),
        resource_id: cut(String(one.getAttribute("id") ?? "")), flags, parent: places.get(around) ?? -1,
        bounds: [box.left / innerWidth, box.top / innerHeight, box.right / innerWidth, box.bottom / innerHeight]
          .map(edge => Number(inside(edge).toFixed(4)))});
    }
    return unwrapped(found);
  };
  window.distrl = {scroll, select, elements};
})();
