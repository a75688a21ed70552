// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where answers and errors go, and the formats for programs.
//
// Thread contract: pure functions, except those that write.

#ifndef BASIN_AGGREGATOR_CTL_OUTPUT_H_
#define BASIN_AGGREGATOR_CTL_OUTPUT_H_

#include <cstdint>
#include <string>

namespace google::protobuf {
class Message;
}

namespace basin::aggregator {

enum class Format : uint8_t { kTable, kJson, kYaml };

void Print(const std::string& text);     // To standard output.
void Complain(const std::string& text);  // To standard error.

// On one line, with the field names of the protocol.
std::string Json(const google::protobuf::Message& message);

// JSON as the answer of a command: one line of JSON, or one document of YAML. REQUIRES: `json` is
// valid; the format is not kTable.
std::string Structured(const std::string& json, Format format);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_OUTPUT_H_
