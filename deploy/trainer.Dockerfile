# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The image of the trainers in deploy/: Python, PyTorch for the CPU, the package basin, and
# examples/digits.py. Its context is a folder with the wheel and the script:
#
#   scripts/build-wheel.sh build/trainer
#   cp examples/digits.py build/trainer
#   docker build --file=deploy/trainer.Dockerfile --tag=registry.example/digits-trainer:0.1.0 \
#     build/trainer
#
# For your own training, copy your script in place of digits.py, and install what it needs.
#
# BASE         an image with Python 3.10 or newer, pip, and glibc 2.36 or newer.
# TORCH_INDEX  where pip finds PyTorch. This one has the builds for the CPU, which are small; PyPI
#              has those for CUDA.

ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m pip install --no-cache-dir --index-url="$TORCH_INDEX" torch
COPY *.whl /tmp/wheels/
RUN python3 -m pip install --no-cache-dir scikit-learn /tmp/wheels/*.whl
WORKDIR /trainer
COPY digits.py .
# The root file system of the pods is read-only, and Kubernetes shows lines as they are written.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# As in the manifests. It must be a number, because Kubernetes cannot check whether a name is root.
USER 65532:65532
# Without a shell, so that the script is process 1 and gets SIGTERM.
CMD ["python3", "digits.py"]
