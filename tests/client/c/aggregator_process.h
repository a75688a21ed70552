// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A real `basind` in a process of its own, on ports that the system chooses.
//
// Thread contract: one thread. Failure: a process that does not start, or logs nothing within a
// minute, fails the test.

#ifndef BASIN_TESTS_CLIENT_C_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_CLIENT_C_AGGREGATOR_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace basin {

class AggregatorProcess {
 public:
  // `program`: the path of basind. `address`: where to listen for workers.
  explicit AggregatorProcess(const std::string& program, const std::string& address = "127.0.0.1:0",
                             const std::vector<std::string>& flags = {});
  ~AggregatorProcess();
  AggregatorProcess(const AggregatorProcess&) = delete;
  AggregatorProcess& operator=(const AggregatorProcess&) = delete;

  // Where workers connect.
  const std::string& address() const { return address_; }
  // Sends it the signal and waits for its end, unless the signal does not end it.
  void Kill(int signal);

 private:
  void Start(const std::string& program, const std::string& address,
             const std::vector<std::string>& flags);

  pid_t process_ = -1;
  int output_ = -1;
  std::string address_;
};

}  // namespace basin

#endif  // BASIN_TESTS_CLIENT_C_AGGREGATOR_PROCESS_H_
