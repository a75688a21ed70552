// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/yaml.h"

#include <yaml.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/config/table.h"
#include "aggregator/text/nearest.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// Sections and options; deeper is a mistake anyway, and a bound for the reader.
constexpr size_t kMaxDepth = 8;

// A file with this many mistakes is probably the wrong file.
constexpr size_t kMaxProblems = 20;

// One event of libyaml, given back to it at the end.
class YamlEvent {
 public:
  explicit YamlEvent(yaml_parser_t& parser) : ok_(yaml_parser_parse(&parser, &event_) != 0) {}
  ~YamlEvent() {
    if (ok_) yaml_event_delete(&event_);
  }
  YamlEvent(const YamlEvent&) = delete;
  YamlEvent& operator=(const YamlEvent&) = delete;

  bool ok() const { return ok_; }
  yaml_event_type_t type() const { return event_.type; }
  size_t line() const { return event_.start_mark.line + 1; }
  std::string scalar() const {
    const auto& scalar = event_.data.scalar;
    return {reinterpret_cast<const char*>(scalar.value), scalar.length};
  }
  // "~", "null" and nothing at all, unless they stand in quotes.
  bool is_null() const {
    const std::string text = scalar();
    return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text.empty() || text == "~" || text == "null");
  }
  bool has_anchor_or_tag() const {
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return event_.data.scalar.anchor != nullptr || event_.data.scalar.tag != nullptr;
      case YAML_MAPPING_START_EVENT:
        return event_.data.mapping_start.anchor != nullptr ||
               event_.data.mapping_start.tag != nullptr;
      case YAML_ALIAS_EVENT:
        return true;
      default:
        return false;
    }
  }

 private:
  yaml_event_t event_ = {};
  const bool ok_;
};

// Walks through the events of one file.
class Reader {
 public:
  Reader(const std::vector<Option>& table, const std::string& name, std::string_view text,
         Findings& findings)
      : table_(table), name_(name), findings_(findings) {
    yaml_parser_initialize(&parser_);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
    for (const Option& option : table_) keys_.push_back(option.key);
  }
  ~Reader() { yaml_parser_delete(&parser_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void Read() {
    while (problems_ < kMaxProblems) {
      const YamlEvent event(parser_);
      if (!event.ok()) {
        const size_t line = parser_.problem_mark.line + 1;
        Refuse(line, absl::StrCat("this is not YAML: ",
                                  parser_.problem == nullptr ? "unreadable" : parser_.problem));
        return;
      }
      if (event.type() == YAML_STREAM_END_EVENT) return;
      if (!Take(event)) return;
    }
  }

 private:
  // The role of the next scalar or mapping: a key of the innermost mapping, or the value of the
  // last key.
  enum class Expected { kKey, kValue };

  // False: further reading is useless.
  bool Take(const YamlEvent& event) {
    if (event.has_anchor_or_tag()) {
      Refuse(event.line(),
             "anchors (&), aliases (*) and tags (!) are not supported; write the value itself");
      return false;
    }
    switch (event.type()) {
      case YAML_DOCUMENT_START_EVENT:
        if (documents_++ == 0) return true;
        Refuse(event.line(), "a second document begins here; write only one");
        return false;
      case YAML_SEQUENCE_START_EVENT:
        Refuse(event.line(), "no option takes a list");
        return false;
      case YAML_MAPPING_START_EVENT:
        return OpenMapping(event);
      case YAML_MAPPING_END_EVENT:
        path_.pop_back();
        expected_ = Expected::kKey;
        return true;
      case YAML_SCALAR_EVENT:
        return TakeScalar(event);
      default:
        return true;
    }
  }

  bool OpenMapping(const YamlEvent& event) {
    if (path_.size() == kMaxDepth || (!path_.empty() && expected_ == Expected::kKey)) {
      Refuse(event.line(), "write sections with options in them, like worker: {lease: 10s}");
      return false;
    }
    path_.emplace_back();
    expected_ = Expected::kKey;
    return true;
  }

  bool TakeScalar(const YamlEvent& event) {
    if (path_.empty()) {
      if (event.is_null()) return true;  // Nothing but comments.
      Refuse(event.line(), "write sections with options in them, like worker: {lease: 10s}");
      return false;
    }
    if (expected_ == Expected::kKey) {
      path_.back() = event.scalar();
      expected_ = Expected::kValue;
      return true;
    }
    expected_ = Expected::kKey;
    OnValue(absl::StrJoin(path_, "."), event);
    return true;
  }

  void OnValue(const std::string& key, const YamlEvent& event) {
    if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) {
      if (!event.is_null() || SectionHelp(key).empty()) RefuseUnknown(key, event.line());
      return;
    }
    const std::string origin = absl::StrCat(name_, ":", event.line());
    const auto [first, is_new] = lines_.emplace(key, event.line());
    if (!is_new) {
      Refuse(event.line(), absl::StrCat(key, " is set twice, first in line ", first->second));
    } else if (event.is_null()) {
      Refuse(event.line(), absl::StrCat(key, " has no value; write one, or remove the line"));
    } else {
      findings_.given.push_back({key, event.scalar(), Source::kFile, origin});
    }
  }

  void RefuseUnknown(const std::string& key, size_t line) {
    if (!SectionHelp(key).empty()) {
      Refuse(line, absl::StrCat(key, " is a section; write its options below it and indent them"));
      return;
    }
    const std::string nearest = Nearest(key, keys_);
    Refuse(line, absl::StrCat(QuoteForError(key), " is not an option; ",
                              nearest.empty() ? "`basind config-schema` lists the options"
                                              : "did you mean " + nearest + "?"));
  }

  void Refuse(size_t line, const std::string& text) {
    findings_.problems.push_back(absl::StrCat(name_, ":", line, ": ", text));
    ++problems_;
  }

  const std::vector<Option>& table_;
  const std::string& name_;
  Findings& findings_;
  std::vector<std::string> keys_;
  yaml_parser_t parser_ = {};

  size_t documents_ = 0;
  size_t problems_ = 0;
  std::vector<std::string> path_;  // The keys of the open mappings.
  Expected expected_ = Expected::kKey;
  std::map<std::string, size_t> lines_;  // Where each key was given.
};

}  // namespace

void ReadYaml(const std::vector<Option>& table, const std::string& name, std::string_view text,
              Findings& findings) {
  if (text.size() > kMaxFileBytes) {
    findings.problems.push_back(absl::StrCat(name, ": it has ", text.size(),
                                             " bytes; a configuration file has at most ",
                                             kMaxFileBytes));
    return;
  }
  Reader(table, name, text, findings).Read();
}

}  // namespace basin::aggregator
