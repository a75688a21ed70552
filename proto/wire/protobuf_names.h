// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What protobuf before 26, such as 3.21 in Debian 12, and later versions, such as 36, call by
// different names.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_PROTOBUF_NAMES_H_
#define BASIN_PROTO_WIRE_PROTOBUF_NAMES_H_

#include "google/protobuf/arena.h"
#include "google/protobuf/stubs/common.h"

namespace basin::wire {

#if GOOGLE_PROTOBUF_VERSION < 5026000

// A message whose parts are all in the arena.
template <typename Message>
Message& NewIn(google::protobuf::Arena& arena) {
  return *google::protobuf::Arena::CreateMessage<Message>(&arena);
}

// For google::protobuf::util::JsonPrintOptions: numbers that are zero, and empty lists, are
// printed.
template <typename Options>
void PrintZeros(Options& options) {
  options.always_print_primitive_fields = true;
}

#else  // CreateMessage and always_print_primitive_fields were removed.

template <typename Message>
Message& NewIn(google::protobuf::Arena& arena) {
  return *google::protobuf::Arena::Create<Message>(&arena);
}

template <typename Options>
void PrintZeros(Options& options) {
  options.always_print_fields_with_no_presence = true;
}

#endif

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_PROTOBUF_NAMES_H_
