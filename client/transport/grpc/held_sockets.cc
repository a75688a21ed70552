// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/held_sockets.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "runtime/mutex.h"

namespace basin::client {
namespace {

struct Held {
  Mutex mutex;
  // gRPC's descriptor by ours. gRPC may have closed its own, and the number may be another file's.
  std::map<int, int> sockets ABSL_GUARDED_BY(mutex);
};

Held& OfProcess();

bool IsSameSocket(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && S_ISSOCK(of_a.st_mode) &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Nobody may change the descriptors while they are copied into the fork.
void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { OfProcess().mutex.Lock(); }

void AfterForkInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { OfProcess().mutex.Unlock(); }

// Only this thread exists. The numbers stay in use, so that what gRPC does to them later does
// nothing to a file that the fork has opened.
void AfterForkInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Held& held = OfProcess();
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const auto replace = [nothing](int descriptor) {
    if (nothing < 0 || dup3(nothing, descriptor, O_CLOEXEC) < 0) close(descriptor);
  };
  for (const auto& [ours, theirs] : held.sockets) {
    if (IsSameSocket(ours, theirs)) replace(theirs);
    replace(ours);
  }
  if (nothing >= 0) close(nothing);
  held.sockets.clear();  // Their numbers may be those of other files when this process forks.
  held.mutex.Unlock();
}

// It is never destroyed, because a process may be forked while this one exits.
Held& OfProcess() {
  static Held& held = []() -> Held& {
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    return *new Held;
  }();
  return held;
}

}  // namespace

int HoldSocket(int descriptor) {
  Held& held = OfProcess();
  MutexLock lock(held.mutex);
  const int ours = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (ours >= 0) held.sockets[ours] = descriptor;
  return ours;
}

void ReleaseSocket(int descriptor) {
  Held& held = OfProcess();
  MutexLock lock(held.mutex);
  held.sockets.erase(descriptor);
  close(descriptor);
}

}  // namespace basin::client
