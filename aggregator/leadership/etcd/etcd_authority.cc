// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/etcd/etcd_authority.h"

#include <cstdint>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/leadership/etcd/etcd_value.h"

namespace basin::aggregator {
namespace {

std::string NewNonce() {
  std::random_device random;
  return absl::StrCat(absl::Hex(uint64_t{random()} << 32 | random(), absl::kZeroPad16));
}

// The revision alone may come again, when etcd's data has been restored.
std::string VersionFor(int64_t revision, const std::string& nonce) {
  return absl::StrCat(revision, ":", nonce);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdAuthority>> EtcdAuthority::Open(const EtcdPlace& place,
                                                                   const std::string& key) {
  if (absl::Status usable = CheckEtcdPlace(place); !usable.ok()) return usable;
  return std::unique_ptr<EtcdAuthority>(new EtcdAuthority(place, key));
}

EtcdAuthority::EtcdAuthority(const EtcdPlace& place, const std::string& key)
    : name_(absl::StrCat("the key ", key, " in the etcd of standby.authority")),
      client_(place, key) {}

absl::StatusOr<RecordState> EtcdAuthority::Read(absl::Duration timeout) {
  absl::StatusOr<std::optional<EtcdValue>> found = client_.Get(timeout);
  if (!found.ok()) return Trouble(found.status());
  RecordState state;
  if (found->has_value()) {
    absl::StatusOr<EtcdRecord> record = RecordInValue((*found)->value);
    if (!record.ok()) return Trouble(record.status());
    state.version = VersionFor((*found)->revision, record->nonce);
    state.record = std::move(record->record);
  }
  seen_ = *std::move(found);
  version_ = state.version;
  return state;
}

absl::StatusOr<std::string> EtcdAuthority::Write(const LeaderRecord& record,
                                                 const std::string& version,
                                                 absl::Duration timeout) {
  const absl::Status changed = absl::AbortedError("The record of the leader has changed.");
  // What was read last was not this version.
  if (version != version_) return changed;
  const std::string nonce = NewNonce();
  absl::StatusOr<std::optional<EtcdValue>> written = client_.Replace(
      seen_, ValueOf(record, nonce, seen_.has_value() ? seen_->value : "", absl::Now()), timeout);
  if (!written.ok()) return Trouble(written.status());
  if (!written->has_value()) return changed;
  seen_ = *std::move(written);
  version_ = VersionFor(seen_->revision, nonce);
  return version_;
}

absl::Status EtcdAuthority::Trouble(const absl::Status& why) const {
  return absl::UnavailableError(absl::StrCat(name_, " cannot be used: ", why.message()));
}

}  // namespace basin::aggregator
