"""`distrl launch --on k8s`: what is given to kubectl, and what is made of its answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from distrl import __version__
from distrl.cli.main import app
from distrl.core.errors import MissingDependency
from distrl.core.supervisor import HOPELESS

GOLDEN = Path(__file__).parent / "golden" / "launch-k8s.yaml"
CONFIG: dict[str, Any] = {
    "name": "My.Phones",
    "local": {"inference_servers": 2},
    "placement": {
        "learner": {"cpus": 8, "gpus": 2, "memory_gb": 64},
        "inference": {"gpus": 1},
        "workers": {
            "count": 3, "min": 2, "max": 8, "cpus": 4, "image": "registry.example/worker:1",
            "resources": {"devices.kubevirt.io/kvm": 1},
        },
    },
}  # fmt: skip
KUBECTL = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([sys.argv[1:], "" if sys.argv[1] != "apply" else sys.stdin.read()]) + "\\n")
if sys.argv[1:3] == ["get", "pvc"]:
    print(os.environ.get("CLAIM", ""))
elif sys.argv[1] == "get":
    print(open({answer!r}).read())
if sys.argv[1] == "logs":
    print("a line of the log", flush=True)
"""


class Kubectl:
    """A kubectl on the PATH that records its calls, and answers `get` with `answer`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls, self._answer = folder / "calls", folder / "answer"
        program = folder / "bin" / "kubectl"
        program.parent.mkdir()
        text = KUBECTL.format(python=sys.executable, calls=str(self._calls), answer=str(self._answer))
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        self.answer()

    def answer(self, *items: dict[str, Any]) -> None:
        self._answer.write_text(json.dumps({"kind": "List", "items": items}))

    def take(self) -> list[tuple[list[str], str]]:
        """The arguments of each call so far, and what `apply` was given."""
        calls = [tuple(json.loads(line)) for line in self._calls.read_text().splitlines()]
        self._calls.unlink()
        return calls


def launch(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["launch", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def write(folder: Path, **more: Any) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, "runs_dir": str(folder / "runs"), **more}))
    return file


def manifests(folder: Path, **more: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name what a dry run prints."""
    shown = launch(write(folder, **more), "--on", "k8s", "--dry-run")
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(shown)}


def test_a_dry_run_prints_the_manifests_and_changes_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    shown = launch(write(tmp_path), "--on", "k8s", "--dry-run").replace(__version__, "VERSION")
    expected = GOLDEN.read_text()
    assert shown == expected, f"If this is intended, write it to {GOLDEN}."
    assert not (tmp_path / "runs").exists()


@pytest.mark.needs("kubernetes_validate")
def test_the_api_accepts_the_manifests(tmp_path: Path) -> None:
    import kubernetes_validate

    for more in ({}, {"placement": {"workers": {"count": 2}}}):
        for (kind, name), one in manifests(tmp_path, **more).items():
            if kind != "JobSet":
                kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
                continue
            for job in one["spec"]["replicatedJobs"]:
                head = {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": f"{name}-{job['name']}"},
                }
                whole = {**head, **job["template"]}
                kubernetes_validate.validate(whole, kubernetes_validate.latest_version(), strict=True)


def test_references_between_manifests_hold(tmp_path: Path) -> None:
    found = manifests(tmp_path)
    jobs = found["JobSet", "distrl-my-phones"]["spec"]["replicatedJobs"]
    pods = {job["name"]: job["template"]["spec"]["template"] for job in jobs}
    pods["worker"] = found["Deployment", "distrl-my-phones-worker"]["spec"]["template"]
    for kind, pod in pods.items():
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                secret = found["Secret", volume["secret"]["secretName"]]
                assert {item["key"] for item in volume["secret"]["items"]} == set(secret["stringData"])
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in found
                assert kind == "learner"
        mounts = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    service = found["Service", "distrl-my-phones-learner"]["spec"]
    assert service["selector"].items() <= pods["learner"]["metadata"]["labels"].items()
    env = {one["name"]: one.get("value") for one in pods["worker"]["spec"]["containers"][0]["env"]}
    for port in service["ports"]:
        assert (
            json.loads(env["DISTRL_LEARNER"])[port["name"]]
            == f"tcp://distrl-my-phones-learner:{port['port']}"
        )
        arguments = pods["learner"]["spec"]["containers"][0]["args"]
        assert f"--set=network.{port['name']}=tcp://0.0.0.0:{port['port']}" in arguments


def test_workers_never_get_the_server_s_key(tmp_path: Path) -> None:
    found = manifests(tmp_path)
    assert "launch--keys--server.key" in found["Secret", "distrl-my-phones-inference"]["stringData"]
    assert not [
        key for key in found["Secret", "distrl-my-phones-worker"]["stringData"] if "server.key" in key
    ]


def test_what_a_restart_cannot_fix_ends_the_job(tmp_path: Path) -> None:
    learner, inference = manifests(tmp_path)["JobSet", "distrl-my-phones"]["spec"]["replicatedJobs"]
    assert (learner["replicas"], inference["replicas"]) == (1, 2)
    rules = inference["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rules[1]["onExitCodes"]["values"] == sorted(HOPELESS)


def test_a_fixed_number_of_workers_needs_no_autoscaler(tmp_path: Path) -> None:
    found = manifests(tmp_path, placement={"workers": {"count": 3}})
    assert found["Deployment", "distrl-my-phones-worker"]["spec"]["replicas"] == 3
    assert "HorizontalPodAutoscaler" not in {kind for kind, _ in found}


def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
    """A pod as kubectl shows it."""
    spec = {"nodeName": "node-7"}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": phase, **status}}


def container(**states: Any) -> dict[str, Any]:
    return {"containerStatuses": [states]}


def test_launch_status_logs_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl, run = Kubectl(tmp_path, monkeypatch), tmp_path / "runs" / "My.Phones"
    launch(write(tmp_path), "--on", "k8s")
    _, (deleted, _), (applied, text) = kubectl.take()
    assert deleted == ["delete", "jobsets.jobset.x-k8s.io", "distrl-my-phones", "--ignore-not-found"]
    assert applied == ["apply", "-f", "-"]
    secrets = {one["metadata"]["name"]: one for one in yaml.safe_load_all(text) if one["kind"] == "Secret"}
    key = (run / "launch" / "keys" / "worker-0.key").read_text()
    assert secrets["distrl-my-phones-worker"]["stringData"]["launch--keys--worker-0.key"] == key
    assert "launch--keys--allowed--worker-0.pub" in secrets["distrl-my-phones-learner"]["stringData"]

    shown = launch(write(tmp_path), "--on", "k8s", "--resume", "--dry-run")
    assert key not in shown, "a dry run shows no keys"

    assert "stopped" in launch("status", run, code=18)
    kubectl.answer({"kind": "JobSet", "metadata": {}})
    assert "learner      queued" in launch("status", run)
    kubectl.answer(
        {"kind": "JobSet", "metadata": {}},
        pod("learner", "Succeeded", **container(state={"terminated": {"exitCode": 0}})),
        pod("idle", "Failed", **container(state={"terminated": {"exitCode": 17}})),
        pod("waits", "Pending", **container(state={"waiting": {"message": "no image\nanywhere"}})),
        pod("works", "Running", **container(state={"running": {}})),
        pod(
            "again", "Running", **container(state={"waiting": {}}, lastState={"terminated": {"exitCode": 5}})
        ),
        pod(
            "leaves", "Running", **container(state={"running": {}}, lastState={"terminated": {"exitCode": 0}})
        ),
        pod("broken", "Failed", **container(state={"terminated": {"exitCode": 9}})),
    )
    lines = [line.split(maxsplit=3) for line in launch("status", run, code=18).splitlines()]
    assert lines == [
        ["learner", "done", "node-7", "exit code 0"],
        ["idle", "done", "node-7", "exit code 17"],
        ["waits", "queued", "node-7", "no image anywhere"],
        ["works", "running", "node-7"],
        ["again", "restarting", "node-7", "exit code 5"],
        ["leaves", "done", "node-7", "exit code 0"],
        ["broken", "failed", "node-7", "exit code 9"],
    ]
    kubectl.take()
    launch("logs", run, "worker", "-n", "5", "--follow")
    launch("logs", run, "distrl-my-phones-learner-0-0-abcde")
    launch("stop", run)
    (worker, _), (one, _), _, (stopped, _) = kubectl.take()
    assert worker[:2] == ["logs", "-l=distrl/run=distrl-my-phones,distrl/role=worker"]
    assert {"--tail=5", "--follow", "--prefix"} <= set(worker)
    assert one == ["logs", "distrl-my-phones-learner-0-0-abcde", "--tail=20"]
    assert stopped[0] == "delete"
    assert "persistentvolumeclaims" not in stopped[1]
    assert "distrl/run=distrl-my-phones" in stopped


def test_a_missing_kubectl_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = launch(write(tmp_path), "--on", "k8s", code=MissingDependency.exit_code)
    assert "The program kubectl is not installed" in shown
    assert len(shown.splitlines()) == 1
    assert not (tmp_path / "runs" / "My.Phones").exists()


def test_the_volume_of_another_run_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = Kubectl(tmp_path, monkeypatch)
    monkeypatch.setenv("CLAIM", "persistentvolumeclaim/distrl-my-phones-run")
    shown = launch(write(tmp_path), "--on", "k8s", code=18)
    assert "distrl-my-phones-run of another run" in shown
    assert [arguments[0] for arguments, _ in kubectl.take()] == ["get"]
    assert not (tmp_path / "runs" / "My.Phones").exists()
    monkeypatch.setenv("CLAIM", "")
    launch(write(tmp_path), "--on", "k8s")
    monkeypatch.setenv("CLAIM", "persistentvolumeclaim/distrl-my-phones-run")
    kubectl.answer(pod("learner", "Failed"))
    launch(write(tmp_path), "--on", "k8s", "--resume")


def test_workers_are_done_when_the_jobset_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = Kubectl(tmp_path, monkeypatch)
    launch(write(tmp_path), "--on", "k8s")
    worker = pod("waits", "Running", **container(state={"running": {}}))
    worker["metadata"]["labels"] = {"distrl/role": "worker"}
    ended = {"conditions": [{"type": "Completed", "status": "True"}]}
    kubectl.answer({"kind": "JobSet", "metadata": {}, "status": ended}, pod("learner", "Succeeded"), worker)
    shown = launch("status", "--wait", tmp_path / "runs" / "My.Phones")
    assert "waits    done" in shown


def test_a_pod_that_was_replaced_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = Kubectl(tmp_path, monkeypatch)
    launch(write(tmp_path), "--on", "k8s")
    first, second = pod("first", "Failed"), pod("second", "Running")
    for day, one in enumerate((first, second), 1):
        metadata = {"labels": {"job-name": "learner"}, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
        one["metadata"] |= metadata
    kubectl.answer(second, first)
    assert launch("status", tmp_path / "runs" / "My.Phones").split() == ["second", "running", "node-7"]
