"""The learner's peers: who is alive, their numbers as metrics, and who gets no leases for a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from link_fake import FakeJudge, FakeLink

from distrl.configs.judge import RewardConfig, RulesConfig
from distrl.core.errors import ProtocolError
from distrl.core.messages import Heartbeat
from distrl.learner import peers as module
from distrl.learner.peers import FIRST_S, LEAST, LONGEST_S, WINDOW, Peers, Suspensions
from distrl.workers.devices.pool import DevicePool
from distrl.workers.inference.server import ServerStats
from distrl.workers.judging import JudgingLink
from distrl.workers.spool import Spool
from distrl.workers.worker import Tally


class Rig:
    """Peers that fall silent after 6 s."""

    def __init__(self) -> None:
        self.now = 100.0
        self.peers = Peers(6.0, lambda: self.now)

    def beat(self, role, name, endpoint="", **stats):
        return self.peers.register(Heartbeat(role=role, name=name, act_endpoint=endpoint, stats=stats))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_counts_of_workers_become_rates_over_all_and_totals(rig) -> None:
    rig.beat("worker", "a", episodes=1000, steps=9000, faults=7)  # from before this learner
    rig.beat("worker", "b", episodes=0, steps=0, faults=0)
    rig.peers.metrics()
    rig.now += 2.0
    rig.beat("worker", "a", episodes=1006, steps=9040, faults=8)
    rig.beat("worker", "b", episodes=2, steps=20, faults=0)
    metrics = rig.peers.metrics()
    assert metrics["workers/alive"] == 2
    assert metrics["workers/episodes_per_s"] == 4.0
    assert metrics["workers/actions_per_s"] == 30.0
    assert metrics["workers/faults"] == 1
    rig.now += 2.0
    metrics = rig.peers.metrics()
    assert (metrics["workers/actions_per_s"], metrics["workers/faults"]) == (0.0, 1)


def test_slots_are_listed_unless_there_are_very_many(rig) -> None:
    for name, slots in (("b", 8), ("a", module.MAX_LISTED - 8)):
        assert rig.peers.register(Heartbeat(role="worker", name=name, slots=slots))
    assert rig.peers.slots() == {"a": module.MAX_LISTED - 8, "b": 8}
    assert not rig.peers.register(Heartbeat(role="worker", name="b", slots=8))
    assert rig.peers.register(Heartbeat(role="worker", name="b", slots=9))
    assert rig.peers.slots() == {}


def test_a_restarted_worker_counts_from_zero(rig) -> None:
    for episodes in (0, 50, 3):
        rig.beat("worker", "a", episodes=episodes)
    rig.now += 1.0
    assert rig.peers.metrics()["workers/episodes_per_s"] == 53.0


def test_numbers_of_servers_are_put_together(rig) -> None:
    names = ("batch_size", "queue", "queue_wait_p99_ms", "swap_pause_ms", "weight_version")
    rig.beat("inference", "i", **dict(zip(names, (2.0, 3.0, 10.0, 5.0, 8), strict=True)))
    rig.beat("inference", "j", **dict(zip(names, (4.0, 1.0, 30.0, 1.0, 7), strict=True)))
    rig.beat("inference", "fresh")
    rig.beat("monitor", "m", batch_size=100.0, nonsense=1.0)
    metrics = rig.peers.metrics()
    assert {name: metrics[f"inference/{name}"] for name in ("alive", "batch_size", "queue")} == {
        "alive": 3,
        "batch_size": 3.0,
        "queue": 4.0,
    }
    assert metrics["inference/queue_wait_p99_ms"] == 30.0
    assert metrics["inference/swap_pause_ms"] == 5.0
    assert metrics["inference/weight_version_min"] == 7
    assert not any("nonsense" in name for name in metrics)


def test_who_is_gone_is_left_out_but_for_what_it_had_counted(rig) -> None:
    rig.beat("inference", "i", "tcp://127.0.0.1:1", batch_size=2.0, requests=0, rejected=0)
    rig.beat("inference", "i", "tcp://127.0.0.1:1", batch_size=2.0, requests=12, rejected=1)
    rig.now += 6.1
    assert rig.peers.expire()
    assert not rig.peers.expire()
    assert rig.peers.act_endpoints() == ()
    metrics = rig.peers.metrics()
    assert metrics["inference/alive"] == 0
    assert metrics["inference/rejected"] == 1
    assert metrics["inference/requests_per_s"] == pytest.approx(12 / 6.1)
    assert "inference/batch_size" not in metrics


def test_there_is_a_limit(rig, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_PEERS", 1)
    rig.beat("worker", "a")
    with pytest.raises(ProtocolError, match="connected already"):
        rig.beat("worker", "b")
    rig.beat("worker", "a")


def test_the_names_are_those_that_workers_and_servers_send(tmp_path: Path) -> None:
    link, spool = FakeLink(), Spool(tmp_path / "judge.sqlite3")
    judging = JudgingLink(link, FakeJudge(), RulesConfig(), RewardConfig(), spool)
    sent = {("worker", name) for name in [*Tally().counts, *DevicePool().stats(), *judging.stats()]}
    spool.close()
    sent |= {("inference", name) for name in [*ServerStats().snapshot(), "queue", "weight_version"]}
    assert {*module.RATES, *module.TOTALS, *module.GAUGES} == sent


class Sender:
    def __init__(self) -> None:
        self.now = 0.0
        self.suspensions = Suspensions(lambda: self.now)

    def send(self, results: str, name: str = "w") -> None:
        """`r` is a rejected trajectory, `a` an accepted one."""
        for result in results:
            self.suspensions.record(name, "too long" if result == "r" else "")

    def left_s(self, name: str = "w") -> float:
        return self.suspensions.of(name)[0]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.mark.parametrize("results", ["r" * (LEAST - 1), "ar" * 50, "aaaaar", "r" * 5 + "a" * 15 + "r" * 10])
def test_up_to_half_and_a_few_at_the_start_are_tolerated(sender: Sender, results: str) -> None:
    sender.send(results)
    assert sender.left_s() == 0.0
    assert sender.suspensions.count == 0


@pytest.mark.parametrize("results", ["r" * LEAST, "ararrr", "a" * 100 + "r" * (WINDOW // 2 + 1)])
def test_more_than_half_are_not(sender: Sender, results: str) -> None:
    sender.send(results)
    assert sender.left_s() == FIRST_S
    assert sender.left_s("another") == 0.0
    sender.now += FIRST_S
    assert sender.left_s() == 0.0
    assert sender.suspensions.count == 0


def test_each_further_time_lasts_twice_as_long_up_to_a_bound(sender: Sender) -> None:
    lasted = []
    for _ in range(1100):
        sender.send("r" * LEAST)
        lasted.append(sender.left_s())
        sender.send("r" * 50)  # these were on their way already
        assert sender.left_s() == lasted[-1]
        sender.now += lasted[-1]
    assert lasted[:4] == [60.0, 120.0, 240.0, 480.0]
    assert lasted[-1] == LONGEST_S
