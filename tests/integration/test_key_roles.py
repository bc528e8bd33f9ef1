"""What a listed key may do at a learner, at its weights and at an inference server."""

import contextlib
import queue

import pytest
from waiting import until

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import SecurityError
from distrl.core.messages import (
    Ack,
    ActRequest,
    Chunk,
    ChunkRequest,
    Command,
    Heartbeat,
    Hello,
    InfoRequest,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    SlotReport,
    StatusRequest,
    Submit,
    Watch,
    Welcome,
    WorkRequest,
)
from distrl.core.security import add_client, change_client, create_keys, load_security
from distrl.core.service import ACT, Service
from distrl.core.sockets import Poller, Wire, new_keypair
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Task, Trajectory
from distrl.core.weights import describe
from distrl.learner.scheduler import TRAINING, TaskScheduler
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.client import LearnerLink

WAIT_S = 20.0
TASKS = [Task(id=f"q/t/{i}", suite="q", template="t", split="train", goal="Do it") for i in range(40)]
EPISODE = Trajectory(id="t", task=TASKS[0], fault=Fault.ENV)
WEIGHTS = b"weights" * 100


@pytest.fixture
def keys(tmp_path):
    """Keys of one client for each role, and of a second worker."""
    directory = tmp_path / "keys"
    create_keys(directory, new_keypair(), new_keypair())
    roles = {"farm": "worker", "lab": "worker", "gpu": "inference", "judge": "evaluate"}
    for name, role in {**roles, "desk": "observer", "boss": "owner"}.items():
        add_client(directory, name, new_keypair(), [role])
    return directory


@pytest.fixture
def learner(keys, tmp_path):
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    config = LearnerConfig.model_validate({"episodes": 1000, "min_replay": 1, "max_staleness": 1000})
    scheduler = TaskScheduler(config, TASKS, TASKS, 0, "i", b"secret")
    scheduler.set_phase(TRAINING)
    local = Endpoints(*["tcp://127.0.0.1:0"] * 3)
    server = LearnerServer(
        local, load_security(keys), store, scheduler, queue.Queue(9), "run", heartbeat_s=60
    )
    server.publish_weights(describe(1, WEIGHTS), WEIGHTS)
    server.start()
    yield server
    server.close()
    server.check()
    store.close()


@pytest.fixture
def connect(keys):
    """Connects as a client: a function that asks one thing and returns the answer."""
    with contextlib.ExitStack() as stack:

        def open_channel(client, endpoint):
            wire = stack.enter_context(Wire(load_security(keys, client)))
            channel = wire.connect_dealer(endpoint)

            def ask(message):
                channel.send(message)
                received = channel.recv(WAIT_S)
                assert received is not None, "no answer"
                return received.message

            return ask

        yield open_channel


def refusal(answer):
    """The code of a reject, or the type of another answer."""
    return answer.code.value if hasattr(answer, "code") else answer.type


@pytest.mark.parametrize(
    ("client", "message", "expected"),
    [
        ("farm", Hello(role="worker", name="farm"), "welcome"),
        ("farm", Hello(role="worker", name="farm/host-0"), "welcome"),
        ("farm", Hello(role="inference", name="farm", act_endpoint="tcp://127.0.0.1:9"), "forbidden"),
        ("farm", Heartbeat(role="inference", name="farm", act_endpoint="tcp://127.0.0.1:9"), "forbidden"),
        ("farm", Hello(role="worker", name="lab"), "forbidden"),
        ("farm", Hello(role="worker", name="farm-2"), "forbidden"),
        ("farm", LeaseRequest(worker="lab"), "forbidden"),
        ("farm", LeaseRenew(worker="lab", lease_ids=("x",)), "forbidden"),
        ("farm", LeaseRelease(worker="lab", lease_ids=("x",)), "forbidden"),
        ("farm", Submit.of(EPISODE.model_copy(update={"worker": "lab"})), "forbidden"),
        ("farm", Submit.of(EPISODE), "forbidden"),
        ("gpu", Hello(role="inference", name="gpu/i", act_endpoint="tcp://127.0.0.1:9"), "welcome"),
        ("gpu", LeaseRequest(worker="gpu"), "forbidden"),
        ("gpu", WorkRequest(worker="gpu"), "forbidden"),
        ("gpu", Submit.of(EPISODE.model_copy(update={"worker": "gpu"})), "forbidden"),
        ("judge", Hello(role="evaluate", name="judge/1"), "welcome"),
        ("judge", StatusRequest(), "status"),
        ("judge", LeaseRequest(worker="judge"), "forbidden"),
        ("judge", Submit.of(EPISODE.model_copy(update={"worker": "judge"})), "forbidden"),
        ("farm", SlotReport(worker="lab"), "forbidden"),
        ("farm", Watch(name="farm"), "forbidden"),
        ("farm", Command(name="farm", action="pause"), "forbidden"),
        ("desk", Watch(name="desk/o", wants="pictures"), "wall"),
        ("desk", Watch(name="farm"), "forbidden"),
        ("desk", SlotReport(worker="desk"), "forbidden"),
        ("desk", LeaseRequest(worker="desk"), "forbidden"),
        ("desk", Command(name="desk", action="pause"), "forbidden"),
        ("boss", Watch(name="boss"), "wall"),
        ("boss", Command(name="boss", action="pause"), "status"),
        ("boss", LeaseRequest(worker="boss"), "forbidden"),
        ("client", Hello(role="inference", name="client/inference-0"), "welcome"),
        ("client", Hello(role="worker", name="client/worker-0"), "welcome"),
    ],
)
def test_at_control(learner, connect, client, message, expected):
    assert refusal(connect(client, learner.endpoints.control)(message)) == expected


def test_a_refused_inference_server_is_not_passed_on_to_workers(learner, connect):
    bad, good = (connect(name, learner.endpoints.control) for name in ("farm", "gpu"))
    bad(Hello(role="inference", name="farm", act_endpoint="tcp://127.0.0.1:9"))
    bad(Hello(role="worker", name="farm", act_endpoint="tcp://127.0.0.1:9"))
    status = good(Hello(role="inference", name="gpu", act_endpoint="tcp://127.0.0.1:10")).status
    assert status.act_endpoints == ("tcp://127.0.0.1:10",)


@pytest.mark.parametrize(
    ("client", "expected"), [("farm", "forbidden"), ("gpu", "chunk"), ("judge", "chunk"), ("client", "chunk")]
)
def test_at_weights(learner, connect, client, expected):
    digest = learner.status.weights.digest
    answer = connect(client, learner.endpoints.weights)(ChunkRequest(digest=digest, offset=0, length=7))
    assert refusal(answer) == expected
    if expected == "chunk":
        assert isinstance(answer, Chunk)


@pytest.mark.parametrize(("client", "expected"), [("farm", "ack"), ("judge", "ack"), ("gpu", "forbidden")])
@pytest.mark.parametrize("message", [InfoRequest(), ActRequest(id="a", messages=())])
def test_at_an_inference_server(keys, client, expected, message):
    with Wire(load_security(keys)) as serving, Wire(load_security(keys, client)) as wire:
        bound = serving.bind_router("tcp://127.0.0.1:0")
        service = Service(bound, lambda got: service.reply(got.peer, Ack(trajectory_id="fine")), ACT)
        channel = wire.connect_dealer(bound.endpoint)
        channel.send(message)
        assert Poller([bound]).wait(WAIT_S)
        service.pump()
        assert refusal(channel.recv(WAIT_S).message) == expected


def test_a_worker_holds_no_more_leases_than_it_has_slots(learner, connect):
    ask = connect("farm", learner.endpoints.control)
    assert ask(LeaseRequest(worker="farm", count=58)).leases == ()
    assert isinstance(ask(Hello(role="worker", name="farm", slots=2, waiting=1)), Welcome)
    assert len(ask(LeaseRequest(worker="farm", count=58)).leases) == 3


@pytest.mark.parametrize("slots_of_key", [None, 3])
def test_a_worker_that_asks_for_more_loses_what_it_has(keys, learner, connect, slots_of_key):
    """It has restarted and forgotten its leases."""
    change_client(keys, "farm", ["worker"], slots_of_key)
    ask = connect("farm", learner.endpoints.control)
    ask(Hello(role="worker", name="farm", slots=3))
    before, after = (ask(LeaseRequest(worker="farm", count=3)).leases for _ in range(2))
    assert (len(before), len(after)) == (3, 3)
    until(lambda: learner._scheduler.metrics()["scheduler/leases_out"] == 3)


def test_a_lease_is_renewed_given_back_and_finished_by_its_owner_only(learner, connect):
    owner, thief = (connect(name, learner.endpoints.control) for name in ("farm", "lab"))
    for ask, name in ((owner, "farm"), (thief, "lab")):
        ask(Hello(role="worker", name=name, slots=1))
    (lease,) = owner(LeaseRequest(worker="farm")).leases
    thief(LeaseRelease(worker="lab", lease_ids=(lease.id,)))
    episode = EPISODE.model_copy(update={"task": lease.task, "lease_id": lease.id})
    reject = thief(Submit.of(episode.model_copy(update={"worker": "lab", "id": "stolen"})))
    assert (reject.code.value, reject.ref) == ("lease-mismatch", "stolen")
    assert learner._scheduler.metrics()["scheduler/leases_out"] == 1
    assert owner(Submit.of(episode.model_copy(update={"worker": "farm"}))) == Ack(trajectory_id="t")
    owner(StatusRequest())
    assert learner._scheduler.metrics()["scheduler/leases_out"] == 0


def test_the_slots_of_a_key_limit_its_workers_together(keys, learner, connect):
    change_client(keys, "farm", ["worker"], slots=3)
    ask = connect("farm", learner.endpoints.control)
    for name in ("farm/a", "farm/b"):
        ask(Hello(role="worker", name=name, slots=50))
    first, *_ = ask(LeaseRequest(worker="farm/a", count=2)).leases
    assert len(ask(LeaseRequest(worker="farm/b", count=50)).leases) == 1
    for name in ("farm/a", "farm/b", "farm/a"):
        assert ask(LeaseRequest(worker=name, count=48)).leases == (), "and none of those under way ends"
    assert learner._scheduler.metrics()["scheduler/leases_out"] == 3
    ask(LeaseRelease(worker="farm/a", lease_ids=(first.id,)))
    assert len(ask(LeaseRequest(worker="farm/b", count=48)).leases) == 1


def test_a_process_with_the_wrong_key_ends_with_the_reason(keys, learner):
    with Wire(load_security(keys, "farm")) as wire:
        link = LearnerLink(
            wire, learner.endpoints.control, learner.endpoints.broadcast, "inference", wire.full_name("x")
        )
        link.start()
        with pytest.raises(SecurityError, match=r"the key 'farm' has the role worker.*needs inference"):
            link.wait_connected(WAIT_S)
        link.close()


def test_a_list_from_before_there_were_roles_lets_workers_in(keys, learner, connect):
    entry = keys / "allowed" / "lab.pub"
    entry.write_text(entry.read_text().split()[0] + "\n")
    ask = connect("lab", learner.endpoints.control)
    assert isinstance(ask(Hello(role="worker", name="lab/0")), Welcome)
    assert "role worker" in ask(Hello(role="inference", name="lab/0")).reason
