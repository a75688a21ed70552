// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An etcd of one member, as a process with its data in a folder that is removed at the end.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_REAL_ETCD_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_REAL_ETCD_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "aggregator/leadership/etcd/etcd_client.h"

namespace basin::aggregator {

class RealEtcd {
 public:
  // Starts it, and waits until it answers.
  RealEtcd();
  ~RealEtcd();
  RealEtcd(const RealEtcd&) = delete;
  RealEtcd& operator=(const RealEtcd&) = delete;

  // Why there is none on this machine; empty: there is.
  const std::string& why_not() const { return why_not_; }

  EtcdPlace place() const;
  void Kill();
  // After Kill: with the data that it had.
  void Start();
  void Delete(const std::string& key);

 private:
  bool Answers() const;

  std::string program_;
  std::string why_not_;
  std::string folder_;
  uint16_t port_ = 0;       // For clients,
  uint16_t peer_port_ = 0;  // and for the members that it does not have.
  pid_t process_ = -1;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_ETCD_REAL_ETCD_H_
