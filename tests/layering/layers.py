# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The layers of Basin: the folders, libraries and headers that each folder may use.

Dependencies point one way, down the list; a folder belongs to the layer with the longest matching
path. Only this table decides the direction, and the tests beside it check
every include and every link line against it.
"""

from dataclasses import dataclass

# The folders whose code is layered. Tests may use everything.
PRODUCT_FOLDERS = (
    "protocol",
    "proto",
    "kernels",
    "runtime",
    "accelerator",
    "aggregator",
    "client",
)


@dataclass(frozen=True)
class Layer:
    """One layer. All paths and prefixes are relative to the repository root.

    uses:     folders whose headers it may include and whose targets it may link, besides its own
    headers:  prefixes of other libraries' headers
    links:    prefixes of other libraries' CMake targets
    messages: may see generated protobuf classes
    pure:     a function of its arguments: see pure_violation() in includes.py
    """

    folder: str
    uses: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    messages: bool = False
    pure: bool = False


_GRPC_HEADERS = ("grpc/", "grpcpp/", "google/protobuf/")
_GRPC_LINKS = ("gRPC::", "protobuf::")

LAYERS = (
    Layer("protocol", headers=("absl/",), links=("absl::",)),
    Layer("protocol/limits", uses=("protocol",), headers=("absl/",), links=("absl::",)),
    Layer("proto/basin", headers=_GRPC_HEADERS, links=_GRPC_LINKS, messages=True),
    Layer("proto/etcd", headers=_GRPC_HEADERS, links=_GRPC_LINKS, messages=True),
    Layer(
        "proto/wire",
        uses=("protocol", "proto"),
        headers=("absl/", "xxhash.h", "xxh_x86dispatch.h", "google/protobuf/"),
        links=("absl::", "xxHash::", "protobuf::"),
        messages=True,
    ),
    Layer(
        "proto/status",
        uses=("protocol",),
        headers=("absl/", *_GRPC_HEADERS),
        links=("absl::", *_GRPC_LINKS),
    ),
    Layer("proto", headers=_GRPC_HEADERS, links=_GRPC_LINKS, messages=True),
    # The runtime of CUDA may be loaded at run time.
    Layer(
        "kernels/cuda",
        uses=("protocol", "kernels"),
        headers=("cuda",),
        links=("CUDA::", "dl"),
    ),
    Layer(
        "kernels",
        uses=("protocol",),
        headers=("absl/", "hwy/"),
        links=("absl::", "hwy::", "xxHash::"),
    ),
    Layer(
        "runtime",
        uses=("protocol", "kernels"),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "runtime/frames",
        uses=("protocol", "proto/wire", "kernels", "runtime"),
        headers=("absl/",),
        links=("absl::",),
    ),
    Layer(
        "runtime/shared_memory",
        uses=("protocol", "kernels", "runtime"),
        headers=("absl/",),
        links=("absl::",),
    ),
    Layer(
        "runtime/grpc",
        uses=("protocol", "proto", "runtime"),
        headers=("absl/", *_GRPC_HEADERS),
        links=("absl::", *_GRPC_LINKS),
    ),
    # Without Abseil, so that the devices are built and tested where there is none. Shared memory of
    # devices is unmapped on a thread of its own, because that may hang.
    Layer(
        "accelerator/device",
        uses=("protocol", "kernels", "runtime"),
        headers=("cuda",),
        links=("Threads::",),
    ),
    Layer(
        "accelerator/transfer",
        uses=("protocol", "kernels", "runtime", "accelerator/device"),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "accelerator/node/core",
        uses=("protocol",),
        headers=("absl/",),
        links=("absl::",),
        pure=True,
    ),
    # NCCL has no headers or link lines here: it is loaded at run time.
    Layer(
        "accelerator/node/nccl",
        uses=(
            "protocol",
            "kernels",
            "runtime",
            "accelerator/device",
            "accelerator/transfer",
            "accelerator/node/core",
        ),
        headers=("absl/",),
        links=("absl::", "Threads::", "dl"),
    ),
    Layer(
        "accelerator/node/links",
        uses=("protocol", "proto", "runtime", "accelerator/node/core"),
        headers=("absl/",),
        links=("absl::",),
        messages=True,
    ),
    Layer(
        "accelerator/node/runner",
        uses=(
            "protocol",
            "kernels",
            "runtime",
            "accelerator/node/core",
            "accelerator/node/links",
            "accelerator/node/nccl",
        ),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "aggregator/core",
        uses=("protocol",),
        headers=("absl/",),
        links=("absl::",),
        pure=True,
    ),
    Layer(
        "aggregator/engine",
        uses=(
            "protocol",
            "protocol/limits",
            "kernels",
            "runtime",
            "accelerator/device",
            "accelerator/transfer",
            "aggregator/core",
            "aggregator/text",
        ),
        headers=("absl/", "xxhash.h"),
        links=("absl::", "xxHash::", "Threads::"),
    ),
    Layer(
        "aggregator/leadership/core",
        uses=("protocol",),
        headers=("absl/",),
        links=("absl::",),
        pure=True,
    ),
    Layer(
        "aggregator/leadership",
        uses=("aggregator/leadership/core", "protocol", "kernels", "runtime"),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer("aggregator/text", uses=("protocol/limits",), headers=("absl/",), links=("absl::",)),
    Layer(
        "aggregator/config",
        uses=(
            "protocol/limits",
            "runtime",
            "aggregator/text",
            "aggregator/core",
        ),
        headers=("absl/", "yaml.h", "nlohmann/"),
        links=("absl::", "libyaml::", "nlohmann_json::"),
    ),
    Layer(
        "aggregator/auth",
        uses=("protocol/limits", "runtime"),
        headers=("absl/", "openssl/"),
        links=("absl::", "OpenSSL::"),
    ),
    Layer(
        "aggregator/tls",
        uses=("runtime",),
        headers=("absl/", "openssl/"),
        links=("absl::", "OpenSSL::"),
    ),
    Layer(
        "aggregator/http",
        uses=("runtime", "aggregator/text", "aggregator/tls"),
        headers=("absl/", "event2/", "openssl/"),
        links=("absl::", "libevent::", "Threads::"),
    ),
    Layer(
        "aggregator/leadership/etcd",
        uses=(
            "proto/etcd",
            "runtime",
            "aggregator/leadership",
            "aggregator/leadership/core",
        ),
        headers=("absl/", "nlohmann/", *_GRPC_HEADERS),
        links=("absl::", "nlohmann_json::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "aggregator/leadership/kubernetes",
        uses=(
            "runtime",
            "aggregator/http",
            "aggregator/leadership",
            "aggregator/leadership/core",
            "aggregator/text",
        ),
        headers=("absl/", "nlohmann/"),
        links=("absl::", "nlohmann_json::"),
    ),
    Layer(
        "aggregator/telemetry",
        uses=(
            "protocol",
            "runtime",
            "aggregator/core",
            "aggregator/engine",
            "aggregator/config",
        ),
        headers=("absl/", "nlohmann/", "prometheus/"),
        links=("absl::", "nlohmann_json::", "prometheus-cpp::"),
    ),
    Layer(
        "aggregator/state",
        uses=(
            "protocol",
            "protocol/limits",
            "kernels",
            "aggregator/core",
            "aggregator/engine",
        ),
        headers=("absl/",),
        links=("absl::",),
    ),
    Layer(
        "aggregator/shard/wire",
        uses=("protocol", "proto", "aggregator/core", "aggregator/engine"),
        headers=("absl/", "google/protobuf/"),
        links=("absl::", "protobuf::"),
        messages=True,
    ),
    Layer(
        "aggregator/transport",
        uses=(
            "protocol",
            "proto",
            "runtime",
            "aggregator/auth",
            "aggregator/core",
            "aggregator/engine",
            "aggregator/shard/wire",
        ),
        headers=("absl/", "nlohmann/", *_GRPC_HEADERS),
        links=("absl::", "nlohmann_json::", "Threads::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "aggregator/shard",
        uses=(
            "protocol",
            "proto",
            "kernels",
            "runtime",
            "accelerator",
            "aggregator/auth",
            "aggregator/core",
            "aggregator/engine",
            "aggregator/shard/wire",
            "aggregator/transport",
            # The call to the coordinator is one as those of a worker.
            "client/transport",
        ),
        headers=("absl/", *_GRPC_HEADERS),
        links=("absl::", "Threads::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "aggregator/admin",
        uses=(
            "protocol",
            "proto",
            "runtime",
            "aggregator/auth",
            "aggregator/core",
            "aggregator/engine",
            "aggregator/telemetry",
            "aggregator/transport",  # The guards of a port.
        ),
        headers=("absl/", *_GRPC_HEADERS),
        links=("absl::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "aggregator/statusz",
        uses=(
            "protocol",
            "proto",
            "aggregator/admin",
            "aggregator/core",
            "aggregator/engine",
            "aggregator/telemetry",
        ),
        headers=("absl/",),
        links=("absl::",),
        messages=True,
    ),
    Layer(
        "aggregator/basind",
        uses=(
            "protocol/limits",
            "protocol",
            "proto/wire",
            "kernels",
            "runtime",
            "accelerator/device",
            "aggregator",
        ),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "aggregator/ctl",
        uses=(
            "protocol",
            "proto",
            "runtime",
            "aggregator/admin",
            "aggregator/auth",
            "aggregator/basind",
            "aggregator/config",
            "aggregator/core",
            "aggregator/text",
            "aggregator/tls",
            # For `basinctl bench`, whose workers are real ones.
            "client/core",
            "client/transport",
        ),
        headers=("absl/", "nlohmann/", *_GRPC_HEADERS),
        links=("absl::", "nlohmann_json::", "Threads::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "client/core",
        uses=("protocol",),
        headers=("absl/",),
        links=("absl::",),
        pure=True,
    ),
    Layer(
        "client/transport",
        uses=(
            "protocol",
            "protocol/limits",
            "proto/wire",
            "kernels",
            "runtime",
            "client/core",
        ),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "client/transport/grpc",
        uses=("protocol", "proto", "runtime", "client/core", "client/transport"),
        headers=("absl/", *_GRPC_HEADERS),
        links=("absl::", "Threads::", *_GRPC_LINKS),
        messages=True,
    ),
    Layer(
        "client/device",
        uses=(
            "protocol",
            "proto/wire",
            "kernels",
            "runtime",
            "accelerator",
            "client/core",
            "client/transport",
        ),
        headers=("absl/",),
        links=("absl::", "Threads::"),
    ),
    Layer(
        "client/c",
        uses=(
            "protocol",
            "protocol/limits",
            "proto/wire",
            "runtime",
            "accelerator",
            "client/core",
            "client/transport",
            "client/device",
        ),
        headers=("absl/",),
        links=("absl::",),
    ),
    Layer("client/cpp", uses=("client/c",)),
)


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it."""
    return path == folder or path.startswith(folder + "/")


def layer_of(path: str) -> Layer | None:
    """The layer that a file or folder belongs to; None outside the product or in no layer."""
    matching = [layer for layer in LAYERS if within(path, layer.folder)]
    return max(matching, key=lambda layer: len(layer.folder), default=None)


def may_use(user: Layer, path: str) -> bool:
    """Whether `user` may include the header, or link a target of the folder, at `path`."""
    used = layer_of(path)
    return used == user or (
        used is not None and any(within(used.folder, folder) for folder in user.uses)
    )
