// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about states.

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/c/error.h"
#include "client/c/worker.h"

namespace {

using basin::c::Check;
using basin::c::Return;
using basin::c::Text;
using basin::client::State;

// What a function of the trainer has returned.
absl::Status StatusOf(const char* failure) {
  return failure == nullptr ? absl::OkStatus() : absl::FailedPreconditionError(failure);
}

}  // namespace

extern "C" {

basin_code basin_state_register(basin_worker* worker, const char* name, const char* model,
                                basin_state_get get, basin_state_set set, void* user,
                                basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && (get == nullptr || set == nullptr)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("State \"", Text(name), "\" has no function to get or to set it. Pass both."));
  }
  if (!status.ok()) return Return(status, error);
  State state;
  state.model = Text(model);
  state.get = [get, user]() -> absl::StatusOr<std::string_view> {
    const void* data = nullptr;
    size_t bytes = 0;
    if (absl::Status got = StatusOf(get(user, &data, &bytes)); !got.ok()) return got;
    if (data == nullptr && bytes > 0) {
      return absl::InvalidArgumentError("its function has stored no address");
    }
    return std::string_view(static_cast<const char*>(data), bytes);
  };
  state.set = [set, user](std::string_view content) {
    return StatusOf(set(user, content.data(), content.size()));
  };
  return Return(worker->states().Register(Text(name), std::move(state)), error);
}

basin_code basin_state_register_memory(basin_worker* worker, const char* name, void* memory,
                                       size_t bytes, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && memory == nullptr) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "The memory of state \"", Text(name), "\" is null. Pass the address of its content."));
  }
  if (!status.ok()) return Return(status, error);
  State state;
  state.model = absl::StrCat(bytes, " bytes");
  state.get = [memory, bytes] { return std::string_view(static_cast<const char*>(memory), bytes); };
  state.set = [memory, bytes](std::string_view content) -> absl::Status {
    if (content.size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("it has ", content.size(), " bytes"));
    }
    std::memcpy(memory, content.data(), bytes);
    return absl::OkStatus();
  };
  return Return(worker->states().Register(Text(name), std::move(state)), error);
}

}  // extern "C"
