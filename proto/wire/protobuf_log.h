// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Protobuf prints to stderr what it dislikes about a message, for every string that is not UTF-8.
// What is wrong with a message is in the status of whoever decodes it, with the field's path.
//
// Thread contract: before there are other threads.

#ifndef BASIN_PROTO_WIRE_PROTOBUF_LOG_H_
#define BASIN_PROTO_WIRE_PROTOBUF_LOG_H_

namespace basin::wire {

// For the whole process. Protobuf logs through Abseil from 22 on; there it does nothing.
void SilenceProtobuf();

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_PROTOBUF_LOG_H_
