"""Configurations that cannot work are refused in one line that names the key and the remedy."""

from __future__ import annotations

import pytest

from distrl.configs.load import load_config
from distrl.core.errors import ConfigError

LANDER = "appo-lunarlander"
GRPO_KL = "learner.algorithm={kind: grpo, kl: 0.1}"
HUB, AUTOUI = "policy={kind: hub, model: m}", "policy={kind: autoui, model: m}"
NF4 = "policy={kind: hub, model: m, lora: {}, quantization: nf4}"
LORA, VLLM, COLOCATED = "policy.lora={}", "inference.engine=vllm", "local.gpus=colocated"
INCREMENTAL = "agent={kind: mobile-use, options: {mode: incremental}}"
ABSOLUTE = "agent={kind: mobile-use, options: {coordinates: absolute, resize: {%s}}}"
RATIOS = "truncates sampling: an action that the behaviour policy can never take has no importance ratio"
ONE_SERVER = "learner.ds_config={zero_optimization: {%s}}"
Q_CRITIC = "learner.algorithm={kind: aride, critic: q}"
FORESIGHT = ["world.model=learned", "agent.options.picture=false"]
ARM = ["agent.kind=arm", "policy.kind=arm", "learner.max_new_tokens=32"]

REFUSED: list[tuple[list[str], str]] = [
    (["tasks.test=[]"], "`tasks.test`"),
    (["learner.algorithm={kind: aride, correction: none, policy_clip: 0.2}"], "set policy_clip to null"),
    ([INCREMENTAL, HUB, "learner.demonstrations.dagger=0.5"], "set dagger to 0"),
    (
        [*ARM, "env.kind=metaworld", "world={model: oracle, potential: distance}"],
        "world.potential=distance needs an expert that can say how far it is from the goal",
    ),
    # objectives
    (["learner.algorithm=trpo"], "'gipo'"),
    # models
    (["agent.kind=auto", HUB], "agent.kind=auto finds no published model in the name of policy.model 'm'"),
    (["agent.kind=auto"], "set agent.kind to one of androidworld, autoglm,"),
    (
        ["evaluate.prompted.agent.kind=auto", "evaluate.prompted.model=m"],
        "evaluate.prompted.agent.kind=auto finds no published model in the name of evaluate.prompted.model",
    ),
    (["agent.kind=ui-tars", HUB, "policy.max_pixels=900"], "reads points at agent.options.resize.max_pixels"),
    (
        [HUB, "policy.lora.experts=true", "inference.engine=vllm"],
        "policy.lora.experts puts adapters into the experts, which vLLM does not serve",
    ),
    ([AUTOUI, "policy.lora.experts=true"], "T5 has no experts"),
    ([HUB, "policy.quantization=nf4"], "4-bit layers cannot be trained"),
    ([NF4, "learner.engine=fsdp"], "policy.quantization works for hub models with learner.engine 'torch'"),
    (["learner.compile=true"], "learner.compile works for hub models"),
    ([HUB, "learner.compile=true", "learner.engine=fsdp"], "set learner.engine to 'torch'"),
    ([HUB, LORA, VLLM, "learner.transfer=nccl"], "sends the newest full weights of a hub model"),
    ([HUB, "learner.transfer=nccl"], "inference.engine to 'vllm'"),
    ([HUB, VLLM, COLOCATED, "learner.num_processes=2"], "is for one GPU with one rank"),
    ([HUB, COLOCATED], "set inference.engine to 'vllm'"),
    ([COLOCATED, "inference.engine=auto"], "set inference.engine to 'vllm'"),
    ([HUB, VLLM, COLOCATED, "learner.transfer=nccl"], "and local.gpus to 'split'"),
    (
        [HUB, VLLM, COLOCATED, "learner.demonstrations.dagger=0.5"],
        "learner.demonstrations.dagger to 0",
    ),
    (["learner.algorithm.clip=0.1"], "`learner.algorithm.clip` is a key of ppo, grpo, appo only"),
    (["learner.group_size=4"], "Did you mean `learner.algorithm.group_size`"),
    ([Q_CRITIC, "learner.value_recompute=false"], "expectations under the current policy"),
    (["learner.algorithm={kind: aride, critic: q, returns: gae}"], "does not support returns 'gae'"),
    (["learner.algorithm={kind: ppo, clip: 0.3, clip_high: 0.2}"], "clip_high is less than clip"),
    (["learner.algorithm={kind: grpo, clip: 0.5}"], "clip_high is less than clip"),
    (["learner.algorithm={kind: ppo, dual_clip: 0.5}"], "`learner.algorithm.dual_clip` is 0.5"),
    (["learner.algorithm={kind: digirl, top_fraction: 0}"], "`learner.algorithm.top_fraction` is 0"),
    (["learner.algorithm={kind: digirl, failure_weight: 0.3}"], "failure_weight` is a key of aride,"),
    (["learner.algorithm={kind: bc, ratio_level: token}"], "ratio_level` is a key of aride,"),
    (["learner.algorithm={kind: grpo, group_size: 1}"], "`learner.algorithm.group_size` is 1"),
    (["learner.stale=drop", "learner.policy_lag=9", "learner.max_staleness=8"], "would drop every episode"),
    (["learner.policy_lag=1", "learner.keep_best=true"], "learner.keep_best does not work with learner"),
    *[
        ([f"learner.algorithm={name}", f"learner.{key}"], f"{key} {RATIOS}")
        for name in ("aride", "grpo")
        for key in ("top_p=0.9", "top_k=5")
    ],
    (["learner.algorithm={kind: bc, invalid: 0.1}", "learner.top_p=0.9"], "validity term of bc"),
    (["learner.algorithm={kind: digirl, invalid: 0.1}", "learner.top_p=0.9"], "invalid to 0"),
    (["local.inference_servers=0"], "`local.inference_servers`: 0 is neither a positive integer nor 'auto'"),
    (["inference.max_batch=all"], "`inference.max_batch`: 'all' is neither"),
    # ranks
    *[
        (["learner.engine=deepspeed", f"learner.ds_config={{{key}: 1}}"], f"ds_config.{key} is set by the")
        for key in ("optimizer", "bf16")
    ],
    (["learner.ds_config={zero_optimization: {stage: 2}}"], "has no effect with engine 'torch'"),
    (["learner.engine=deepspeed", ONE_SERVER % "stage: 0"], "stage=0 is not supported"),
    (["learner.engine=deepspeed", "learner.ds_config={zero_optimization: 3}"], "must be a mapping"),
    (["learner.engine=deepspeed", ONE_SERVER % "offload_param: {device: nvme}"], "'nvme'} is not supported"),
    (["learner.engine=deepspeed", ONE_SERVER % "offload_optimizer: cpu"], "use {device: cpu}"),
    (
        [
            "learner.engine=deepspeed",
            "learner.ds_config={zero_optimization: {stage: 1}, data_types: {grad_accum_dtype: fp32}}",
        ],
        "with stage 1 does not support --resume; use stage 2",
    ),
    (
        [Q_CRITIC, "learner.engine=deepspeed", "learner.num_processes=2", ONE_SERVER % "stage: 3"],
        "critic 'q' draws actions",
    ),
    # agents and policies
    ([INCREMENTAL], "set agent.options.mode to history"),
    ([INCREMENTAL, AUTOUI], "encoder of its T5 reads in both directions"),
    (["agent.options={mode: incremental}"], "writes a new prompt at each step; set agent.options.mode"),
    (["agent.options={mode: incremental}", HUB], "writes a new prompt at each step"),
    ([ABSOLUTE % "max_pixels: 1000", HUB, "policy.max_pixels=900"], "policy.max_pixels=900 sets the size"),
    ([ABSOLUTE % "min_pixels: 900", HUB, "policy.max_pixels=900"], "resize.max_pixels=None; set both"),
    (["agent.options={notation: autoui}"], "policy.kind=tiny supports only agent.options.notation"),
    (["agent.options={images: 2}"], "policy.kind=tiny supports only agent.options.images"),
    (["policy.kind=reader"], "set agent.kind to elements"),
    (["policy.kind=arm"], "policy.kind=arm does not read prompts of agent.kind autoui; set both to arm"),
    (["agent.kind=arm"], "policy.kind=tiny does not read prompts of agent.kind arm; set both to arm"),
    ([*ARM, "policy.bins=5"], "policy.bins=5 is not agent.options.bins=21; remove policy.bins"),
    ([*ARM, "learner.max_new_tokens=31"], "less than the 32 numbers of a motion"),
    ([*ARM, "world.model=learned"], "world.model=learned needs policy.kind arm, an agent without pictures"),
    (["world.model=learned"], "world.model=learned needs policy.kind arm"),
    ([*ARM, *FORESIGHT, "policy.world=0"], "policy.world to null"),
    ([*ARM, *FORESIGHT, "learner.num_processes=2"], "world.model=learned is trained by one process"),
    ([HUB, "policy.action_bins=21"], "policy.action_bins=21 is for the numbers of agent.kind arm"),
    ([HUB, "agent.kind=arm", "policy.action_bins=20"], "as many agent.options.bins; set it to these"),
    (["agent.kind=elements"], "set policy.kind to reader"),
    (
        [
            *("policy.kind=tiny", "agent.kind=autoui", "worker.screenshot_format=jpeg"),
            *("worker.rewards.source=judge", "judge={kind: rules, rules: [{text: [done]}]}"),
        ],
        "rules with text or not_text read the elements",
    ),
    (["agent={kind: androidworld, options: {observe: elements}}"], "set it to both"),
    (["policy={kind: autoui}"], "`policy.model` is missing"),
    ([HUB, "policy.image_features=b"], "`policy.image_features` is a key of autoui only"),
    (["policy.attended_images=2"], "`policy.attended_images` is a key of autoui only"),
    ([AUTOUI, "policy.lora={vision: true}"], "lora.vision and lora.experts need policy.kind 'hub'"),
    ([HUB, GRPO_KL], "set policy.kind to 'hub' and policy.lora"),
    ([AUTOUI, "policy.lora={}", GRPO_KL], "set policy.kind to 'hub' and policy.lora"),
    (["worker.screenshot_format=none"], "agent.kind=autoui shows screenshots, but worker.screenshot_format"),
    (["agent.kind=mai-ui", HUB, "worker.screenshot_format=none"], "is none; set it to jpeg"),
    (["agent={kind: androidworld, options: {observe: marks}}", HUB, "worker.screenshot_format=none"], "jpeg"),
    # judges
    (
        ["worker.rewards.source=judge", "judge=vlm", "worker.screenshot_format=none"],
        "judge.kind 'vlm' looks at screenshots, but worker.screenshot_format is 'none'; set it to jpeg",
    ),
    (["worker.rewards.source=judge", "judge=local", "worker.screenshot_format=none"], "set it to jpeg"),
    (["worker.rewards.source=judge"], "needs a judge; set judge.kind"),
    (["worker.rewards.source=judge", "judge=ground_truth"], "is the environment's own check"),
    (["worker.rewards.source=judge", "judge=local"], "set worker.elements to 'all'"),
    (["judge={kind: local, when: steps}"], "worker.rewards.require_complete to false"),
    (["judge={kind: vlm, votes: 3}"], "set temperature above 0"),
    (["judge={kind: local, min_confidence: 0.3}"], "`judge.min_confidence` is 0.3"),
    # devices
    (["devices.pool=[{kind: sim, cout: 2}]"], "unknown key `devices.pool.0.cout`. Did you mean"),
    (["devices.pool=[{kind: sim, snapshot: clean}]"], "is a key of adb, avd only. Remove it, or set"),
    (["devices.pool=[{kind: moon}]"], "`devices.pool.0.kind` is 'moon', expected one of 'sim', 'adb',"),
    (["devices.pool=[{count: 2}]"], "`devices.pool.0.kind` is missing"),
    (["devices.pool=[{kind: adb, serials: []}]"], "`devices.pool.0.serials` is []"),
    (["devices.pool=[{kind: adb, serials: ['a b']}]"], "`devices.pool.0.serials.0` is 'a b'"),
    (["devices.pool=[{kind: phone, serials: ['R5*']}]"], "`devices.pool.0.serials.0` is 'R5*'"),
    (["devices.pool=[{kind: avd, avd: '../up'}]"], "`devices.pool.0.avd` is '../up'"),
    (
        ["devices.pool=[{kind: adb, serials: [a]}, {kind: phone, serials: [a]}]"],
        "the serial 'a' is listed twice",
    ),
    (["devices.pool=[{kind: avd, avd: p}, {kind: avd, avd: p}]"], "an AVD is listed twice"),
    (["worker.barrier=true", "devices.pool=[{kind: sim}]"], "barrier does not work with devices.pool"),
    (["learner.temperature=0.001"], "`learner.temperature` is 0.001, expected greater than or equal to 0.01"),
    # placement
    (["placement.workers={min: 4, max: 2}"], "must not decrease, but those set are [4, 2]"),
    (["placement.workers={count: 1, min: 2}"], "those set are [2, 1]"),
    # continuous control
    (["learner.algorithm=appo"], "needs env.kind=gym, but env.kind is phone"),
    (["env.kind=gym"], "env.kind=gym is for continuous control"),
    (["policy.kind=gaussian"], "policy.kind=gaussian is for continuous control"),
]
APPO_REFUSED = [
    ("learner.algorithm=ppo", "env.kind=gym is for continuous control"),
    ("policy.kind=tiny", "needs policy.kind=gaussian"),
    ("env.import_path=a.b:C", "but env.kind is a.b:C"),
    ("env.options={}", "needs env.options.id"),
    ("policy.d_model=8", "`policy.d_model` is a key of tiny, reader, arm only"),
    ("tasks.suite=general", "tasks.suite has no effect with learner.algorithm=appo"),
    ("learner.optim.lr=0.1", "learner.optim has no effect"),
    ("learner.num_processes=2", "learner.num_processes has no effect"),
    ("judge={kind: local}", "judge has no effect"),
    ("worker.slots=3", "multiple of worker.slots=3"),
    ("learner.algorithm.minibatch_size=100000", "is larger than num_steps"),
]


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        *(("quickstart-pixels", *row) for row in REFUSED),
        *((LANDER, [one], text) for one, text in APPO_REFUSED),
    ],
)
def test_it_is_refused_in_one_line(preset: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(preset, overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["learner.algorithm={kind: bc, invalid: 0}", "learner.top_p=0.9"],
        ["learner.algorithm={kind: digirl, invalid: 0}", "learner.top_p=0.9"],
        [Q_CRITIC, "learner.engine=deepspeed", ONE_SERVER % "stage: 3"],
        ["learner.engine=deepspeed", "learner.ds_config={wall_clock_breakdown: true}"],
        [INCREMENTAL, HUB],
        ["agent={kind: androidworld, options: {observe: elements}}", HUB, "worker.screenshot_format=none"],
        [HUB, VLLM, "learner.transfer=nccl"],
        [NF4, VLLM, COLOCATED],
        [HUB, "learner.compile=true"],
        ["agent={import_path: 'os:path', options: {mode: incremental}}"],
        [ABSOLUTE % "max_pixels: 900", HUB, "policy.max_pixels=900"],
        ["agent={kind: mobile-use, options: {coordinates: relative}}", HUB, "policy.max_pixels=900"],
        ["agent.options={notation: autoui, images: 2}", AUTOUI, "policy.image_features=b"],
    ],
)
def test_what_goes_together_is_taken(overrides: list[str]) -> None:
    load_config("quickstart-pixels", overrides)
