// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Keeps protobuf from writing a line to stderr for every string that is not UTF-8, while hostile
// inputs are fed to it by the thousand. Protobuf logs through Abseil from 22 on; there it does
// nothing.
//
// Thread contract: one at a time in a process.

#ifndef BASIN_TESTS_PROTO_QUIET_PROTOBUF_H_
#define BASIN_TESTS_PROTO_QUIET_PROTOBUF_H_

#include "google/protobuf/stubs/common.h"

#if GOOGLE_PROTOBUF_VERSION < 4022000
#include "google/protobuf/stubs/logging.h"
#endif

namespace basin::testing {

class QuietProtobuf {
 public:
#if GOOGLE_PROTOBUF_VERSION < 4022000
  QuietProtobuf() : before_(google::protobuf::SetLogHandler(nullptr)) {}
  ~QuietProtobuf() { google::protobuf::SetLogHandler(before_); }

 private:
  google::protobuf::LogHandler* before_;
#else
  QuietProtobuf() {}
#endif
};

}  // namespace basin::testing

#endif  // BASIN_TESTS_PROTO_QUIET_PROTOBUF_H_
