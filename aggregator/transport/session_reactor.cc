// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/session_reactor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin::aggregator {

absl::Status SessionReactor::OnMessage(const grpc::ByteBuffer& message) {
  if (!session_.has_value()) {
    absl::Status admitted = registry_.Admit(*this, Rpc::kSession, "", "");
    if (!admitted.ok()) return admitted;
  }
  auto taken = reader_.Read(StringOf(message));
  if (!taken.ok()) {
    return absl::Status(
        taken.status().code(),
        absl::StrCat("A message of ", session_.has_value() ? who_ : "a session without a hello",
                     " was refused: ", taken.status().message()));
  }
  if (!taken->has_value()) return absl::OkStatus();
  ToAggregator& decoded = (*taken)->message;
  if (!session_.has_value()) {
    const auto* hello = std::get_if<Hello>(&decoded);
    if (hello == nullptr) {
      return absl::InvalidArgumentError(
          "A session began with a message other than Hello. Send a Hello first, and wait for the "
          "answer.");
    }
    job_ = hello->job;
    who_ = absl::StrCat("worker ", hello->worker, " of job ", hello->job);
    absl::Status admitted = registry_.Admit(*this, Rpc::kSession, job_, who_);
    if (!admitted.ok()) return admitted;
    session_ = registry_.Open(std::static_pointer_cast<SessionReactor>(shared_from_this()));
    // A revocation meanwhile may have missed it.
    admitted = registry_.Admit(*this, Rpc::kSession, job_, who_);
    if (!admitted.ok()) return admitted;
    ++counters().sessions;
    Introduced();
  }
  // The memory of the message until the engine has handled it.
  const uint64_t bytes = std::max((*taken)->bytes, (*taken)->expanded);
  Hold(bytes);
  Engine& engine = registry_.engine();
  engine.OnMessage(*session_, std::move(decoded), bytes);
  if ((*taken)->charge != nullptr) {
    // The loop takes one thing after the other: when it comes to this, it has dealt with the
    // message, even if the session is over by then.
    engine.Inspect([charge = std::move((*taken)->charge)](const Runner&, absl::Time) {});
  }
  return absl::OkStatus();
}

void SessionReactor::Over(const absl::Status& ended) {
  if (session_.has_value()) registry_.CloseSession(*session_, ended);
}

void SessionReactor::Count(const absl::Status& why) {
  if (absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why)) return;  // By the gatekeeper.
  ++counters().malformed_messages;
  registry_.ReportPeer(peer(), std::string(why.message()));
}

}  // namespace basin::aggregator
