// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/shard_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/shard/wire/codec.h"
#include "proto/wire/status_detail.h"
#include "protocol/version.h"
#include "runtime/grpc/byte_buffer.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

absl::Status CheckVersions(const ShardHello& hello) {
  if (hello.protocol_version == kProtocolVersion && hello.contract_version == kContractVersion) {
    return absl::OkStatus();
  }
  return wire::ToStatus(
      Error{ErrorCode::kVersionMismatch,
            absl::StrCat("Shard ", hello.name, " at ", hello.endpoint, " speaks protocol ",
                         hello.protocol_version, " with arithmetic ", hello.contract_version,
                         "; this coordinator speaks protocol ", kProtocolVersion,
                         " with arithmetic ", kContractVersion, ". Install matching versions.")});
}

}  // namespace

// ---- the shards that are connected

absl::StatusOr<ShardId> ShardPeers::Open(const std::shared_ptr<ShardReactor>& reactor,
                                         const ShardHello& hello) {
  while (true) {
    std::shared_ptr<ShardReactor> before;
    ShardId former = 0;
    {
      MutexLock lock(mutex_);
      for (const auto& [shard, peer] : peers_) {
        if (peer.hello.name != hello.name) continue;
        if (peer.hello.endpoint != hello.endpoint) {
          return wire::ToStatus(
              Error{ErrorCode::kFailedPrecondition,
                    absl::StrCat("Shard ", hello.name, " at ", hello.endpoint,
                                 " is refused, because a shard with this name is connected at ",
                                 peer.hello.endpoint, ". Give each shard a name of its own.")});
        }
        former = shard;
        before = peer.reactor;
      }
      if (before == nullptr) {
        const ShardId shard = engine_.OpenShard(hello);
        peers_[shard] = {hello, reactor};
        return shard;
      }
    }
    Close(former, absl::UnavailableError("It has connected again."));
    before->Close(absl::UnavailableError("A later connection of this shard took its place."),
                  StreamReactor::Rest::kDrop);
  }
}

void ShardPeers::Close(ShardId shard, const absl::Status& why) {
  if (Take(shard) == nullptr) return;
  engine_.CloseShard(shard, why.ok() ? "Its connection ended." : std::string(why.message()));
}

std::shared_ptr<ShardReactor> ShardPeers::Take(ShardId shard) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(shard);
  if (found == peers_.end()) return nullptr;
  std::shared_ptr<ShardReactor> reactor = std::move(found->second.reactor);
  peers_.erase(found);
  return reactor;
}

std::shared_ptr<ShardReactor> ShardPeers::Find(ShardId shard) const {
  MutexLock lock(mutex_);
  const auto found = peers_.find(shard);
  return found == peers_.end() ? nullptr : found->second.reactor;
}

std::vector<std::shared_ptr<ShardReactor>> ShardPeers::All() const {
  std::vector<std::shared_ptr<ShardReactor>> all;
  MutexLock lock(mutex_);
  for (const auto& [shard, peer] : peers_) all.push_back(peer.reactor);
  return all;
}

void ShardPeers::EndRevoked(const Gatekeeper& gatekeeper) {
  for (const auto& reactor : All()) {
    if (gatekeeper.MayCall(reactor->credentials(), Rpc::kShard, "")) continue;
    reactor->Close(absl::UnauthenticatedError(
                       "The token or certificate of this shard was revoked. Ask the operator of "
                       "the aggregator for a valid one."),
                   StreamReactor::Rest::kDrop);
  }
}

void ShardPeers::EndAll(const absl::Status& why) {
  for (const auto& reactor : All()) reactor->Close(why, StreamReactor::Rest::kDrop);
}

// ---- the stream of one

void ShardReactor::Send(const ToShard& message) {
  absl::StatusOr<std::vector<std::string>> encoded = Encode(message);
  if (!encoded.ok()) {
    ++counters().unsendable_messages;
    return Close(encoded.status(), Rest::kDrop);
  }
  for (std::string& one : *encoded) Write(BufferOf(std::move(one), counters().message_memory));
}

absl::Status ShardReactor::OnMessage(const grpc::ByteBuffer& message) {
  if (!shard_.has_value()) {
    absl::Status admitted = registry_.Admit(*this, Rpc::kShard, "", who_);
    if (!admitted.ok()) return admitted;
  }
  const std::string bytes = StringOf(message);
  absl::StatusOr<FromShard> taken = DecodeFromShard(bytes);
  if (!taken.ok()) {
    return absl::Status(
        taken.status().code(),
        absl::StrCat("A message of ", shard_.has_value() ? who_ : "a shard without a hello",
                     " was refused: ", taken.status().message()));
  }
  if (const auto* hello = std::get_if<ShardHello>(&*taken)) return OnHello(*hello);
  if (!shard_.has_value()) {
    return absl::InvalidArgumentError(
        "A shard began with a message other than its hello. Send ShardHello first, and wait for "
        "the answer.");
  }
  Hold(bytes.size());
  peers_.engine().OnShardEvents(*shard_, std::get<std::vector<ShardEvent>>(*std::move(taken)),
                                bytes.size());
  return absl::OkStatus();
}

absl::Status ShardReactor::OnHello(const ShardHello& hello) {
  if (shard_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("A second hello of ", who_, "."));
  }
  who_ = absl::StrCat("shard ", hello.name, " at ", hello.endpoint);
  if (absl::Status versions = CheckVersions(hello); !versions.ok()) return versions;
  const absl::StatusOr<ShardId> shard =
      peers_.Open(std::static_pointer_cast<ShardReactor>(shared_from_this()), hello);
  if (!shard.ok()) return shard.status();
  shard_ = *shard;
  Introduced();
  return absl::OkStatus();
}

void ShardReactor::Over(const absl::Status& ended) {
  if (shard_.has_value()) peers_.Close(*shard_, ended);
}

void ShardReactor::Count(const absl::Status& why) {
  if (absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why)) return;  // By the gatekeeper.
  if (absl::IsUnavailable(why)) return;  // It is not the peer's mistake.
  const bool refused = absl::IsFailedPrecondition(why);
  if (!refused) ++counters().malformed_messages;
  if (refused && wire::ToError(why).code == ErrorCode::kVersionMismatch) {
    ++counters().version_mismatches;
  }
  registry_.ReportPeer(peer(), std::string(why.message()));
}

}  // namespace basin::aggregator
