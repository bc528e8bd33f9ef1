"""Completions from several inference servers, some of which fail."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from distrl.core.errors import InferenceUnavailable, ProtocolError
from distrl.core.messages import ActReply, ActRequest, Reject, RejectCode
from distrl.core.sockets import Channel, Poller, Wire
from distrl.core.types import ChatMessage, Completion, ImagePart, Sampling, TextPart, image_digest
from distrl.workers.act_client import ActClient, assigned

WAIT_S = 20.0
PIXELS = b"pixels"
DIGEST = image_digest(PIXELS)
CHAT = (ChatMessage(role="user", parts=(TextPart(text="Tap"), ImagePart(digest=DIGEST))),)


@dataclass
class FakeServer:
    """Answers act requests with its name, or as `mood` says."""

    wire: Wire
    name: str
    mood: str = "good"
    seen: list[tuple[ActRequest, list[bytes]]] = field(default_factory=list)

    def __post_init__(self):
        self.channel: Channel = self.wire.bind_router("tcp://127.0.0.1:0")
        self.endpoint = self.channel.endpoint
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        poller = Poller([self.channel])
        while not self.stopping.is_set():
            if poller.wait(0.02):
                received = self.channel.recv(0.0)
                request = received.message
                self.seen.append((request, [bytes(blob) for blob in received.blobs]))
                for answer in self.answers(request):
                    self.channel.send(answer, peer=received.peer)
                if self.mood == "dying":
                    self.stopping.set()
        self.channel.close()

    def answers(self, request: ActRequest):
        if self.mood in ("silent", "dying"):
            return []
        if self.mood != "good":
            return [Reject(code=RejectCode(self.mood), reason=self.mood, ref=request.id)]
        stale = ActReply(id="somebody else's", completion=Completion(text="wrong"))
        return [stale, ActReply(id=request.id, completion=Completion(text=self.name))]

    def stop(self):
        self.stopping.set()
        self.thread.join()


@pytest.fixture
def wire():
    with Wire() as wire:
        yield wire


@pytest.fixture
def servers(wire):
    servers = [FakeServer(wire, name) for name in ("one", "two")]
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def client(wire, servers):
    client = ActClient(wire, lambda: [server.endpoint for server in servers], name="w/0", timeout_s=WAIT_S)
    yield client
    client.close()


def ask(client: ActClient) -> str:
    completion = client.act(CHAT, {DIGEST: PIXELS, "unused": b"other"}, Sampling(temperature=0.0))
    assert completion.server in client._endpoints()
    return completion.text


def preferred(client, servers):
    """The server that this client asks first, and the other one."""
    name = ask(client)
    return sorted(servers, key=lambda server: server.name != name)


def test_a_slot_stays_with_its_server_and_slots_spread(wire, servers):
    endpoints = [server.endpoint for server in servers]
    clients = [ActClient(wire, lambda: endpoints, name=f"w/{slot}", timeout_s=WAIT_S) for slot in range(16)]
    names = [ask(client) for client in clients]
    assert names == [ask(client) for client in clients]
    assert set(names) == {"one", "two"}
    for client in clients:
        client.close()


def test_a_slot_takes_the_server_that_all_workers_agree_on(wire, servers):
    endpoints, slots = tuple(server.endpoint for server in servers), {"v": 3, "w": 3}
    names = {server.endpoint: server.name for server in servers}
    for slot, endpoint in assigned(tuple(slots.items()), endpoints).items():
        client = ActClient(wire, lambda: endpoints, name=slot, timeout_s=WAIT_S, slots=lambda: slots)
        assert ask(client) == names[endpoint]
        client.close()


def draws(count: int):
    """Workers with their slots, and servers: 32 to 128 slots on 4 to 7 servers."""
    for seed in range(count):
        rng = random.Random(seed)
        workers = rng.choice([1, 2, 4, 8, 16])
        slots = {f"worker-{index}": rng.choice([32, 64, 96, 128]) // workers for index in range(workers)}
        ports = rng.sample(range(20_000, 60_000), rng.randint(4, 7))
        yield rng, slots, tuple(f"tcp://127.0.0.1:{port}" for port in sorted(ports))


def test_servers_are_evenly_loaded():
    assert assigned((("w", 2),), ()) == assigned((), ("tcp://h:1",)) == {}
    for _, slots, servers in draws(200):
        found = assigned(tuple(slots.items()), servers)
        loads, total = Counter(found.values()), sum(slots.values())
        assert len(found) == total
        assert max(loads.values()) == -(-total // len(servers)), "as even as whole slots can be"
        assert max(loads.values()) <= 1.15 * total / len(servers) or total % len(servers) == 1


def test_few_slots_move_when_servers_or_workers_come_and_go():
    moved: list[float] = []
    for rng, slots, servers in draws(200):
        workers, total = tuple(slots.items()), sum(slots.values())
        before = assigned(workers, servers)
        gone = rng.choice(servers)
        after = assigned(workers, tuple(one for one in servers if one != gone))
        moved.append(sum(before[slot] != after[slot] for slot in before) / (total / len(servers)))
        joined = assigned((*workers, ("worker-new", total // len(slots))), servers)
        assert sum(before[slot] != joined[slot] for slot in before) < total / 3
    assert max(moved) < 2.5, "where 1 is those of the server that is gone"
    assert sum(moved) / len(moved) < 1.4


@pytest.mark.parametrize("mood", ["busy", "not-ready", "internal", "version", "dying"])
def test_a_server_that_fails_is_passed_over(client, servers, mood):
    first, second = preferred(client, servers)
    first.mood = mood
    assert ask(client) == second.name
    num_asked = len(first.seen)
    assert ask(client) == second.name
    assert len(first.seen) == num_asked


@pytest.mark.parametrize("leaves", [False, True], ids=["silent", "left-the-run"])
def test_a_server_that_says_nothing_is_passed_over(wire, servers, leaves):
    endpoints = [server.endpoint for server in servers]
    client = ActClient(wire, lambda: endpoints, name="w/0", timeout_s=WAIT_S if leaves else 2.0)
    first, second = preferred(client, servers)
    first.mood = "silent"
    if leaves:
        threading.Timer(0.2, endpoints.remove, [first.endpoint]).start()
    assert ask(client) == second.name
    client.close()


def test_a_busy_server_is_asked_again_when_there_is_no_other(client, servers):
    first, second = preferred(client, servers)
    second.mood = "busy"
    first.mood = "busy"
    threading.Timer(0.2, setattr, (second, "mood", "good")).start()
    assert ask(client) == second.name


@pytest.mark.parametrize("endpoints", [[], ["tcp://127.0.0.1:1"]])
def test_nobody_in_time_is_an_error_with_a_remedy(wire, endpoints):
    client = ActClient(wire, lambda: endpoints, timeout_s=0.3)
    with pytest.raises(InferenceUnavailable, match="serve-inference"):
        ask(client)
    client.close()


@pytest.mark.parametrize("mood", ["malformed", "limit"])
def test_a_request_that_no_server_would_take_is_an_error(client, servers, mood):
    for server in servers:
        server.mood = mood
    with pytest.raises(ProtocolError):
        ask(client)
    assert sum(len(server.seen) for server in servers) == 1


def test_a_stop_ends_the_wait(wire, servers):
    stop = threading.Event()
    for server in servers:
        server.mood = "silent"
    endpoints = [server.endpoint for server in servers]
    client = ActClient(wire, lambda: endpoints, is_stopping=stop.is_set, timeout_s=1000.0)
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(InferenceUnavailable, match="stopping"):
        ask(client)
    client.close()
