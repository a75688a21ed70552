// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The actions at the places that runtime/failpoint.h names, in the programs of the tests.
//
//   FAILPOINTS=verdict.told=hold@4,result.sent=kill
//
// (Not BASIN_..., which would be an option.) kill: the process ends as by kill -9. hold: this
// thread waits forever, the others continue. @n: only the n-th time that a thread reaches the
// place; the first time by default. Before that, either writes a log line to standard output.

#include "runtime/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>

namespace basin {
namespace {

struct Order {
  bool hold = false;
  std::atomic<long> left{1};
};

void Refuse(const std::string& text) {
  const std::string line = "FAILPOINTS: " + text + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  std::abort();
}

std::map<std::string, Order> Orders() {
  std::map<std::string, Order> orders;
  const char* given = std::getenv("FAILPOINTS");
  std::string rest = given == nullptr ? "" : given;
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(','));
    rest.erase(0, one.size() + 1);
    const size_t equals = one.find('=');
    const size_t at = one.find('@');
    const std::string action =
        one.substr(equals + 1, at == std::string::npos ? at : at - equals - 1);
    if (equals == std::string::npos || (action != "kill" && action != "hold")) Refuse(one);
    Order& order = orders[one.substr(0, equals)];
    order.hold = action == "hold";
    if (at != std::string::npos) order.left = std::atol(one.c_str() + at + 1);
    if (order.left <= 0) Refuse(one);
  }
  return orders;
}

}  // namespace

void ReachFailpoint(const char* name) {
  static std::map<std::string, Order>& orders = *new std::map<std::string, Order>(Orders());
  const auto found = orders.find(name);
  if (found == orders.end() || --found->second.left != 0) return;
  const std::string line = std::string("{\"event\":\"failpoint\",\"reason\":\"") + name + "\"}\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
  if (!found->second.hold) kill(getpid(), SIGKILL);
  while (true) pause();
}

}  // namespace basin
