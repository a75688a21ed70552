// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/kubernetes/lease.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAddress[] = "basin/address";
constexpr char kDeployment[] = "basin/deployment";

// Null if the value is no object, or does not have the key.
const Json* FieldOf(const Json* value, const char* key) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const auto found = value->find(key);
  return found == value->end() ? nullptr : &*found;
}

std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// Negative: it is no number.
int64_t NumberOf(const Json* value) {
  return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : -1;
}

// The field, which is an object afterwards.
Json& ObjectIn(Json& value, const char* key) {
  Json& field = value[key];
  if (!field.is_object()) field = Json::object();
  return field;
}

std::string MicroTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

absl::Status Wrong(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("its answer is no Lease: ", what));
}

}  // namespace

absl::StatusOr<RecordState> StateInLease(const std::string& text) {
  const Json lease = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!lease.is_object()) return Wrong("it is no JSON object");
  const Json* const metadata = FieldOf(&lease, "metadata");
  RecordState state;
  state.version = TextOf(FieldOf(metadata, "resourceVersion"));
  if (state.version.empty()) return Wrong("it has no resourceVersion");
  const Json* const spec = FieldOf(&lease, "spec");
  const int64_t transitions = NumberOf(FieldOf(spec, "leaseTransitions"));
  if (transitions < 0) return state;
  LeaderRecord record;
  record.fence = kFirstFence + static_cast<uint64_t>(transitions);
  record.holder = TextOf(FieldOf(spec, "holderIdentity"));
  record.address = TextOf(FieldOf(FieldOf(metadata, "annotations"), kAddress));
  record.deployment = TextOf(FieldOf(FieldOf(metadata, "annotations"), kDeployment));
  record.lease =
      absl::Seconds(std::max(NumberOf(FieldOf(spec, "leaseDurationSeconds")), int64_t{0}));
  state.record = std::move(record);
  return state;
}

absl::StatusOr<std::string> LeaseWith(const LeaderRecord& record, const std::string& version,
                                      const std::string& text, absl::Time now) {
  Json lease = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!lease.is_object()) return Wrong("it is no JSON object");
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  if (record.fence < kFirstFence || record.fence - kFirstFence > kMost) {
    return absl::UnavailableError(
        absl::StrCat("the number of the lead, ", record.fence,
                     ", is not one of the years 2020 to 2087; set the clock of this machine"));
  }
  Json& metadata = ObjectIn(lease, "metadata");
  // Without them, the server leaves them as they are.
  metadata.erase("managedFields");
  if (!version.empty()) metadata["resourceVersion"] = version;
  Json& annotations = ObjectIn(metadata, "annotations");
  annotations[kAddress] = record.address;
  annotations.erase(kDeployment);
  if (!record.deployment.empty()) annotations[kDeployment] = record.deployment;
  Json& spec = ObjectIn(lease, "spec");
  const std::string time = MicroTime(now);
  const bool changes = TextOf(FieldOf(&spec, "holderIdentity")) != record.holder;
  if (changes || FieldOf(&spec, "acquireTime") == nullptr) spec["acquireTime"] = time;
  spec["renewTime"] = time;
  spec["holderIdentity"] = record.holder;
  spec["leaseTransitions"] = record.fence - kFirstFence;
  // Rounded up; at least 1, as the server demands.
  spec["leaseDurationSeconds"] =
      std::max<int64_t>(absl::ToInt64Seconds(absl::Ceil(record.lease, absl::Seconds(1))), 1);
  return lease.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string NewLease(const std::string& space, const std::string& name) {
  const Json lease = {{"apiVersion", "coordination.k8s.io/v1"},
                      {"kind", "Lease"},
                      {"metadata", {{"name", name}, {"namespace", space}}}};
  return lease.dump();
}

}  // namespace basin::aggregator
