// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/etcd/etcd_value.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

using Object = nlohmann::ordered_json;

constexpr char kFormat[] = "basin-leader 1";
constexpr char kDeployment[] = "deployment";

// Longer values are not shown in errors.
constexpr size_t kMostShown = 60;

// Whether the object has this text, or this number that is not negative.
bool Take(const Object& object, const char* key, std::string& text) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return false;
  text = found->get<std::string>();
  return true;
}
bool Take(const Object& object, const char* key, uint64_t& number) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  number = found->get<uint64_t>();
  return true;
}

absl::Status Foreign(const std::string& value) {
  const std::string start = value.size() > kMostShown ? value.substr(0, kMostShown) + "..." : value;
  // As a text of JSON, so that nothing in it reaches a terminal.
  const std::string shown = Object(start).dump(-1, ' ', true, Object::error_handler_t::replace);
  return absl::UnavailableError(absl::StrCat(
      "its value ", shown, " is no record of a leader (", kFormat,
      "), so something else uses this key. Give standby.authority of this deployment a "
      "key of its own"));
}

}  // namespace

absl::StatusOr<EtcdRecord> RecordInValue(const std::string& value) {
  const Object object = Object::parse(value, nullptr, /*allow_exceptions=*/false);
  EtcdRecord found;
  std::string format;
  uint64_t lease = 0;
  const bool good = object.is_object() && Take(object, "format", format) && format == kFormat &&
                    Take(object, "holder", found.record.holder) &&
                    Take(object, "address", found.record.address) &&
                    Take(object, "fence", found.record.fence) && Take(object, "lease_ns", lease) &&
                    lease <= static_cast<uint64_t>(INT64_MAX) &&
                    Take(object, "acquired", found.acquired) && Take(object, "nonce", found.nonce);
  if (!good) return Foreign(value);
  Take(object, kDeployment, found.record.deployment);
  found.record.lease = absl::Nanoseconds(static_cast<int64_t>(lease));
  return found;
}

std::string ValueOf(const LeaderRecord& record, const std::string& nonce, const std::string& before,
                    absl::Time now) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone());
  const absl::StatusOr<EtcdRecord> replaced = RecordInValue(before);
  const bool renews = replaced.ok() && replaced->record.holder == record.holder;
  Object object = {
      {"format", kFormat},
      {"holder", record.holder},
      {"address", record.address},
      {"fence", record.fence},
      {"lease_ns", static_cast<uint64_t>(absl::ToInt64Nanoseconds(record.lease))},
      {"acquired", renews ? replaced->acquired : time},
      {"renewed", time},
      {"nonce", nonce},
  };
  if (!record.deployment.empty()) object[kDeployment] = record.deployment;
  return object.dump(-1, ' ', false, Object::error_handler_t::replace);
}

}  // namespace basin::aggregator
