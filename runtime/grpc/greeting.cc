// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/greeting.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "protocol/version.h"

namespace basin {
namespace {

constexpr char kVersionMetadata[] = "basin-version";
constexpr char kProtocolMetadata[] = "basin-protocol-version";
constexpr char kTimeMetadata[] = "basin-time-unix-ns";
constexpr char kLocalMetadata[] = "basin-local";
constexpr char kJobMetadata[] = "basin-job";

// Empty if there is none.
std::string ValueOf(const grpc::ClientContext& context, const char* name) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find(name);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

void AskAbout(const std::string& job, grpc::ClientContext& context) {
  context.AddMetadata(kJobMetadata, job);
}

std::string JobAskedIn(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kJobMetadata);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

void Greet(grpc::ServerContextBase& context, const std::string& version, const std::string& local) {
  if (const std::string job = JobAskedIn(context); !job.empty()) {
    context.AddInitialMetadata(kJobMetadata, job);
  }
  if (!local.empty()) context.AddInitialMetadata(kLocalMetadata, local);
  context.AddInitialMetadata(kVersionMetadata, version);
  context.AddInitialMetadata(kProtocolMetadata, absl::StrCat(kProtocolVersion));
  context.AddInitialMetadata(kTimeMetadata, absl::StrCat(absl::ToUnixNanos(absl::Now())));
}

std::optional<Greeting> GreetingIn(const grpc::ClientContext& context) {
  Greeting greeting;
  int64_t nanoseconds = 0;
  if (!absl::SimpleAtoi(ValueOf(context, kProtocolMetadata), &greeting.protocol_version) ||
      !absl::SimpleAtoi(ValueOf(context, kTimeMetadata), &nanoseconds)) {
    return std::nullopt;
  }
  greeting.version = PrintableText(ValueOf(context, kVersionMetadata), kMaxTextBytes);
  greeting.time = absl::FromUnixNanos(nanoseconds);
  greeting.job = ValueOf(context, kJobMetadata);
  return greeting;
}

std::string LocalSocketIn(const grpc::ClientContext& context) {
  return ValueOf(context, kLocalMetadata);
}

}  // namespace basin
