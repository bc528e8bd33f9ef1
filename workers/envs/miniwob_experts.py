"""Scripted experts for MiniWoB++ pages: for each page, which element a knowing hand clicks next."""

from __future__ import annotations

# Page -> JavaScript expression of the element to click, given `goal`, the page's instruction.
TARGETS = {
    "click-test": "$('#subbtn')",
    "click-test-2": "$('#subbtn')",
    "click-color": "$('#area .color[data-color=\"' + goal.split(' ')[3] + '\"]')",
    "click-tab": "$('#area ul li:nth-child(' + /#([0-9])/.exec(goal)[1] + ') a')",
    "click-dialog": "$('.ui-dialog-titlebar-close')",
    "click-widget": "$('#area .widget [data-type=\"' + /\"(.*)\"/.exec(goal)[1] + '\"]')",
    "click-button": "all('#area button').find(e => e.innerHTML === /\"(.*)\"/.exec(goal)[1])",
    "click-collapsible-nodelay": "shown('.ui-accordion-content') ? $('#subbtn') : $('#area h3')",
    "focus-text": "$('#tt')",
    "focus-text-2": "$('#tt' + /the ([0-9])/.exec(goal)[1])",
}

# A point of the target, its centre if possible, where a click would really reach it: inside the page's frame
# and not covered by another element. Null when there is none.
VISIBLE_POINT = """
var width = arguments[0], height = arguments[1], goal = core.getUtterance();
var $ = selector => document.querySelector(selector);
var all = selector => Array.from(document.querySelectorAll(selector));
var shown = selector => { var e = $(selector); return e !== null && e.offsetHeight > 0; };
var target = TARGET;
if (!target) return null;
var box = target.getBoundingClientRect();
for (var fx of [0.5, 0.3, 0.7, 0.1, 0.9]) for (var fy of [0.5, 0.3, 0.7, 0.1, 0.9]) {
  var x = box.left + fx * box.width, y = box.top + fy * box.height;
  if (x < 0 || y < 0 || x >= width || y >= height) continue;
  var hit = document.elementFromPoint(x, y);
  if (hit && target.contains(hit)) return [x, y];
}
return null;
"""
