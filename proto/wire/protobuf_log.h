// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the lines go that protobuf prints to stderr by itself. Only they name the field whose
// string is not UTF-8: the decoder sees no message at all.
//
// Thread contract: made and destroyed while no other thread uses protobuf; one at a time in a
// process, because protobuf has one handler for the whole process.
//
// Each way of protobuf to log has a file of its own, which CMake chooses.

#ifndef BASIN_PROTO_WIRE_PROTOBUF_LOG_H_
#define BASIN_PROTO_WIRE_PROTOBUF_LOG_H_

#include <functional>
#include <string>

namespace basin::wire {

class ProtobufLog {
 public:
  // `take` is called from any thread, with the text and where in protobuf it comes from.
  explicit ProtobufLog(std::function<void(const std::string& text)> take);
  ~ProtobufLog();
  ProtobufLog(const ProtobufLog&) = delete;
  ProtobufLog& operator=(const ProtobufLog&) = delete;

 private:
  const std::function<void(const std::string& text)> take_;
};

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_PROTOBUF_LOG_H_
