// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Applies the grants in force to the calls of all servers, counts what it refuses, and describes
// refusals: to the operator in full, to the peer no more than it needs.
//
// Without grants (auth.file is none) every call is allowed.
//
// Thread contract: safe from any thread.

#ifndef BASIN_AGGREGATOR_AUTH_GATEKEEPER_H_
#define BASIN_AGGREGATOR_AUTH_GATEKEEPER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "aggregator/auth/grants.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class Gatekeeper {
 public:
  // The grants in force from now on.
  void Replace(Grants grants);

  struct Ruling {
    absl::Status for_peer;     // OK: allowed. UNAUTHENTICATED or PERMISSION_DENIED.
    std::string for_operator;  // A sentence, when refused.
    // What refused calls of one kind have in common: the call, the reason and the grant. A peer
    // cannot make up kinds.
    std::string kind;
    std::optional<Grant> grant;  // The one that allowed or refused it; nothing if there is none.
  };

  // `who`: for the operator, such as "worker w of job j"; may be empty. Counts refusals.
  Ruling Check(const Credentials& credentials, Rpc rpc, std::string_view job,
               std::string_view who = "");

  // Whether the caller would be allowed; counts nothing. For filters, and for calls in progress.
  bool MayCall(const Credentials& credentials, Rpc rpc, std::string_view job) const;

  uint64_t refused(Decision reason) const { return refused_[static_cast<size_t>(reason)]; }

 private:
  std::shared_ptr<const Grants> grants() const;

  std::array<std::atomic<uint64_t>, kDecisions> refused_{};

  mutable Mutex mutex_;
  std::shared_ptr<const Grants> grants_ ABSL_GUARDED_BY(mutex_);  // Null: everything is allowed.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_AUTH_GATEKEEPER_H_
