// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/option.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "aggregator/text/address.h"
#include "aggregator/text/authority_name.h"
#include "aggregator/text/nearest.h"
#include "aggregator/text/reduce_device.h"
#include "aggregator/text/units.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kAuto = "auto";

// That of a Unix socket, as the system has it.
constexpr size_t kMaxSocketPath = 107;

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

absl::Status PutValue(const DurationType& type, std::string_view text, const Machine&,
                      Settings& settings) {
  if (type.may_be_none && text == kNone) {
    type.put(settings, absl::InfiniteDuration());
    return absl::OkStatus();
  }
  const absl::StatusOr<absl::Duration> duration = ParseDuration(text);
  if (!duration.ok()) return duration.status();
  if (*duration < type.least) {
    return Invalid(absl::StrCat("it must be at least ", ShowDuration(type.least)));
  }
  if (*duration > type.most) {
    return Invalid(absl::StrCat("it must be at most ", ShowDuration(type.most)));
  }
  type.put(settings, *duration);
  return absl::OkStatus();
}

std::string ShowNumber(const NumberType& type, uint64_t number) {
  return type.bytes ? ShowBytes(number) : absl::StrCat(number);
}

absl::Status PutValue(const NumberType& type, std::string_view text, const Machine& machine,
                      Settings& settings) {
  if (type.automatic != nullptr && text == kAuto) {
    type.put(settings, std::clamp(type.automatic(machine), type.least, type.most));
    return absl::OkStatus();
  }
  const absl::StatusOr<uint64_t> number = type.bytes ? ParseBytes(text) : ParseCount(text);
  if (!number.ok()) return number.status();
  if (*number < type.least) {
    return Invalid(absl::StrCat("it must be at least ", ShowNumber(type, type.least)));
  }
  if (*number > type.most) {
    return Invalid(absl::StrCat("it must be at most ", ShowNumber(type, type.most)));
  }
  if (*number % type.multiple != 0) {
    return Invalid(absl::StrCat("it must be a multiple of ", ShowNumber(type, type.multiple)));
  }
  type.put(settings, *number);
  return absl::OkStatus();
}

absl::Status PutValue(const ChoiceType& type, std::string_view text, const Machine&,
                      Settings& settings) {
  if (IsBoolean(type)) {
    bool on = false;
    if (!absl::SimpleAtob(absl::string_view(text.data(), text.size()), &on)) {
      return Invalid("it must be true, false, yes, no, 1 or 0");
    }
    type.put(settings, on ? 1 : 0);
    return absl::OkStatus();
  }
  const auto found = std::find(type.names.begin(), type.names.end(), text);
  if (found == type.names.end()) {
    const std::string nearest = Nearest(text, type.names);
    return Invalid(absl::StrCat("it must be one of ", absl::StrJoin(type.names, ", "),
                                nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
  type.put(settings, found - type.names.begin());
  return absl::OkStatus();
}

absl::Status PutValue(const TextType& type, std::string_view text, const Machine&,
                      Settings& settings) {
  if (type.may_be_none && text == kNone) {
    type.at(settings).clear();
    return absl::OkStatus();
  }
  if (type.form == TextType::Form::kAddress) {
    if (const absl::StatusOr<Address> address = ParseAddress(text); !address.ok()) {
      return address.status();
    }
  } else if (type.form == TextType::Form::kAddresses) {
    for (std::string_view rest = text;;) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const absl::StatusOr<Address> address = ParseAddress(rest.substr(0, comma));
      if (!address.ok()) return address.status();
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else if (type.form == TextType::Form::kLabel) {
    if (const absl::Status label = CheckWorkerId(text); !label.ok()) {
      return Invalid("write a name of at most 63 lower-case letters, digits, - and .");
    }
  } else if (type.form == TextType::Form::kReduceDevice) {
    if (const auto device = ParseReduceDevice(text); !device.ok()) return device.status();
  } else if (type.form == TextType::Form::kAuthority) {
    if (const auto name = ParseAuthorityName(text); !name.ok()) return name.status();
  } else if (text.empty() || text.size() > kMaxTextBytes || !IsPrintable(text)) {
    return Invalid("write the path of a file in printable characters");
  } else if (type.form == TextType::Form::kLocalSocket && text != kAuto &&
             (text[0] != '/' || text.size() > kMaxSocketPath)) {
    return Invalid(absl::StrCat("write auto, none, or an absolute path of at most ", kMaxSocketPath,
                                " bytes"));
  }
  type.at(settings) = std::string(text);
  return absl::OkStatus();
}

std::string ShowValue(const DurationType& type, const Settings& settings) {
  const absl::Duration duration = type.get(settings);
  return duration == absl::InfiniteDuration() ? std::string(kNone) : ShowDuration(duration);
}

std::string ShowValue(const NumberType& type, const Settings& settings) {
  return ShowNumber(type, type.get(settings));
}

std::string ShowValue(const ChoiceType& type, const Settings& settings) {
  return type.names[type.get(settings)];
}

std::string ShowValue(const TextType& type, const Settings& settings) {
  Settings copy = settings;
  const std::string& text = type.at(copy);
  return text.empty() ? std::string(kNone) : text;
}

std::string Describe(const DurationType& type) {
  return absl::StrCat("duration, ", ShowDuration(type.least), " to ", ShowDuration(type.most),
                      type.may_be_none ? ", or none" : "");
}

std::string Describe(const NumberType& type) {
  return absl::StrCat(
      type.bytes ? "size, " : "number, ", ShowNumber(type, type.least), " to ",
      ShowNumber(type, type.most),
      type.multiple == 1 ? "" : ", a multiple of " + ShowNumber(type, type.multiple),
      type.automatic == nullptr ? "" : ", or auto");
}

std::string Describe(const ChoiceType& type) {
  if (IsBoolean(type)) return "true or false";
  return absl::StrCat("one of ", absl::StrJoin(type.names, ", "));
}

std::string Describe(const TextType& type) {
  if (type.form == TextType::Form::kReduceDevice) return "cpu, cuda, cuda:N, or auto";
  if (type.form == TextType::Form::kLocalSocket) return "auto, path, or none";
  if (type.form == TextType::Form::kAuthority) {
    return "file:DIRECTORY, kubernetes:NAMESPACE/LEASE, etcd:HOST:PORT,.../KEY, or none";
  }
  if (type.form == TextType::Form::kAddresses) return "host:port, several with commas, or none";
  if (type.form == TextType::Form::kLabel) return "a name, or none";
  return absl::StrCat(type.form == TextType::Form::kAddress ? "host:port" : "path",
                      type.may_be_none ? ", or none" : "");
}

}  // namespace

std::string FlagOf(std::string_view key) {
  return "--" + absl::StrReplaceAll(std::string(key), {{".", "-"}, {"_", "-"}});
}

std::string VariableOf(std::string_view key) {
  return "BASIN_" + absl::AsciiStrToUpper(absl::StrReplaceAll(std::string(key), {{".", "_"}}));
}

absl::Status Put(const Option& option, std::string_view text, const Machine& machine,
                 Settings& settings) {
  return std::visit([&](const auto& type) { return PutValue(type, text, machine, settings); },
                    option.type);
}

std::string Show(const Option& option, const Settings& settings) {
  return std::visit([&](const auto& type) { return ShowValue(type, settings); }, option.type);
}

std::string DescribeType(const Option& option) {
  return std::visit([](const auto& type) { return Describe(type); }, option.type);
}

}  // namespace basin::aggregator
