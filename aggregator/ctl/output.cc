// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/output.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/wire/protobuf_names.h"

namespace basin::aggregator {
namespace {

// The lines of an object or a list. A string of JSON is a string of YAML too, and stays quoted, so
// that no reader takes the name "no" for a boolean. `begun`: the first line has its indent.
void AppendYaml(const nlohmann::ordered_json& value, size_t indent, bool begun, std::string& text) {
  for (const auto& [key, item] : value.items()) {
    if (!begun) text.append(indent, ' ');
    begun = false;
    text += value.is_array() ? "-" : key + ":";
    if (!item.is_structured() || item.empty()) {
      absl::StrAppend(&text, " ", item.dump(), "\n");
      continue;
    }
    text += value.is_array() ? " " : "\n";
    AppendYaml(item, indent + 2, value.is_array(), text);
  }
}

}  // namespace

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Complain(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  wire::PrintZeros(options);
  std::string text;
  // Fails for messages with an Any of an unknown type only; ours have none.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &text, options));
  return text;
}

std::string Structured(const std::string& json, Format format) {
  if (format == Format::kJson) return json + "\n";
  std::string text = "---\n";
  const auto value = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (value.empty()) return text + value.dump() + "\n";
  AppendYaml(value, 0, false, text);
  return text;
}

}  // namespace basin::aggregator
