# The learner, inference servers and evaluations, with CUDA and vLLM from PyPI's wheels; the host needs NVIDIA's driver and
# container toolkit. Build it from the root of the repository:
#   docker build -f docker/gpu.Dockerfile -t distrl-gpu .
# Without a GPU, for the presets that train on a CPU:
#   docker build -f docker/gpu.Dockerfile -t distrl-cpu --build-arg EXTRAS=train,report,fast \
#     --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm
ARG EXTRAS=train,report,fast,vllm
ARG PIP_EXTRA_INDEX_URL
# Triton and torch.compile build their kernels with a C compiler at run time.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 distrl \
    && install -d -o distrl -g distrl -m 700 /work /work/farm /work/keys /work/runs
WORKDIR /src
COPY . .
RUN python -m venv /opt/distrl \
    && /opt/distrl/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"
ENV PATH=/opt/distrl/bin:$PATH PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
USER 1000
WORKDIR /work
ENTRYPOINT ["distrl"]
CMD ["run-learner", "--help"]
