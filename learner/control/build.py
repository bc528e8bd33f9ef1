"""Puts a master together from its configuration and its run directory."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from threading import Event

import torch

from distrl.configs.schema import Config
from distrl.core.errors import CheckpointError
from distrl.core.metrics import MetricsWriter
from distrl.core.policies.gaussian import ControlSpec, GaussianPolicy
from distrl.core.rundir import RunDir
from distrl.core.security import SERVER, load_security
from distrl.learner.control.checkpoint import ControlCheckpointer
from distrl.learner.control.learner import ControlLearner, ControlParts
from distrl.learner.control.master import Master
from distrl.learner.control.server import ControlServer
from distrl.learner.publish import Publisher
from distrl.learner.station import Endpoints
from distrl.learner.tensorboard import tensorboard_sinks

LINGER_S = 1.0
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_control_learner(
    config: Config, run: RunDir, sizes: tuple[int, int], stop: Event
) -> Iterator[ControlLearner]:
    """A master whose sockets are bound and served; everything is closed afterwards.

    A run that has a checkpoint goes on from it.

    Args:
        config: The run.
        run: Its directory.
        sizes: Of the environment's flat observations and actions.
        stop: Ends it early.

    Raises:
        NetworkError: An address is in use.
        CheckpointError: The newest checkpoint cannot be used.
    """
    torch.set_num_threads(config.learner.threads)
    spec = ControlSpec.of(
        config.policy.gaussian,
        str(config.env.options["id"]),
        sizes,
        config.learner.appo.normalise_observations,
    )
    network = config.network
    with contextlib.ExitStack() as stack:
        server = ControlServer(
            Endpoints(network.control, network.broadcast, network.weights),
            load_security(network.keys_path, SERVER),
            run.run_id(),
        )
        stack.callback(server.close)
        metrics = MetricsWriter(run.metrics, tensorboard_sinks(run.tensorboard))
        stack.callback(metrics.close)
        policy = GaussianPolicy(spec, config.seed)
        run.weights.mkdir(exist_ok=True)
        version_file = run.weights / "version"
        master = Master(
            config,
            policy,
            server,
            lambda master: Publisher(policy, master, version_file, level=logging.DEBUG),
        )
        server.master = master
        checkpointer = ControlCheckpointer(
            run.checkpoints, GaussianPolicy(spec, config.seed), config.learner.keep_checkpoints
        )
        _resume(master, policy, checkpointer)
        metrics.resume(master.progress.accepted)
        server.start()
        yield ControlLearner(ControlParts(config, server, master, checkpointer, metrics), stop)
        if server.status.phase == "done":
            time.sleep(LINGER_S)  # late subscribers hear the shutdown


def _resume(master: Master, policy: GaussianPolicy, checkpointer: ControlCheckpointer) -> None:
    """Brings back the newest checkpoint."""
    found = checkpointer.load(policy)
    if found is None:
        return
    try:
        master.load_state_dict(found)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"The checkpoint's state.json does not fit: {error!r}.",
            "Resume with the version of distrl that wrote it, or start a new run.",
        ) from error
    _log.info("resumed after %d gradients", master.progress.accepted)
