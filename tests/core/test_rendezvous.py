"""Looking up the learner, and following it when it moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import until

from distrl.core.errors import ConfigError, SecurityError
from distrl.core.messages import Ack
from distrl.core.rendezvous import Meeting, find, publish, reachable
from distrl.core.security import add_client, create_keys, load_security
from distrl.core.sockets import Channel, Wire, new_keypair


def meeting(control: str, public: str = "") -> Meeting:
    return Meeting(control=control, broadcast="tcp://127.0.0.1:2", weights="tcp://127.0.0.1:3", public=public)


def say(channel: Channel, bound: Channel, ref: str) -> None:
    """Sends until it arrives: nothing is queued for a server that is not there."""

    def arrives() -> bool:
        if channel.is_connected:
            channel.send_periodic(Ack(trajectory_id=ref))
        received = bound.recv(0.05)
        return received is not None and received.message == Ack(trajectory_id=ref)

    until(arrives, ref)


def test_a_socket_waits_for_the_record_and_follows_the_learner(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.core.sockets.LOOK_S", 0.1)
    place = f"file:{tmp_path}/launch/learner.json"
    with Wire() as wire, Wire() as other:
        channel = wire.connect_dealer(f"file:{tmp_path}/launch/learner.json#control")
        assert not channel.is_connected
        first = other.bind_router("tcp://127.0.0.1:*")
        publish(place, meeting(first.endpoint))
        say(channel, first, "first")
        first.close()
        second = other.bind_router("tcp://127.0.0.1:*")
        publish(place, meeting(second.endpoint))
        say(channel, second, "second")
        assert channel.lost_connection()


def test_the_record_of_a_learner_with_another_key_is_ignored(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.core.sockets.LOOK_S", 0.1)
    keys, server = tmp_path / "keys", new_keypair()
    create_keys(keys, server, new_keypair())
    add_client(keys, "worker-0", new_keypair())
    place = f"file:{tmp_path}/learner.json"
    security = load_security(keys, "worker-0")
    with Wire(security) as wire, Wire(load_security(keys, "server")) as other:
        bound = other.bind_router("tcp://127.0.0.1:*")
        publish(place, meeting(bound.endpoint, public=new_keypair().public))
        channel = wire.connect_dealer(f"file:{tmp_path}/learner.json#control")
        assert wire._find(place, "control") is None
        publish(place, meeting(bound.endpoint, public=server.public))
        say(channel, bound, "ours")


def test_without_keys_no_rendezvous_leads_to_another_machine(tmp_path: Path) -> None:
    publish(f"file:{tmp_path}/r", meeting("tcp://10.0.0.1:5700"))
    with Wire() as wire, pytest.raises(SecurityError, match="distrl keys"):
        wire.connect_dealer(f"file:{tmp_path}/r#control").recv(0.0)


def test_records_in_the_environment_are_checked(monkeypatch) -> None:
    record = meeting("tcp://10.0.0.1:5700", "key")
    monkeypatch.setenv("THE_LEARNER", record.model_dump_json())
    assert find("env:THE_LEARNER") == record
    monkeypatch.setenv("THE_LEARNER", "10.0.0.1")
    with pytest.raises(ConfigError, match="THE_LEARNER"):
        find("env:THE_LEARNER")


@pytest.mark.parametrize(
    "text", ['{"control": ', meeting("tcp://h:1").model_dump_json().replace("tcp://h:1", "h")]
)
def test_a_damaged_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert find(f"file:{tmp_path}/r") is None
    assert find(f"file:{tmp_path}/none") is None


def test_others_reach_all_interfaces_by_the_hosts_name(monkeypatch) -> None:
    monkeypatch.setenv("DISTRL_HOST", "node7")
    assert reachable("tcp://0.0.0.0:5700") == "tcp://node7:5700"
    assert reachable("tcp://127.0.0.1:5700") == "tcp://127.0.0.1:5700"
