// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When each job has to be looked at again, the earliest first: an event of one job costs nothing
// for the others.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_DEADLINES_H_
#define BASIN_AGGREGATOR_CORE_DEADLINES_H_

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/event.h"

namespace basin::aggregator {

class Deadlines {
 public:
  void Set(JobId job, absl::Time due) {
    Remove(job);
    by_job_.emplace(job, due);
    by_time_.emplace(due, job);
  }
  // Brings the job's deadline forward to `due` if it is later.
  void Hurry(JobId job, absl::Time due) {
    const auto it = by_job_.find(job);
    if (it == by_job_.end() || due < it->second) Set(job, due);
  }
  void Remove(JobId job) {
    const auto it = by_job_.find(job);
    if (it == by_job_.end()) return;
    by_time_.erase({it->second, job});
    by_job_.erase(it);
  }

  absl::Time Next() const {
    return by_time_.empty() ? absl::InfiniteFuture() : by_time_.begin()->first;
  }
  std::vector<JobId> DueAt(absl::Time now) const {
    std::vector<JobId> due;
    for (const auto& [time, job] : by_time_) {
      if (time > now) break;
      due.push_back(job);
    }
    return due;
  }

  auto Fields() const { return std::tie(by_job_); }

 private:
  std::map<JobId, absl::Time> by_job_;
  std::set<std::pair<absl::Time, JobId>> by_time_;  // Derived from by_job_.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_DEADLINES_H_
