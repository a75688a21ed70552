// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/describe.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "aggregator/config/table.h"

namespace basin::aggregator {
namespace {

using Json = nlohmann::ordered_json;

// host:port, as a regular expression.
constexpr char kAddress[] = "(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9._-]+):[0-9]{1,5}";

std::string NameInSection(const std::string& key) { return key.substr(SectionOf(key).size() + 1); }

// Paths and addresses may contain characters with a meaning in YAML; a JSON string is a YAML
// string.
std::string InYaml(const Option& option, const std::string& text) {
  return std::holds_alternative<TextType>(option.type) ? Json(text).dump() : text;
}

std::string Origin(const Given& value) {
  if (value.source == Source::kDefault) {
    return value.text == "auto" ? "default: auto" : "default";
  }
  return absl::StrCat(SourceName(value.source), ": ", value.origin);
}

// The schema of this option in the file. Bounds of durations and sizes are not in the schema: JSON
// Schema compares numbers, not "64MiB".
Json SchemaOf(const DurationType& type) {
  const std::string duration = "([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+";
  return {{"type", "string"},
          {"pattern", type.may_be_none ? "^(none|" + duration + ")$" : "^" + duration + "$"}};
}

Json SchemaOf(const NumberType& type) {
  const char* automatic = type.automatic == nullptr ? "" : "auto|";
  if (type.bytes) {
    return {{"type", "string"},
            {"pattern", absl::StrCat("^(", automatic, "[0-9]+(B|KiB|MiB|GiB|TiB))$")}};
  }
  Json number = {{"type", "integer"}, {"minimum", type.least}, {"maximum", type.most}};
  if (type.automatic == nullptr) return number;
  return {{"oneOf", {number, {{"const", "auto"}}}}};
}

Json SchemaOf(const ChoiceType& type) {
  if (IsBoolean(type)) return {{"type", "boolean"}};
  return {{"enum", type.names}};
}

Json SchemaOf(const TextType& type) {
  if (type.form == TextType::Form::kPath || type.form == TextType::Form::kLocalSocket) {
    return {{"type", "string"}, {"minLength", 1}};
  }
  if (type.form == TextType::Form::kAuthority) {
    const char* name = "[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?";
    return {{"type", "string"},
            {"pattern", absl::StrCat("^(none|file:/.+|kubernetes:(", name, "/)?", name,
                                     "|etcd:", kAddress, "(,", kAddress, ")*/[^ ]*[^ /])$")}};
  }
  if (type.form == TextType::Form::kReduceDevice) {
    return {{"type", "string"}, {"pattern", "^(cpu|auto|cuda(:[0-9]{1,4})?)$"}};
  }
  if (type.form == TextType::Form::kLabel) {
    return {{"type", "string"}, {"pattern", "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"}};
  }
  if (type.form == TextType::Form::kAddresses) {
    return {{"type", "string"},
            {"pattern", absl::StrCat("^(none|", kAddress, "(,", kAddress, ")*)$")}};
  }
  return {{"type", "string"},
          {"pattern", type.may_be_none ? absl::StrCat("^(none|", kAddress, ")$")
                                       : absl::StrCat("^", kAddress, "$")}};
}

// Words up to `width` columns, each line behind `indent`.
std::string Wrap(const std::string& text, const std::string& indent, size_t width) {
  std::string wrapped;
  std::string line = indent;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (const std::string& word : words) {
    if (line.size() > indent.size() && line.size() + 1 + word.size() > width) {
      absl::StrAppend(&wrapped, line, "\n");
      line = indent;
    }
    absl::StrAppend(&line, line.size() > indent.size() ? " " : "", word);
  }
  return absl::StrCat(wrapped, line, "\n");
}

}  // namespace

std::string PrintConfiguration(const std::vector<Option>& table, const Configuration& configuration,
                               bool sources) {
  std::string text;
  std::string_view section;
  for (size_t i = 0; i < table.size(); ++i) {
    const Option& option = table[i];
    if (SectionOf(option.key) != section) {
      section = SectionOf(option.key);
      absl::StrAppend(&text, std::string(section), ":\n");
    }
    absl::StrAppend(&text, "  ", NameInSection(option.key), ": ",
                    InYaml(option, Show(option, configuration.settings)));
    if (sources) absl::StrAppend(&text, "  # ", Origin(configuration.chosen[i]));
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string JsonSchema(const std::vector<Option>& table) {
  Json sections = Json::object();
  for (const Option& option : table) {
    const std::string section(SectionOf(option.key));
    if (!sections.contains(section)) {
      sections[section] = {{"type", "object"},
                           {"description", std::string(SectionHelp(section))},
                           {"additionalProperties", false},
                           {"properties", Json::object()}};
    }
    Json schema = std::visit([](const auto& type) { return SchemaOf(type); }, option.type);
    schema["description"] = absl::StrCat(option.help, " (", DescribeType(option), ")");
    schema["default"] = option.fallback;
    if (schema.contains("type") && schema["type"] == "boolean") {
      schema["default"] = option.fallback == "true";
    }
    sections[section]["properties"][NameInSection(option.key)] = std::move(schema);
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Configuration of basind"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", std::move(sections)}};
  return schema.dump(2) + "\n";
}

std::string MarkdownPage(const std::vector<Option>& table) {
  std::string page =
      "# Configuration of `basind`\n\n<!-- Written by `basind config-schema --format=markdown`; a "
      "test compares them. -->\n\nAn option can be set on the command line, in the environment and "
      "in a file. A flag overrides\nthe environment, which overrides the file, which overrides the "
      "default.\n\n| place | how `round.late_warning` is written |\n|---|---|\n| command line | "
      "`--round-late-warning=10s` |\n| environment | `BASIN_ROUND_LATE_WARNING=10s` |\n| file, "
      "named by `--config` or `BASIN_CONFIG` | `round: {late_warning: 10s}` |\n\nDurations and "
      "sizes need their unit: `500ms`, `5s`, `1m30s`, `2h`; `512KiB`, `64MiB`,\n`4GiB`. `yes`, "
      "`no`, "
      "`1` and `0` are accepted for true and false. An unknown option is an\nerror that names the "
      "nearest one. `basind check-config` checks a configuration, `basind\nprint-config --sources` "
      "shows the values in force and the source of each, and `basind\nconfig-schema` prints a JSON "
      "Schema of the file.\n";
  std::string_view section;
  for (const Option& option : table) {
    if (SectionOf(option.key) != section) {
      section = SectionOf(option.key);
      absl::StrAppend(&page, "\n## ", std::string(section), "\n\n",
                      std::string(SectionHelp(section)),
                      "\n\n| option | default | value | meaning |\n|---|---|---|---|\n");
    }
    absl::StrAppend(&page, "| `", option.key, "` | `", option.fallback, "` | ",
                    DescribeType(option), " | ", option.help, " |\n");
  }
  return page;
}

std::string FlagHelp(const std::vector<Option>& table) {
  std::string help;
  std::string_view section;
  for (const Option& option : table) {
    if (SectionOf(option.key) != section) {
      section = SectionOf(option.key);
      absl::StrAppend(&help, "\n", std::string(SectionHelp(section)), "\n");
    }
    absl::StrAppend(&help, "  ", FlagOf(option.key), "=", option.fallback, "  (",
                    DescribeType(option), ")\n", Wrap(option.help, "      ", 100));
  }
  return help;
}

}  // namespace basin::aggregator
