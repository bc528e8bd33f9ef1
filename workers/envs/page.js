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
  window.distrl = {clickable, scroll};
})();
