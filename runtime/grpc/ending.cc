// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/ending.h"

#include <dirent.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpc/grpc.h"

namespace basin {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(1);
constexpr char kThreads[] = "/proc/self/task";
// Takes gRPC down where its last object is destroyed on one of its own threads.
constexpr char kLastThread[] = "grpc_shutdown";

bool HasLastThread() {
  DIR* const threads = opendir(kThreads);
  if (threads == nullptr) return false;
  bool found = false;
  for (const dirent* thread = readdir(threads); thread != nullptr; thread = readdir(threads)) {
    std::string name;
    std::getline(std::ifstream(absl::StrCat(kThreads, "/", thread->d_name, "/comm")), name);
    found |= name == kLastThread;
  }
  closedir(threads);
  return found;
}

}  // namespace

bool IsGrpcInUse() { return grpc_is_initialized() != 0; }

void AwaitGrpcEnd(absl::Duration most) {
  // gRPC has no event for its end.
  const absl::Time latest = absl::Now() + most;
  while ((IsGrpcInUse() || HasLastThread()) && absl::Now() < latest) absl::SleepFor(kLook);
}

}  // namespace basin
