// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/timeline/trace_event.h"

#include "absl/strings/str_cat.h"
#include "kernels/checksum.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin {
namespace {

// Whole numbers up to this one have a double of their own.
constexpr uint64_t kMostFlow = (uint64_t{1} << 53) - 1;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : PrintableText(text, kMaxTextBytes)) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace

void TraceArgs::AddKey(const char* key) {
  absl::StrAppend(&json_, json_.empty() ? "\"" : ",\"", key, "\":");
}

TraceArgs& TraceArgs::Add(const char* key, uint64_t number) {
  AddKey(key);
  absl::StrAppend(&json_, number);
  return *this;
}

TraceArgs& TraceArgs::Add(const char* key, const std::string& text) {
  AddKey(key);
  json_ += Quoted(text);
  return *this;
}

std::string ToJson(const TraceEvent& event) {
  std::string json = absl::StrCat("{\"ph\":\"", std::string(1, static_cast<char>(event.phase)),
                                  "\",\"name\":", Quoted(event.name), ",\"pid\":", event.process);
  if (event.track != 0) absl::StrAppend(&json, ",\"tid\":", event.track);
  if (event.phase != TracePhase::kMetadata) {
    absl::StrAppend(&json, ",\"cat\":\"basin\",\"ts\":", event.begin_us);
  }
  switch (event.phase) {
    case TracePhase::kSlice:
      absl::StrAppend(&json, ",\"dur\":", event.duration_us);
      break;
    case TracePhase::kInstant:
      json += ",\"s\":\"t\"";  // It belongs to its track alone.
      break;
    case TracePhase::kFlowBegin:
      absl::StrAppend(&json, ",\"id\":", event.flow);
      break;
    case TracePhase::kFlowStep:
    case TracePhase::kFlowEnd:
      // "bp": it belongs to the slice that contains it, not to the next one.
      absl::StrAppend(&json, ",\"id\":", event.flow, ",\"bp\":\"e\"");
      break;
    case TracePhase::kMetadata:
      break;
  }
  if (!event.args.empty()) absl::StrAppend(&json, ",\"args\":{", event.args.json(), "}");
  json.push_back('}');
  return json;
}

TraceEvent ProcessName(uint64_t process, const std::string& name) {
  TraceEvent event;
  event.phase = TracePhase::kMetadata;
  event.name = "process_name";
  event.process = process;
  event.args.Add("name", name);
  return event;
}

TraceEvent TrackName(uint64_t process, uint64_t track, const std::string& name) {
  TraceEvent event = ProcessName(process, name);
  event.name = "thread_name";
  event.track = track;
  return event;
}

uint64_t FlowOf(const std::string& job, const std::string& lane, uint64_t round,
                const std::string& worker) {
  // No name has a line break.
  const std::string identity = absl::StrCat(job, "\n", lane, "\n", round, "\n", worker);
  return kernels::ChecksumOf(identity.data(), identity.size()) & kMostFlow;
}

}  // namespace basin
