"""Keys in files, and who gets in."""

import contextlib
import errno
import os
import stat

import pytest
import zmq
from waiting import until

from distrl.core import sockets
from distrl.core.errors import NetworkError, SecurityError
from distrl.core.messages import Ack, StatusRequest, encode
from distrl.core.security import KeyPair, add_client, create_keys, list_allowed, load_security, remove_client
from distrl.core.sockets import Channel, Wire, new_keypair

NOTHING_MS = 300  # how long "gets nothing" is watched


@pytest.fixture
def keys(tmp_path):
    create_keys(tmp_path / "keys", new_keypair(), new_keypair())
    return tmp_path / "keys"


@pytest.fixture
def server(keys):
    with Wire(load_security(keys)) as wire:
        yield wire.bind_router("tcp://127.0.0.1:0")


def bound_again(wire: Wire, endpoint: str) -> Channel:
    """A server at an address that another one is about to leave."""
    found: list[Channel] = []

    def binds() -> bool:
        with contextlib.suppress(NetworkError):
            found.append(wire.bind_router(endpoint))
        return bool(found)

    until(binds)
    return found[0]


def gets_an_answer(server, security) -> bool:
    """Whether a client with these keys can exchange a message with the server."""
    with Wire(security) as wire:
        client = wire.connect_dealer(server.endpoint)
        try:
            client.send(StatusRequest(), timeout_s=NOTHING_MS / 1000)
        except NetworkError:
            return False
        received = server.recv(5.0)
        server.send(Ack(trajectory_id="t"), peer=received.peer)
        return client.recv(5.0).message == Ack(trajectory_id="t")


def test_a_listed_client_gets_in(keys, server):
    assert gets_an_answer(server, load_security(keys))


def test_a_client_added_later_gets_in_and_a_removed_one_no_longer(keys, server):
    add_client(keys, "farm", new_keypair())
    security = load_security(keys, "farm")
    assert security.own.public == list_allowed(keys)["farm"].public
    assert gets_an_answer(server, security)
    remove_client(keys, "farm")
    assert not gets_an_answer(server, security)


def test_an_unlisted_client_gets_nothing(keys, server, tmp_path):
    create_keys(tmp_path / "other", new_keypair(), new_keypair())
    (tmp_path / "other" / "server.pub").write_text((keys / "server.pub").read_text())
    assert not gets_an_answer(server, load_security(tmp_path / "other"))
    assert server.recv(0.0) is None


def test_a_client_refuses_a_server_with_another_key(keys, server):
    (keys / "server.pub").write_text(new_keypair().public)
    assert not gets_an_answer(server, load_security(keys))


def test_a_client_without_keys_gets_nothing(server):
    raw = zmq.Context.instance().socket(zmq.DEALER)
    raw.linger = 0
    raw.connect(server.endpoint)
    raw.send_multipart([encode(StatusRequest())])
    assert not raw.poll(NOTHING_MS)
    assert server.recv(0.0) is None
    raw.close()


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_client_that_met_another_server_first_finds_its_own_at_the_same_address(keys, has_keys):
    security = load_security(keys)
    with Wire(security if has_keys else None) as wire, Wire(None if has_keys else security) as other:
        stranger = other.bind_router("tcp://127.0.0.1:0")
        client = wire.connect_dealer(stranger.endpoint)
        gave_up = client.raw.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        assert gave_up.poll(5000)
        stranger.close()
        server = bound_again(wire, stranger.endpoint)
        until(lambda: client.is_connected, deadline_s=10.0)
        client.send(StatusRequest())
        assert server.recv(5.0).message == StatusRequest()


def test_a_broadcast_is_secret_too(keys):
    with Wire(load_security(keys)) as wire, Wire() as plain:
        pub = wire.bind_pub("tcp://127.0.0.1:0")
        good, bad = wire.connect_sub(pub.endpoint), plain.connect_sub(pub.endpoint)
        received = None
        while received is None:
            pub.send(Ack(trajectory_id="t"))
            received = good.recv(0.05)
        assert received.message == Ack(trajectory_id="t")
        assert bad.recv(NOTHING_MS / 1000) is None


def test_nobody_gets_in_when_the_allow_list_is_broken(keys, server):
    security = load_security(keys)
    (keys / "allowed" / "client.pub").write_text("nonsense")
    assert not gets_an_answer(server, security)


def test_a_broken_entry_keeps_only_its_own_client_out(keys, server):
    (keys / "allowed" / "half.pub").write_text("")
    security = load_security(keys)
    assert security.find_client(security.own.public).name == "client"
    with pytest.raises(SecurityError, match="is not a client's entry"):  # whose it is, nobody knows
        security.find_client("x" * 40)


@pytest.mark.parametrize("error", [SecurityError("broken"), OSError(errno.ESTALE, "Stale file handle")])
def test_who_came_while_the_allow_list_was_broken_gets_in_once_it_is_mended(
    keys, server, caplog, monkeypatch, error
):
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 300)

    def fail(keys_dir):
        raise error

    with Wire(load_security(keys)) as wire:
        with monkeypatch.context() as broken:
            broken.setattr("distrl.core.security._check_directory", fail)
            client = wire.connect_dealer(server.endpoint)
            until(lambda: "the allow-list cannot be read" in caplog.text)
        client.send(StatusRequest(), timeout_s=20.0)
        assert isinstance(server.recv(20.0).message, StatusRequest)


def test_a_public_address_may_be_bound_with_keys(keys):
    with Wire(load_security(keys)) as wire:
        assert wire.bind_router("tcp://0.0.0.0:0").endpoint.startswith("tcp://0.0.0.0:")


def test_a_name_for_loopback_is_not_bound(keys, monkeypatch):
    monkeypatch.setattr("socket.gethostbyname", lambda host: "127.0.1.1")
    with (
        Wire(load_security(keys)) as wire,
        pytest.raises(NetworkError, match=r"gpu is 127\.0\.1\.1 .* Bind tcp://0\.0\.0\.0:0 here"),
    ):
        wire.bind_router("tcp://gpu:0")


def test_a_client_key_that_was_named_is_not_replaced_by_another(keys):
    for file in ("client.key", "server.key"):
        with pytest.raises(SecurityError, match=r"keys/farm-9\.key is missing\. Copy farm-9\.key there"):
            load_security(keys, "farm-9")
        (keys / file).unlink()


def test_binding_needs_the_server_key(keys):
    (keys / "server.key").unlink()
    with Wire(load_security(keys)) as wire, pytest.raises(SecurityError, match=r"server\.key"):
        wire.bind_router("tcp://127.0.0.1:0")


def test_secrets_are_private(keys):
    for name in ("server.key", "client.key"):
        assert stat.S_IMODE((keys / name).stat().st_mode) == 0o600
    assert (keys / "server.key").read_text().split()[3] not in repr(load_security(keys))


@pytest.mark.parametrize("name", ["server.key", "client.key"])
def test_widely_readable_secrets_are_refused(keys, name):
    os.chmod(keys / name, 0o640)
    with pytest.raises(SecurityError, match="chmod 600"):
        load_security(keys)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda keys: (keys / "server.pub").unlink(), r"server\.pub"),
        (lambda keys: (keys / "server.pub").write_text("x"), r"server\.pub"),
        (lambda keys: (keys / "client.key").write_text("x"), r"client\.key"),
        (lambda keys: [(keys / f"{name}.key").unlink() for name in ("server", "client")], "neither"),
    ],
)
def test_broken_directories_are_named(keys, damage, named):
    damage(keys)
    with pytest.raises(SecurityError, match=named):
        load_security(keys)


def test_keys_are_never_overwritten(keys):
    before = (keys / "server.key").read_text()
    with pytest.raises(SecurityError, match="already exists"):
        create_keys(keys, new_keypair(), new_keypair())
    with pytest.raises(SecurityError, match="already exists"):
        add_client(keys, "client", new_keypair())
    assert (keys / "server.key").read_text() == before


def test_a_client_whose_key_was_moved_away_gets_no_second_one(keys):
    (keys / "client.key").unlink()
    with pytest.raises(SecurityError, match=r"client\.pub already exists"):
        add_client(keys, "client", new_keypair())
    assert not (keys / "client.key").exists()


@pytest.mark.parametrize("name", ["../x", "", "a/b", "server", ".hidden", "x" * 65])
def test_names_that_are_no_file_names_are_refused(keys, name):
    with pytest.raises(SecurityError):
        add_client(keys, name, KeyPair("p", "s"))
    with pytest.raises(SecurityError):
        remove_client(keys, name)
