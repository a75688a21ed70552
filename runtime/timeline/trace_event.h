// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Events of a trace in the JSON format of Chrome's trace viewer, which ui.perfetto.dev opens. A
// trace is an array of events, one on each line; the array need not be closed, so that the trace of
// a process that was killed can be read.
//
// Perfetto finds a thread's name by its `tid` alone, so the tracks of all processes of one file
// need different numbers. Times are microseconds as whole numbers, because a double holds no finer
// ones since 1970.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_RUNTIME_TIMELINE_TRACE_EVENT_H_
#define BASIN_RUNTIME_TIMELINE_TRACE_EVENT_H_

#include <cstdint>
#include <string>

namespace basin {

// The values of `ph`.
enum class TracePhase : char {
  kSlice = 'X',
  kInstant = 'i',
  // An arrow between slices; each event belongs to the slice of its track that contains its time.
  kFlowBegin = 's',
  kFlowStep = 't',
  kFlowEnd = 'f',
  kMetadata = 'M',
};

// The arguments of an event, in the order in which they were added.
class TraceArgs {
 public:
  TraceArgs& Add(const char* key, uint64_t number);
  // Characters that cannot be shown become '?'.
  TraceArgs& Add(const char* key, const std::string& text);

  bool empty() const { return json_.empty(); }
  const std::string& json() const { return json_; }  // Without braces.

 private:
  void AddKey(const char* key);

  std::string json_;
};

struct TraceEvent {
  TracePhase phase = TracePhase::kSlice;
  std::string name;
  uint64_t process = 0;
  uint64_t track = 0;       // 0: the process as a whole.
  int64_t begin_us = 0;     // Since 1970.
  int64_t duration_us = 0;  // A slice has one.
  uint64_t flow = 0;        // An arrow has one.
  TraceArgs args;
};

// The event as one line, without its end.
std::string ToJson(const TraceEvent& event);

// Names of processes and tracks; `name`: what is shown.
TraceEvent ProcessName(uint64_t process, const std::string& name);
TraceEvent TrackName(uint64_t process, uint64_t track, const std::string& name);

// All arrows have one name, because Perfetto joins those that agree in name and number.
inline constexpr char kFlowName[] = "contribution";

// The number of the arrow from a worker's push through the aggregator to the worker's result: the
// same in all traces. It fits the whole numbers of a double.
uint64_t FlowOf(const std::string& job, const std::string& lane, uint64_t round,
                const std::string& worker);

}  // namespace basin

#endif  // BASIN_RUNTIME_TIMELINE_TRACE_EVENT_H_
