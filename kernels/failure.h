// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The errors of the kernels. They use the standard library only, so that a backend can be built on
// a machine with only a compiler and a device; the aggregator converts a Failure to its own status
// type.
//
// Thread contract: plain values.

#ifndef BASIN_KERNELS_FAILURE_H_
#define BASIN_KERNELS_FAILURE_H_

#include <string>
#include <utility>
#include <variant>

namespace basin::kernels {

enum class FailureCode {
  kInvalidArgument,  // The request contradicts the arithmetic contract; the sender must change it.
  kUnsupported,      // The request is well-formed, but no kernel implements it (fp8, today).
  kDevice,           // The backend's device failed: out of memory, launch or copy error.
};

// The reason why a call failed: a code for programs and a sentence for people.
struct Failure {
  FailureCode code;
  std::string message;
};

// Either a T or the Failure that prevented it.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Failure failure) : state_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }

  // REQUIRES: ok().
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }

  // REQUIRES: !ok().
  const Failure& failure() const { return std::get<Failure>(state_); }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FAILURE_H_
