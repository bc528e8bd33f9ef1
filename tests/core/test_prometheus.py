"""Metrics for Prometheus: names, units and labels as it wants them, served to those who may read them."""

from __future__ import annotations

import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from distrl import __version__
from distrl.cli import options
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, NetworkError
from distrl.core.prometheus import exposition, serving, show

VALUES = {
    "inference/queue_wait_p50_ms": 250.0,
    "workers/actions_per_s": 3.5,
    "time/update_s": 2.0,
    "workers/faults": 4.0,
    "rejected/lease-mismatch": 2.0,
    "rejected/limit": 1.0,
    "eval/val/reward/total": 0.25,
    "eval/return": 7.0,
    'staleness/32+/odd "name"\\': 1e-9,
}
COUNTERS = {"workers/faults", "rejected/"}
EXPECTED = {
    ("distrl_inference_queue_wait_p50_seconds", ()): 0.25,
    ("distrl_workers_actions_per_second", ()): 3.5,
    ("distrl_time_update_seconds", ()): 2.0,
    ("distrl_workers_faults_total", ()): 4.0,
    ("distrl_rejected_total", (("code", "lease-mismatch"),)): 2.0,
    ("distrl_rejected_total", (("code", "limit"),)): 1.0,
    ("distrl_eval_reward_total", (("split", "val"),)): 0.25,
    ("distrl_eval_return", ()): 7.0,
    ("distrl_staleness_odd__name__", (("versions", "32+"),)): 1e-9,
    ("distrl_info", (("role", "learner"), ("run", 'a "b"\\'), ("version", __version__))): 1.0,
}

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+-]+)")


def parsed(text: str) -> tuple[dict[tuple[str, tuple], float], dict[str, str]]:
    """Samples by name and labels, and types by name; each family has HELP, TYPE and its samples together."""
    samples, types, family, helped = {}, {}, "", ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            assert len(line.split(" ", 3)[3]) > 5
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family == helped
            assert family not in types, "one family in two places"
            types[family] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == family
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")
            unescaped = ((key, re.sub(r"\\(.)", r"\1", value)) for key, value in labels)
            samples[match[1], tuple(sorted(unescaped))] = float(match[3])
    return samples, types


def text() -> str:
    return exposition(VALUES, "distrl_", COUNTERS, {"role": "learner", "run": 'a "b"\\'})


def test_names_have_base_units_and_families_stand_together() -> None:
    samples, types = parsed(text())
    assert samples == pytest.approx(EXPECTED)
    assert {name for name, kind in types.items() if kind == "counter"} == {
        "distrl_workers_faults_total",
        "distrl_rejected_total",
    }
    assert set(types.values()) == {"counter", "gauge"}


@pytest.mark.needs("prometheus_client")
def test_prometheus_own_parser_reads_the_same() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text()))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    assert found == pytest.approx(EXPECTED)
    kinds = {family.name: family.type for family in families}
    assert kinds["distrl_rejected"] == "counter"
    assert kinds["distrl_time_update_seconds"] == "gauge"


@pytest.fixture
def url() -> Iterator[str]:
    with serving("0", None, "worker", "mine", {"steps"}) as url:
        yield url


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_a_scrape_gets_what_is_newest(url: str) -> None:
    status, body = get(url)
    assert status == 200
    assert set(parsed(body)[1]) == {"distrl_info"}
    for steps in (5.0, 6.0):
        show(lambda steps=steps: {"steps": steps}, "w-0")
        samples = parsed(get(url)[1])[0]
        assert samples["distrl_worker_steps_total", ()] == steps
        (labels,) = [dict(labels) for name, labels in samples if name == "distrl_info"]
        assert labels == {"role": "worker", "run": "mine", "name": "w-0", "version": __version__}


def test_numbers_that_cannot_be_read_cost_one_line_and_one_scrape(
    url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    show(lambda: {"steps": 1.0 / 0.0})
    with pytest.raises(OSError, match="closed connection"):
        get(url)
    assert caplog.messages == ["a scrape by 127.0.0.1 failed: ZeroDivisionError('float division by zero')"]
    assert "Exception occurred during processing" not in capfd.readouterr().err
    show(dict)
    assert get(url)[0] == 200


def test_other_paths_and_names_of_other_hosts_are_refused(url: str) -> None:
    assert get(url.replace("/metrics", "/"))[0] == 404
    assert get(url, Host="evil.example")[0] == 403
    assert get(url, Host="localhost:1")[0] == 200


def test_beyond_loopback_a_key_is_needed() -> None:
    with (
        pytest.raises(ConfigError, match="DISTRL_API_KEY"),
        serving("0.0.0.0:0", None, "learner", "mine", ()),
    ):
        pass
    with serving("0.0.0.0:0", "secret", "learner", "mine", ()) as url:
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert get(url)[0] == get(url, Authorization="Bearer other")[0] == 401
        assert get(url, Authorization="Bearer secret")[0] == 200


def test_an_address_in_use_is_named(url: str) -> None:
    taken = url.removeprefix("http://").removesuffix("/metrics")
    with (
        pytest.raises(NetworkError, match=f"--metrics-port {taken} cannot be used"),
        serving(taken, None, "worker", "mine", ()),
    ):
        pass


@pytest.mark.parametrize("off", [None, "0"])
def test_without_a_port_nothing_is_served(off: str | None) -> None:
    before = threading.active_count()
    with options.metrics_port(off, "worker", "mine"):
        assert threading.active_count() == before


def test_a_worker_that_waits_for_its_learner_can_be_scraped(tmp_path) -> None:
    from distrl.cli.run_worker import work

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in ("control", "broadcast")}
    config = Config.model_validate({"name": "mine", "network": addresses})
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(config, "w", tmp_path, stop))
    with options.metrics_port(str(port), "worker", "mine"):
        thread.start()
        try:
            for _ in range(200):
                if 'name="w"' in (body := get(f"http://127.0.0.1:{port}/metrics")[1]):
                    break
                stop.wait(0.05)
            assert 'distrl_info{role="worker",run="mine",name="w",' in body
        finally:
            stop.set()
            thread.join()
