// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Collects the first problem of a message while it is decoded, with the path of the field
// ("hello.lanes[3].layout[7].name"). Decoding continues after a problem, with values that are never
// used, so that decoders are plain translations.
//
// Thread contract: one thread.

#ifndef BASIN_PROTO_WIRE_CHECKER_H_
#define BASIN_PROTO_WIRE_CHECKER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::wire {

class Checker {
 public:
  // Names the part of the message that is decoded while it lives. REQUIRES: `field` outlives it.
  class Scope {
   public:
    Scope(Checker& checker, const char* field, ptrdiff_t index = -1) : checker_(checker) {
      checker_.path_.push_back({field, index});
    }
    ~Scope() { checker_.path_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Checker& checker_;
  };

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Records a problem of `field` of the current scope, unless there was one before.
  void Fail(const char* field, std::string_view problem);

  // Each of the following returns the value it was given, or fails.
  std::string Name(const char* field, const std::string& name) {
    return Obeying(field, name, CheckName);
  }
  std::string Worker(const char* field, const std::string& id) {
    return Obeying(field, id, CheckWorkerId);
  }
  std::string Job(const char* field, const std::string& name) {
    return Obeying(field, name, CheckJobName);
  }
  std::string Run(const char* field, const std::string& id) {
    return Obeying(field, id, CheckRunId);
  }
  template <typename T>
  T Required(const char* field, T value) {
    if (value == T{}) Fail(field, "is required");
    return value;
  }
  template <typename T>
  T AtMost(const char* field, T value, std::common_type_t<T> bound) {
    if (value > bound) FailAbove(field, value, bound);
    return value;
  }
  double Finite(const char* field, double value) {
    if (!std::isfinite(value)) Fail(field, "is not finite");
    return value;
  }
  // May be infinite.
  double NotNegative(const char* field, double value) {
    if (!(value >= 0)) Fail(field, "is negative, or not a number");
    return value;
  }
  template <typename T>
  T Equal(const char* field, T value, std::common_type_t<T> expected) {
    if (value != expected) FailUnequal(field, value, expected);
    return value;
  }

  // An enum whose wire values are 1 to `last`, where 0 is "unspecified", less `shift`.
  template <typename E>
  E Enum(const char* field, int wire, int last, int shift) {
    if (wire >= 1 && wire <= last) return static_cast<E>(wire - shift);
    FailEnum(field, wire, last);
    return E{};
  }

  // Whether a list of `size` entries is within `bound`.
  bool Count(const char* field, size_t size, size_t bound) {
    if (size > bound) FailAbove(field, size, bound);
    return size <= bound;
  }

  // A list with more entries than its bound.
  void FailEntries(const char* field, uint64_t bound);

  // Fails when `name_of` gives the same name for two entries.
  template <typename List, typename NameOf>
  void Distinct(const char* field, const List& list, NameOf name_of) {
    std::unordered_set<std::string_view> seen;
    for (const auto& entry : list) {
      if (!seen.insert(name_of(entry)).second) {
        Fail(field, "names " + QuoteForError(name_of(entry)) + " twice");
        return;
      }
    }
  }

 private:
  struct Step {
    const char* field;
    ptrdiff_t index;
  };

  std::string Obeying(const char* field, const std::string& text,
                      absl::Status (*rule)(std::string_view));
  void FailAbove(const char* field, uint64_t value, uint64_t bound);
  void FailUnequal(const char* field, uint64_t value, uint64_t expected);
  void FailEnum(const char* field, int wire, int last);

  std::vector<Step> path_;
  absl::Status status_;
};

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_CHECKER_H_
