"""Two hundred hostile strings typed on a simulated phone over a real adb server arrive exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from adb_world import AdbWorld, adb_world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import MAX_TEXT, focus, show
from distrl.workers.devices.adb_device import EmulatorDevice

FIELD = "browser.query"
PICKED = (
    "hello world",
    " leading and trailing ",
    "two  spaces   three",
    "%s",
    "%%s",
    "100% sure %s %d %%",
    "a%sb%s%s",
    "% s",
    "%",
    "s",
    "it's",
    '"quoted"',
    "'",
    "''",
    "'\"'\"'",
    "\\",
    "\\\\",
    "\\n\\t\\0\\x41\\'",
    "back\\ slash\\",
    "$(reboot)",
    "$HOME ${HOME} $? $$ $! $0",
    "`reboot`",
    "$((1+1))",
    "; reboot",
    "a;b",
    "a & b && c || d",
    "a|b",
    "< /dev/null",
    "> /sdcard/x",
    ">> x 2>&1",
    "-",
    "--",
    "-n",
    "--longpress 3",
    "-d 1",
    "# no comment",
    "!history !!",
    "~ ~root",
    "* ? [a-z] {a,b}",
    "/sdcard/*",
    "' && reboot && '",
    "'; rm -rf /sdcard; echo '",
    '"; rm -rf /sdcard; echo "',
    "EOF",
    "exit 1",
    "&amp; &lt; <b>",
    "{'a': [1, 2]}",
    "user@example.org",
    "https://example.org/?a=1&b=%20#c",
    "1234567890",
    "+49 (0)30 / 1234-567",
    "A" * MAX_TEXT,
    "%s" * (MAX_TEXT // 2),
    "' " * (MAX_TEXT // 2),
    "é",
    "Zürich straße",
    "日本語 テスト",
    "العربية",
    "עברית 12",
    "русский",
    "हिन्दी",
    "👍🏽 😀",
    "e\u0301 combining",
    "naïve 'quotes' “curly” – dash",
    "𝔘𝔫𝔦 𝒸ℴ𝒹ℯ",
    "ü $(reboot) %s ; '",
)
NUM_GENERATED = 200 - len(PICKED)
HOSTILE = "%s '\"$()`;&|<>\\-*?[]{}!#~"
GENERATED = st.one_of(
    st.text(st.sampled_from(HOSTILE), min_size=1, max_size=60),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=MAX_TEXT),
    st.text(st.one_of(st.sampled_from(HOSTILE), st.characters(exclude_categories=["C", "Z"])), max_size=40),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 180, 400) as found:
        yield found


def field_after(device: EmulatorDevice, text: str) -> str:
    """What an empty field holds after `text` was typed into it."""
    state = new_state()
    show(state, "browser")
    focus(state, FIELD)
    device.client.check("cmd simphone load", 10.0, stdin=json.dumps(state).encode())
    device.type_text(text)
    after = json.loads(device.client.check("cmd simphone dump", 10.0).out)
    assert after["focus"] == FIELD
    held: str = after["fields"][FIELD]
    return held


@pytest.mark.parametrize("text", PICKED)
def test_picked_strings_arrive_exactly(world: AdbWorld, text: str) -> None:
    assert field_after(world.device(), text) == text


def test_generated_strings_arrive_exactly(world: AdbWorld) -> None:
    device = world.device()

    @settings(
        max_examples=NUM_GENERATED,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(GENERATED)
    def check(text: str) -> None:
        assert field_after(device, text) == "".join(c for c in text if c.isprintable())

    check()


def test_nothing_of_it_was_executed_or_written(world: AdbWorld) -> None:
    device = world.device()
    before = device.client.check("ls -a /sdcard", 10.0).text
    for text in (
        "$(touch /sdcard/a)",
        "`touch /sdcard/b`",
        "x; touch /sdcard/c",
        "> /sdcard/d",
        "é; touch /sdcard/e",
    ):
        assert field_after(device, text) == text
    assert device.client.check("ls -a /sdcard", 10.0).text == before


def test_a_line_break_sends_the_field_off(world: AdbWorld) -> None:
    device = world.device()
    state = new_state()
    show(state, "browser")
    focus(state, FIELD)
    device.client.check("cmd simphone load", 10.0, stdin=json.dumps(state).encode())
    device.type_text("red mug\n")
    assert json.loads(device.client.check("cmd simphone dump", 10.0).out)["focus"] == ""


def test_the_input_method_is_as_before(world: AdbWorld) -> None:
    device = world.device()
    ask = "settings get secure default_input_method"
    before = device.client.check(ask, 5.0).out
    assert field_after(device, "ü") == "ü"
    assert device.client.check(ask, 5.0).out == before
