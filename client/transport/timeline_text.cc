// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/timeline_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace basin::client {
namespace {

// Room for a marker and the end of the array.
constexpr uint64_t kEndBytes = 512;
static_assert(kEndBytes * 4 <= TimelineText::kLeastBytes);

}  // namespace

bool TimelineText::Append(const TraceEvent& event, std::string& text) {
  // An event begins with the comma after the one before it, so that the text can end after any.
  std::string line = absl::StrCat(bytes_ == 0 ? "[\n" : ",\n", ToJson(event));
  if (bytes_ + line.size() + kEndBytes > max_bytes_) return false;
  bytes_ += line.size();
  text += line;
  return true;
}

TraceEvent TimelineText::Marker(const std::string& what, absl::Time now) const {
  return EventOf(JobMoment{now, what, ""}, process_);
}

std::string TimelineText::Begin() {
  std::string text;
  Append(ProcessName(process_.number,
                     absl::StrCat("worker ", process_.worker, " of job ", process_.job)),
         text);
  Append(TrackName(process_.number, kConnectionTrack, "connection"), text);
  return text;
}

std::string TimelineText::Next(const Timeline::Batch& batch, absl::Time now) {
  std::string text;
  std::vector<TraceEvent> events;
  if (batch.dropped > 0) {
    TraceEvent dropped = Marker("timeline dropped records", now);
    dropped.args.Add("records", batch.dropped);
    events.push_back(std::move(dropped));
  }
  for (const TimelineRecord& record : batch.records) {
    if (const auto* round = std::get_if<RoundMoments>(&record)) {
      if (named_.insert(round->handle).second) {
        events.push_back(TrackName(process_.number, TrackOf(round->handle), round->lane));
        events.push_back(TrackName(process_.number, ResultsTrackOf(round->handle),
                                   round->lane + ": results arrive"));
      }
      for (TraceEvent& event : EventsOf(*round, process_)) events.push_back(std::move(event));
    } else {
      events.push_back(EventOf(std::get<JobMoment>(record), process_));
    }
    // A round is written as a whole, or not at all.
    std::string piece;
    const uint64_t before = bytes_;
    for (const TraceEvent& event : events) {
      if (Append(event, piece)) continue;
      bytes_ = before;
      text += absl::StrCat(",\n", ToJson(Marker("timeline full", now)), "\n]\n");
      full_ = true;
      return text;
    }
    text += piece;
    events.clear();
  }
  for (const TraceEvent& event : events) Append(event, text);
  return text;
}

std::string TimelineText::End(absl::Time now) {
  return absl::StrCat(",\n", ToJson(Marker("timeline ends", now)), "\n]\n");
}

}  // namespace basin::client
