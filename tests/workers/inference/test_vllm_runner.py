"""Which of vLLM's model runners is taken, and that it takes our mask. Nothing is started."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

from distrl.configs.schema import InferenceConfig
from distrl.workers.inference.vllm_options import LOGITS_PROCESSOR, RUNNER, set_environment

pytestmark = [pytest.mark.needs("vllm"), pytest.mark.timeout(600)]


def test_where_vllm_would_take_runner_v2_it_takes_the_one_that_takes_our_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(RUNNER, raising=False)
    set_environment(InferenceConfig())
    import vllm.envs
    from vllm import SamplingParams
    from vllm.config import vllm as vllm_config
    from vllm.v1.sample.logits_processor import validate_logits_processors_parameters
    from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors_params_validator

    vllm.envs.disable_envs_cache()  # an engine that ran in this process has left one
    monkeypatch.setattr(vllm_config, "HAS_TRITON", True)  # as with CUDA
    config = vllm_config.VllmConfig()
    assert not config.use_v2_model_runner
    validate_logits_processors_parameters([LOGITS_PROCESSOR], SamplingParams())

    monkeypatch.delenv(RUNNER)
    assert config.use_v2_model_runner, "vLLM's own choice, without which nothing is tested here"
    with pytest.raises(ValueError, match="AllowedTokens"):
        build_custom_logits_processors_params_validator([LOGITS_PROCESSOR])
