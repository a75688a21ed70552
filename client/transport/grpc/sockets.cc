// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/sockets.h"

#include <sys/socket.h>

#include <functional>
#include <utility>

#include "client/transport/grpc/held_sockets.h"
#include "grpc/support/sync.h"

// gRPC takes a socket mutator through its public API (ChannelArguments::SetSocketMutator), and
// calls it with every socket that it creates, but installs no header that declares it. These two
// declarations match gRPC since 1.37; the tests of this folder fail if they do not.
// NOLINTBEGIN(readability-identifier-naming): gRPC's names.
struct grpc_mutate_socket_info;
struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  bool (*mutate_fd_2)(const grpc_mutate_socket_info* info, grpc_socket_mutator* mutator);
};
struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};
// NOLINTEND(readability-identifier-naming)

namespace basin::client {
namespace {

// Enough for every address of a name; further sockets of a channel are not shut down.
constexpr size_t kMaxSockets = 64;

struct Watcher {
  grpc_socket_mutator base;  // First, so that gRPC's pointer is also ours.
  std::shared_ptr<Sockets> sockets;
};

Watcher* WatcherOf(grpc_socket_mutator* mutator) { return reinterpret_cast<Watcher*>(mutator); }

bool OnSocket(int descriptor, grpc_socket_mutator* mutator) {
  WatcherOf(mutator)->sockets->Add(descriptor);
  return true;
}

int Compare(grpc_socket_mutator* a, grpc_socket_mutator* b) {
  if (a == b) return 0;
  return std::less<>()(a, b) ? -1 : 1;
}

void Destroy(grpc_socket_mutator* mutator) { delete WatcherOf(mutator); }

constexpr grpc_socket_mutator_vtable kWatch = {OnSocket, Compare, Destroy, nullptr};

}  // namespace

Sockets::~Sockets() {
  MutexLock lock(mutex_);
  for (const int descriptor : descriptors_) ReleaseSocket(descriptor);
}

void Sockets::Watch(const std::shared_ptr<Sockets>& sockets, grpc::ChannelArguments& arguments) {
  auto* watcher = new Watcher{{&kWatch, {}}, sockets};
  gpr_ref_init(&watcher->base.refcount, 1);
  arguments.SetSocketMutator(&watcher->base);  // Takes the reference.
}

void Sockets::Cut() {
  MutexLock lock(mutex_);
  cut_ = true;
  for (const int descriptor : descriptors_) shutdown(descriptor, SHUT_RDWR);
}

void Sockets::Add(int descriptor) {
  MutexLock lock(mutex_);
  if (descriptors_.size() >= kMaxSockets) return;
  const int own = HoldSocket(descriptor);
  if (own < 0) return;
  descriptors_.push_back(own);
  // It is not connected yet; it may be in a moment, and then stays so without a reader.
  if (cut_) shutdown(own, SHUT_RDWR);
}

}  // namespace basin::client
