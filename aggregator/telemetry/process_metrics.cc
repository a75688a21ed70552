// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The metrics that every Prometheus client has under the same names, read from /proc/self.

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "aggregator/telemetry/metrics.h"

namespace basin::aggregator {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Fields of /proc/self/stat after the name of the program, numbered from 3 in proc(5).
constexpr size_t kUserTicks = 14 - 3;
constexpr size_t kSystemTicks = 15 - 3;
constexpr size_t kStartTicks = 22 - 3;
constexpr size_t kVirtualBytes = 23 - 3;
constexpr size_t kResidentPages = 24 - 3;

std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // The name stands in brackets and may hold anything, brackets too.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > text.size()) return {};
  return absl::StrSplit(text.substr(name_end + 2), ' ');
}

double BootTime() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime") {
      file >> seconds;
      break;
    }
  }
  return seconds;
}

double OpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return 0;
  // One of them is the descriptor of the directory itself.
  return static_cast<double>(std::distance(files, std::filesystem::directory_iterator())) - 1;
}

MetricFamily SingleValue(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  ClientMetric metric;
  metric.counter.value = value;
  metric.gauge.value = value;
  family.metric.push_back(metric);
  return family;
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics() {
  const std::vector<std::string> fields = StatFields();
  if (fields.size() <= kResidentPages) return {};
  const auto number = [&](size_t field) {
    double value = 0;
    return absl::SimpleAtod(fields[field], &value) ? value : 0;
  };
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return {
      SingleValue("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
                  MetricType::Counter, (number(kUserTicks) + number(kSystemTicks)) / ticks),
      SingleValue("process_resident_memory_bytes", "Resident memory size in bytes.",
                  MetricType::Gauge,
                  number(kResidentPages) * static_cast<double>(sysconf(_SC_PAGESIZE))),
      SingleValue("process_virtual_memory_bytes", "Virtual memory size in bytes.",
                  MetricType::Gauge, number(kVirtualBytes)),
      SingleValue("process_start_time_seconds",
                  "Start time of the process since unix epoch in seconds.", MetricType::Gauge,
                  BootTime() + number(kStartTicks) / ticks),
      SingleValue("process_open_fds", "Number of open file descriptors.", MetricType::Gauge,
                  OpenFiles()),
      SingleValue("process_max_fds", "Maximum number of open file descriptors.", MetricType::Gauge,
                  static_cast<double>(files.rlim_cur)),
  };
}

}  // namespace basin::aggregator
