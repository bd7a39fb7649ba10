# The console with everything to train: a CPU by default, a TPU VM with --build-arg EXTRAS=cpu,tpu.
#
#   docker build -t tpu-console .
#   docker run --rm -v tpu-console:/data tpu-console run digits-cnn
#
# Runs are in the volume, so they outlive the container. The user is not root.
FROM python:3.12-slim AS wheel
WORKDIR /source
RUN pip install --no-cache-dir 'hatchling>=1.27'
COPY pyproject.toml README.md LICENSE ./
COPY tpu_console tpu_console
COPY engine engine
COPY presets presets
COPY tui tui
RUN python -m hatchling build -t wheel -d /wheel

FROM python:3.12-slim
ARG EXTRAS=cpu,hub
ARG USER_ID=1000
ENV PYTHONUNBUFFERED=1 \
    TPU_CONSOLE_HOME=/data \
    KERAS_HOME=/data/keras
RUN useradd --uid "$USER_ID" --create-home console && install -d -o console /data
RUN --mount=from=wheel,source=/wheel,target=/wheel pip install --no-cache-dir "$(echo /wheel/*.whl)[$EXTRAS]"
USER $USER_ID
WORKDIR /home/console
VOLUME /data
# `docker stop --time 30` stops the run and saves it; without --time, Docker waits only 10 seconds.
ENTRYPOINT ["tpu-console"]
CMD ["--help"]
