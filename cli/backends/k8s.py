"""`--on k8s`: manifests for kubectl.

    JobSet RUN              the learner (on a volume that stays) and the inference servers
    Deployment RUN-worker   the workers; with `min` and `max` a HorizontalPodAutoscaler, by their CPU time
    Service RUN-learner     the learner's addresses, wherever its pod is
    Secret RUN-KIND         configuration and keys of the processes of a kind

All pods of a kind share its first role's key: process names are `worker-0/POD`. Pods of the JobSet are
replaced until they end with an exit code that a restart cannot change.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml

from distrl import __version__
from distrl.cli.backends.backend import (
    BEGUN,
    Backend,
    LaunchError,
    ProcessState,
    State,
    call,
    read_files,
    read_roles,
    show,
)
from distrl.cli.backends.roles import Kind, Role
from distrl.configs.schema import Config
from distrl.core.errors import NoUpdates
from distrl.core.rendezvous import HOST
from distrl.core.rundir import RunDir
from distrl.core.supervisor import HOPELESS

RUNS = "/work/runs"
PORTS = {"control": 5700, "broadcast": 5701, "weights": 5702}
ACT_PORT = 5703
JOBSETS = "jobsets.jobset.x-k8s.io"
LEARNER = "DISTRL_LEARNER"
"""The environment variable with the learner's addresses."""

CPU_PERCENT = 70
"""Of what workers request: with more they are added, because a worker without a lease is idle."""

SPARE_GIB = 16
"""Of the learner's volume, beside the trajectory store: checkpoints and logs."""

BACKOFF_LIMIT = 100
START = 'umask 077; mkdir -p "$0" && cp -rL /launch/* "$0" && exec distrl "$@"'
"""Copies the files from the Secret's volume, where others of the group can read them."""

STATES: dict[str, State] = {"Pending": "queued", "Succeeded": "done", "Failed": "failed", "Unknown": "lost"}
Manifest = dict[str, Any]


class K8sBackend(Backend):
    """Manifests, applied by kubectl."""

    def __init__(self, config: Config, run: RunDir) -> None:
        super().__init__(config, run)
        self._name = f"distrl-{re.sub('[^a-z0-9]+', '-', config.name.lower())[:32].strip('-')}"
        self.folder = Path(RUNS) / config.name

    def settings(self) -> dict[str, str]:
        ports = {**PORTS, "act": ACT_PORT}
        bound = {f"network.{name}": f"tcp://{self.interface}:{port}" for name, port in ports.items()}
        return {**bound, "network.rendezvous": f"env:{LEARNER}", "runs_dir": RUNS}

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        self._is_dry = dry_run
        manifests = yaml.safe_dump_all(self._manifests(roles), sort_keys=False)
        if dry_run:
            return [manifests.rstrip()]
        begun = self.run.path / BEGUN
        claim = call(["kubectl", "get", "pvc", f"{self._name}-run", "--ignore-not-found", "-o", "name"])
        if claim.strip() and not begun.exists():
            raise LaunchError(
                f"This namespace has the volume {self._name}-run of another run.",
                f"Choose another name, or remove the volume: kubectl delete pvc {self._name}-run.",
            )
        # Of an earlier launch: a JobSet cannot be changed.
        call(["kubectl", "delete", JOBSETS, self._name, "--ignore-not-found"], timeout_s=700.0)
        begun.touch()
        return call(["kubectl", "apply", "-f", "-"], manifests.encode()).splitlines()

    def status(self) -> list[ProcessState]:
        wanted = f"pods,{JOBSETS}"
        items = json.loads(call(["kubectl", "get", wanted, "-l", self._selector(), "-o", "json"]))["items"]
        jobsets = [item for item in items if item["kind"] == "JobSet"]
        conditions = [one for jobset in jobsets for one in jobset.get("status", {}).get("conditions", [])]
        is_over = any(
            one["status"] == "True" and one["type"] in ("Completed", "Failed") for one in conditions
        )
        pods: dict[str, Manifest] = {}  # of each job the newest: those that were replaced remain
        for pod in sorted(items, key=lambda item: str(item["metadata"].get("creationTimestamp"))):
            if pod["kind"] == "Pod":
                labels = pod["metadata"].get("labels", {})
                pods[labels.get("job-name", pod["metadata"]["name"])] = pod
        if pods:
            return [_state(pod, is_over) for pod in pods.values()]
        state: State = "queued" if jobsets else "stopped"
        return [ProcessState(name=role.name, state=state) for role in read_roles(self.run.path)]

    def stop(self) -> None:
        kinds = f"{JOBSETS},deployments,hpa,services,secrets"
        call(["kubectl", "delete", kinds, "-l", self._selector(), "--ignore-not-found", "--wait=false"])

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        """Prints logs; `name` is a pod, or a kind of processes."""
        several = [f"-l={self._selector(name)}", "--prefix", "--max-log-requests=100"]
        which = several if name is None or name in get_args(Kind) else [name]
        show([["kubectl", "logs", *which, f"--tail={lines}", *(["--follow"] if follow else [])]])

    def _selector(self, kind: str | None = None) -> str:
        return ",".join(f"{key}={value}" for key, value in self._labels(kind).items())

    def _labels(self, kind: str | None = None) -> dict[str, str]:
        return {"distrl/run": self._name, **({"distrl/role": kind} if kind else {})}

    def _manifests(self, roles: Sequence[Role]) -> Iterator[Manifest]:
        first: dict[Kind, Role] = {}
        for role in roles:
            first.setdefault(role.kind, role)
        for kind, role in first.items():
            text = {_key(name): content for name, content in self._files(role).items()}
            yield self._object("v1", "Secret", f"-{kind}", stringData=text)
        ports = [{"name": name, "port": port} for name, port in PORTS.items()]
        spec: Manifest = {"selector": self._labels("learner"), "ports": ports}
        yield self._object("v1", "Service", "-learner", spec=spec)
        size = f"{math.ceil(self.config.store.max_bytes / 2**30) + SPARE_GIB}Gi"
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        yield self._object("v1", "PersistentVolumeClaim", "-run", spec=spec)
        counts = Counter(role.kind for role in roles)
        jobs = [self._job(role, counts[kind]) for kind, role in first.items() if kind != "worker"]
        success = {"operator": "All", "targetReplicatedJobs": ["learner"]}
        spec = {"successPolicy": success, "replicatedJobs": jobs}
        yield self._object("jobset.x-k8s.io/v1alpha2", "JobSet", "", spec=spec)
        if "worker" in first:
            yield from self._workers(first["worker"], counts["worker"])

    def _job(self, role: Role, count: int) -> Manifest:
        """A part of the JobSet: `count` jobs of a pod each."""
        final = sorted({*HOPELESS, *role.done} - {0})
        rules = [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": "distrl", "operator": "In", "values": final},
            },
        ]
        spec = {
            "backoffLimit": BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",  # never two learners on one volume
            "podFailurePolicy": {"rules": rules},
            "template": self._pod(role, "Never"),
        }
        return {"name": role.kind, "replicas": count, "template": {"spec": spec}}

    def _workers(self, role: Role, count: int) -> Iterator[Manifest]:
        given = self.config.placement.workers
        most = given.max or count
        least = max(1, given.min if given.min is not None else count)
        spec: Manifest = {"selector": {"matchLabels": self._labels("worker")}}
        if most == least:  # else the number is the autoscaler's, and applying this again must not change it
            spec["replicas"] = count
        spec["template"] = self._pod(role, "Always")
        yield self._object("apps/v1", "Deployment", "-worker", spec=spec)
        if most > least:
            target = {"type": "Utilization", "averageUtilization": CPU_PERCENT}
            name = f"{self._name}-worker"
            spec = {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": least,
                "maxReplicas": most,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            }
            yield self._object("autoscaling/v2", "HorizontalPodAutoscaler", "-worker", spec=spec)

    def _pod(self, role: Role, restart: str) -> Manifest:
        """The template of the pods of a kind, by its first role."""
        default = f"distrl-{'worker' if role.kind == 'worker' else 'gpu'}:{__version__}"
        named = [*role.arguments]
        if "--name" in named:
            named[named.index("--name") + 1] = "$(POD_NAME)"
        items = [{"key": _key(name), "path": name} for name in self._files(role)]
        runs: Manifest = {"emptyDir": {}}
        if role.kind == "learner":
            runs = {"persistentVolumeClaim": {"claimName": f"{self._name}-run"}}
        container = {
            "name": "distrl",
            "image": role.needs.image or default,
            "command": ["sh", "-c", START, str(self.folder)],
            "args": named,
            "env": self._env(),
            "resources": _reserved(role),
            "volumeMounts": [
                {"name": "launch", "mountPath": "/launch", "readOnly": True},
                {"name": "runs", "mountPath": RUNS},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        }
        spec = {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": math.ceil(role.patience_s) + 5,
            "securityContext": {"fsGroup": 1000},  # of the user in the images
            "containers": [container],
            "volumes": [
                {"name": "launch", "secret": {"secretName": f"{self._name}-{role.kind}", "items": items}},
                {"name": "runs", **runs},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
            ],
        }
        return {"metadata": {"labels": self._labels(role.kind)}, "spec": spec}

    def _env(self) -> list[Manifest]:
        learner = {name: f"tcp://{self._name}-learner:{port}" for name, port in PORTS.items()}
        fields = {"POD_NAME": "metadata.name", HOST: "status.podIP"}
        return [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": at}}} for name, at in fields.items()),
            {"name": LEARNER, "value": self.meeting(learner)},
        ]

    def _files(self, role: Role) -> dict[str, str]:
        """What a role reads, by path in the run directory; placeholders in a dry run, which shows no keys."""
        if self._is_dry:
            return dict.fromkeys(role.files, "(made by distrl launch)")
        return {name: data.decode() for name, data in read_files(self.run, role.files).items()}

    def _object(self, version: str, kind: str, suffix: str, **content: Manifest) -> Manifest:
        metadata = {"name": f"{self._name}{suffix}", "labels": self._labels()}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def _key(path: str) -> str:
    """The key of a file in a Secret."""
    return path.replace("/", "--")


def _reserved(role: Role) -> Manifest:
    needs = role.needs
    requests: dict[str, str] = {"cpu": str(needs.cpus)}
    if needs.memory_gb is not None:
        requests["memory"] = f"{math.ceil(needs.memory_gb * 1024)}Mi"
    limits = {name: f"{amount:g}" for name, amount in needs.resources.items()}
    if needs.gpus:
        limits["nvidia.com/gpu"] = str(needs.gpus)
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _state(pod: Manifest, is_over: bool) -> ProcessState:
    """What a pod is doing. A worker that ended well is started again, and waits for a learner.

    With `is_over` the JobSet has ended, so that there will be none.
    """
    status, metadata = pod["status"], pod["metadata"]
    container: Manifest = next(iter(status.get("containerStatuses", [])), {})
    ended = {**container.get("lastState", {}), **container.get("state", {})}
    code = ended.get("terminated", {}).get("exitCode")
    state = STATES.get(status.get("phase", ""), "running")
    detail = ended.get("waiting", {}).get("message") or status.get("message") or ""
    if metadata.get("deletionTimestamp"):
        detail = "stopping"
    elif code is not None:
        detail = f"exit code {code}"
        if code in (0, NoUpdates.exit_code):
            state = "done"
        elif state == "running" and "waiting" in ended:
            state = "restarting"
    if is_over and metadata.get("labels", {}).get("distrl/role") == "worker":
        state, detail = "done", "idle until `distrl launch stop`"
    where = pod["spec"].get("nodeName", "")
    return ProcessState(name=metadata["name"], state=state, where=where, detail=" ".join(detail.split()))
