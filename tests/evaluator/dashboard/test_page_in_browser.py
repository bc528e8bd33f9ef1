"""The page in headless Chromium, before a server that answers in its contract with made-up states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from page_browser import HARM, assert_harmless, holds, press, text
from page_stub import Stub, make_row
from waiting import until

from distrl.core.slot_view import Hand, Touch
from distrl.workers.envs.chromium import Chromium

pytestmark = [pytest.mark.browser, pytest.mark.needs("selenium")]
PHONE, DESKTOP = (390, 844), (1280, 900)
TOKEN = "s3cret"
EPISODE = make_row(5)["id"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    made = Chromium(DESKTOP)
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Stub]]:
    """Makes stubs, which are stopped at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(contextlib.closing(Stub(*args, **options)))


def play(browser: Chromium, *ids: str) -> None:
    """Opens the player by its address and waits for its first step."""
    browser.run("location.hash = arguments[0]", f"e={','.join(ids)}")
    holds(browser, "return document.querySelector('#player[open] .text-side h3')")


def click(browser: Chromium, selector: str, words: str = "") -> None:
    """Clicks the first element of the selector that has these words, as soon as there is one."""
    script = """
        const all = [...document.querySelectorAll(arguments[0])];
        const found = all.find(one => one.textContent.startsWith(arguments[1]));
        found?.click();
        return found;
    """
    holds(browser, script, selector, words)


def log(browser: Chromium) -> list[str]:
    entries: list[dict[str, Any]] = browser.command("getLog", type="browser")
    return [entry["message"] for entry in entries]


def show(browser: Chromium, stub: Stub, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
    """Opens the page and waits until all its parts are there."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.command("executeCdpCommand", cmd="Emulation.setDeviceMetricsOverride", params=screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.command("executeCdpCommand", cmd="Emulation.setEmulatedMedia", params={"features": features})
    browser.open("about:blank")
    log(browser)
    browser.open(stub.url)
    for part in ("#line dd", "#wall > *", ".heat button", "#episodes tbody tr", ".canvas canvas", "#cost dd"):
        holds(browser, "return document.querySelector(arguments[0])", part)


def test_the_parts_show_what_the_server_says(browser: Chromium, serve: Callable[..., Stub]) -> None:
    show(browser, serve(64))
    assert "training" in text(browser, "#line")
    assert "51–70%, n = 100" in text(browser, "#line")
    assert (
        text(browser, "#alarms") == "Train-inference mismatch: KL 0.3 (limit 0.05). See docs/operations.md."
    )
    assert text(browser, "#bottleneck").startswith("Bottleneck: servers.")
    assert browser.run("return document.querySelectorAll('.tile').length") == 64
    assert browser.run("return document.querySelectorAll('#curves canvas').length") == 6
    assert browser.run("return document.querySelectorAll('.heat tbody tr').length") == 4
    assert "emulator-5554" in text(browser, "#devices")
    path = "/api/postmortem/20260131-120755_emulator-5554/fault.json"
    assert browser.run("return document.querySelector('#devices a').pathname") == path
    assert "Judge: cost" in text(browser, "#cost")
    assert log(browser) == []
    loaded = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert {name.split("/")[2] for name in loaded} == {browser.run("return location.host")}


@pytest.mark.parametrize("num_slots", [64, 256])
def test_screens_are_fetched_only_where_they_are_seen(
    browser: Chromium, serve: Callable[..., Stub], num_slots: int
) -> None:
    stub = serve(num_slots)
    show(browser, stub, PHONE)
    holds(browser, "return document.querySelector('.tile img:not([hidden])')")
    assert 0 < len(set(stub.screens)) < num_slots / 2
    browser.run("document.querySelector('.tile:last-child').scrollIntoView()")
    holds(browser, "return document.querySelector('.tile:last-child img:not([hidden])')")
    assert f"worker-{num_slots // 16 - 1}/15" in stub.screens


def test_screens_are_sent_only_while_the_wall_is_in_view(
    browser: Chromium, serve: Callable[..., Stub]
) -> None:
    stub = serve(16)
    show(browser, stub)
    assert ("pictures", "") in stub.viewers
    del stub.viewers[:]
    browser.run("document.querySelector('#cost').scrollIntoView()")
    until(lambda: ("status", "") in stub.viewers, "a stream of events without the wall")


def test_a_slot_is_followed_until_its_dialog_is_closed(browser: Chromium, serve: Callable[..., Stub]) -> None:
    stub = serve(16)
    show(browser, stub)
    browser.run("document.querySelectorAll('.tile')[3].click()")
    holds(browser, "return document.querySelector('#follow[open] img:not([hidden])')")
    assert "worker-0, slot 3 on emulator-5560" in text(browser, "#follow")
    until(lambda: ("pictures", "worker-0/3") in stub.viewers, "a stream of events of the slot")
    press(browser, "Escape")
    holds(browser, "return !document.querySelector('#follow[open]')")


def test_the_owner_plays_a_slot_by_mouse_and_keyboard(browser: Chromium, serve: Callable[..., Stub]) -> None:
    stub = serve(16, token=TOKEN)
    browser.open(f"{stub.url}login?token={TOKEN}")
    show(browser, stub)
    browser.run("document.querySelectorAll('.tile')[3].click()")
    holds(browser, "return document.querySelector('#follow[open] img:not([hidden])')")
    click(browser, "#follow button", "Take over")
    until(lambda: stub.hands == [Hand(slot="worker-0/3")], "the slot is taken")
    stub.now["slots"][3] |= {"hand": 0, "state": "played", "hint": "No element there."}
    holds(browser, "return document.querySelector('#follow .keys')")
    assert "No element there." in text(browser, "#follow .hand")
    touch = """
        const mark = document.querySelector("#follow .mark");
        const {left, top, width, height} = mark.getBoundingClientRect();
        for (const [name, x, y] of %s) mark.dispatchEvent(new PointerEvent(name,
          {pointerId: 1, clientX: left + x * width, clientY: top + y * height}));"""
    browser.run(touch % '[["pointerdown", 0.5, 0.25], ["pointerup", 0.5, 0.25]]')
    browser.run(touch % '[["pointerdown", 0.5, 0.75], ["pointerup", 0.5, 0.25]]')
    browser.run("document.querySelector('#follow input').value = 'milk'")
    click(browser, "#follow button", "Type")
    click(browser, "#follow button", "Task is done")
    until(lambda: len(stub.hands) == 5, "four actions")
    tap, swipe, written, done = (hand.action for hand in stub.hands[1:])
    assert (tap.kind, swipe.kind, done) == ("tap", "swipe", Touch(kind="complete"))
    assert tap.point == pytest.approx([0.5, 0.25], abs=0.02)
    assert swipe.to == pytest.approx([0.5, 0.25], abs=0.02)
    assert written == Touch(kind="type", text="milk")
    press(browser, "Escape")
    until(lambda: stub.commands[-1] == "leave", "the slot is given back")


def test_the_player_steps_by_arrow_keys(browser: Chromium, serve: Callable[..., Stub]) -> None:
    show(browser, serve(16))
    click(browser, "#episodes .open")
    holds(browser, "return document.querySelector('#player[open] .text-side h3')")
    heading = "#player .text-side h3"
    assert text(browser, heading).startswith("1 Tap")
    for key, start in (
        ("ArrowRight", "2 Tap"),
        ("ArrowRight", "3 Tap"),
        ("ArrowLeft", "2 Tap"),
        ("Home", "1 Tap"),
    ):
        press(browser, key)
        assert text(browser, heading).startswith(start), key
    shown = "return document.querySelector('#player .frame img:not([hidden])')?.src.includes(arguments[0])"
    holds(browser, shown, "/812-1?")
    press(browser, "ArrowRight")
    press(browser, "ArrowRight")
    holds(browser, shown, "/812-3?")
    assert browser.run("return getComputedStyle(document.querySelector('#player .ring')).fill") == "none"
    facts = browser.run("return [...document.querySelectorAll('#player .facts dt')].map(e => e.textContent)")
    assert facts == ["Value", "Advantage", "Ratio", "Probability", "Reward", "Weights"]
    press(browser, "End")
    assert text(browser, heading) == "The end"
    assert "yes, yes, no" in text(browser, "#player details[open] .judged")
    press(browser, "Escape")
    holds(browser, "return !document.querySelector('#player[open]') && !location.hash")


def test_a_group_and_two_attempts_are_shown_side_by_side(
    browser: Chromium, serve: Callable[..., Stub]
) -> None:
    show(browser, serve())
    for label, reels in (("Its group (4)", 4), ("Before and after", 2)):
        play(browser, EPISODE)
        click(browser, "#player button", label)
        holds(browser, "return document.querySelectorAll('#player .reel').length === arguments[0]", reels)
        press(browser, "Home")
        press(browser, "ArrowRight")
        headings = "return [...document.querySelectorAll('#player .text-side h3')].map(e => e.textContent[0])"
        assert browser.run(headings) == ["2"] * reels
    assert browser.run("return location.hash").count(",") == 1


def test_curves_grow_with_the_run(browser: Chromium, serve: Callable[..., Stub]) -> None:
    stub = serve()
    show(browser, stub)
    legend = "return document.querySelector('#curves .legend').textContent.startsWith(arguments[0])"
    holds(browser, legend, "training episodes 82%")
    browser.run("document.querySelector('#curves canvas').kept = true")
    stub.curves["success"]["episodes"][0]["points"].append([1700, 0.9])
    stub.now["rows"] += 1
    holds(browser, legend, "training episodes 90%")
    assert browser.run("return document.querySelector('#curves canvas').kept")
    click(browser, "#axis button", "minutes")
    holds(browser, "return document.querySelector('#curves .canvas').ariaLabel.includes('over minutes')")


def test_a_cell_of_the_heat_map_lists_its_episodes(browser: Chromium, serve: Callable[..., Stub]) -> None:
    stub = serve()
    show(browser, stub)
    browser.run("document.querySelector('.heat [tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowRight"):
        press(browser, key)
    place = "const b = document.activeElement; return [b.closest('tr').rowIndex, b.closest('td').cellIndex]"
    assert browser.run(place) == [2, 2]
    label = browser.run("return document.querySelector('.heat button:not(.none)').ariaLabel")
    click(browser, ".heat button:not(.none)")
    holds(browser, "return document.querySelector('.filters > button:not([hidden])')")
    task = label.partition(",")[0]
    until(lambda: any((one.task, one.purpose) == (task, "own") for one in stub.selections), "its episodes")


def test_texts_of_episodes_stay_text(browser: Chromium, serve: Callable[..., Stub]) -> None:
    show(browser, serve(16, harm=HARM))
    assert text(browser, "#run") == HARM
    assert text(browser, "#devices .chip") == "constructor"
    assert text(browser, ".tile .goal") == HARM
    assert text(browser, "#episodes .goal") == HARM
    play(browser, EPISODE)
    for place in ("#player h2", "#player .token", "#player .text"):
        assert HARM in text(browser, place)
    press(browser, "End")
    assert HARM in text(browser, "#player .judged")
    assert_harmless(browser)
    assert log(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(
    browser: Chromium, serve: Callable[..., Stub], scheme: str
) -> None:
    show(browser, serve(64), PHONE, scheme)
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]
    play(browser, EPISODE)
    assert browser.run("return document.querySelector('#player').scrollWidth") <= PHONE[0]
    assert browser.run("return document.querySelector('#player .reel').scrollWidth") <= PHONE[0]


def test_every_control_has_a_name(browser: Chromium, serve: Callable[..., Stub]) -> None:
    show(browser, serve(64))
    play(browser, EPISODE)
    tree = browser.command("executeCdpCommand", cmd="Accessibility.getFullAXTree", params={})["nodes"]
    roles = {"button", "combobox", "searchbox", "spinbutton", "slider", "dialog", "image", "link"}
    found = [node for node in tree if not node.get("ignored") and node.get("role", {}).get("value") in roles]
    assert len(found) > 5
    assert [node["role"]["value"] for node in found if not node.get("name", {}).get("value")] == []


def test_the_owner_s_buttons_appear_only_where_they_are_allowed(
    browser: Chromium, serve: Callable[..., Stub]
) -> None:
    stub = serve(16, token=TOKEN)
    browser.open(f"{stub.url}login?token={TOKEN}")
    show(browser, stub)
    assert text(browser, "#actions") == "Pause leasesCheckpoint now"
    click(browser, "#actions button")
    until(lambda: stub.commands == ["pause"], "leases are paused")
    click(browser, "#actions button", "Checkpoint now")
    holds(browser, "return document.querySelector('#actions button:disabled')")
    assert stub.commands == ["pause", "checkpoint"]
    stub.now["actions"] = {"allowed": True, "paused": True}
    holds(browser, "return document.querySelector('#actions').textContent.startsWith('Resume leases')")
    stub.now["actions"] = {"allowed": False, "paused": False}
    holds(browser, "return !document.querySelector('#actions').children.length")


def test_a_lost_connection_is_said_and_comes_back(browser: Chromium, serve: Callable[..., Stub]) -> None:
    stub = serve(16)
    show(browser, stub)
    holds(browser, "return document.querySelector('#link').textContent === 'live'")
    stub.close()
    holds(browser, "return document.querySelector('#trouble').textContent.includes('automatically')")
    assert text(browser, "#link") == "connection lost"
    again = serve(32, port=stub.port)
    holds(browser, "return document.querySelector('#link').textContent === 'live'")
    holds(browser, "return document.querySelectorAll('.tile').length === 32")
    assert text(browser, "#trouble") == ""
    assert again.viewers


def test_a_missing_token_is_asked_for_once(browser: Chromium, serve: Callable[..., Stub]) -> None:
    browser.open(serve(token=TOKEN).url)
    holds(browser, "return document.querySelector('.token-form input')")
    holds(browser, "return !document.querySelector('#trouble').textContent")
    enter = "document.querySelector('.token-form input').value = arguments[0]"
    browser.run(enter, "wrong")
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")  # away to fetch the token, and back
    again = "return fetch('/api/snapshot').then(() => fetch('/api/snapshot')).then(answer => answer.status)"
    assert browser.run(again) == 401
    assert browser.run("return document.querySelector('.token-form input').value") == "wrong"
    assert browser.run("return document.querySelector('#trouble').textContent") == ""
    click(browser, ".token-form button")
    holds(browser, "return document.querySelector('.token-form [role=alert]').textContent")
    browser.run(enter, TOKEN)
    click(browser, ".token-form button")
    holds(browser, "return document.querySelector('.heat button')")


def test_what_is_empty_says_what_will_appear(browser: Chromium, serve: Callable[..., Stub]) -> None:
    show(browser, serve())
    assert text(browser, "#wall").startswith("No live screens")
    assert text(browser, "#devices").startswith("No device pool")
