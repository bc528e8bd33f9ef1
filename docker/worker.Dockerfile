# A worker: environments, devices and agents, without torch. Build it from the root of the repository:
#   docker build -f docker/worker.Dockerfile -t distrl-worker .
# MiniWoB++ in Chromium:
#   docker build -f docker/worker.Dockerfile -t distrl-worker:browser \
#     --build-arg EXTRAS=fast,browser --build-arg PACKAGES="chromium chromium-driver" .
# Emulators: docs/devices.md, "Emulators in a container".
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS build
ARG EXTRAS=fast
WORKDIR /src
COPY . .
RUN python -m venv /opt/distrl \
    && /opt/distrl/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm
# Debian's packages for devices: adb for phones, browsers, or the libraries of the emulator.
ARG PACKAGES=adb
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
    && apt-get install -y --no-install-recommends ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 distrl \
    && install -d -o distrl -g distrl -m 700 /work /work/keys /work/runs
COPY --from=build /opt/distrl /opt/distrl
ENV PATH=/opt/distrl/bin:$PATH PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
USER 1000
WORKDIR /work
ENTRYPOINT ["distrl"]
CMD ["run-worker", "--help"]
