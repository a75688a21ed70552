# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The image of the aggregator: basind and basinctl, for any builder of OCI images.
#
#   docker build -t basin .
#   docker run --read-only -p 29600:29600 basin serve --grpc-listen=0.0.0.0:29600 --grpc-insecure
#
# BUILD_BASE  the base of the build stage: Debian 12 or newer, with a shell and apt.
# BASE        the base of the image, with a glibc at least as new as that of BUILD_BASE. It needs
#             no shell and no package manager, because the build runs nothing in it.
# CUDA        ON for an image that can reduce on GPUs; BUILD_BASE then needs nvcc. The image has no
#             other library for it: CUDA's runtime is linked statically, and the driver comes from
#             the node.
# PREBUILT    a folder of the context that scripts/image-root.sh created; then nothing is compiled.

ARG BUILD_BASE=debian:bookworm
ARG BASE=debian:bookworm-slim

FROM ${BUILD_BASE} AS build
ARG CUDA=OFF
ARG PREBUILT=
WORKDIR /src
COPY . .
RUN if [ -n "$PREBUILT" ]; then \
      cp -a "$PREBUILT" /image; \
    else \
      scripts/setup.sh --build-only && \
      cmake --preset release -DBASIN_BUILD_TESTS=OFF -DBASIN_CUDA=$CUDA && \
      cmake --build --preset release --target basind basinctl && \
      scripts/image-root.sh /image build/release/aggregator/basind/basind \
        build/release/aggregator/ctl/basinctl; \
    fi

FROM ${BASE}
LABEL org.opencontainers.image.title="Basin" \
      org.opencontainers.image.description="The aggregator of Basin, which averages gradients of training jobs" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Basin Authors"
COPY --from=build /image /
# What NVIDIA's container runtime, where there is one, mounts of the driver.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Any number but 0. It must be a number, because Kubernetes cannot check whether a name is root.
USER 65532:65532
EXPOSE 29600 29601
ENTRYPOINT ["/usr/bin/basind"]
CMD ["serve"]
