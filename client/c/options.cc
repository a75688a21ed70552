// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/c/error.h"
#include "client/core/launcher.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/timeline_text.h"
#include "protocol/limits/client_options.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "runtime/grpc/credentials.h"

namespace {

using basin::kMaxRanks;
using basin::kMaxStreams;
using basin::kMaxWorkers;

// ---- the table

enum class Kind : uint8_t {
  kAddress,
  kJob,
  kRun,
  kWorker,
  kWorkers,
  kRanks,
  kLocalRank,
  kStreams,
  kFlag,
  kLevel,
  kPath,
  kRounds,
  kBytes,
  kMemory,
  kGroup,
  kSoftware
};

struct Option {
  const char* key;
  Kind kind;
  const char* value;  // The default; null: found out.
};

// Those of kClientOptions.
constexpr std::array kOptions = {
    Option{"address", Kind::kAddress, "127.0.0.1:29600"},
    Option{"job", Kind::kJob, "default"},
    Option{"run_id", Kind::kRun, ""},
    Option{"worker_id", Kind::kWorker, nullptr},
    Option{"max_workers", Kind::kWorkers, nullptr},
    Option{"min_workers", Kind::kWorkers, "0"},
    Option{"start_workers", Kind::kWorkers, "0"},
    Option{"ranks", Kind::kRanks, "1"},
    Option{"local_rank", Kind::kLocalRank, "0"},
    Option{"fresh", Kind::kFlag, "false"},
    Option{"streams", Kind::kStreams, "2"},
    Option{"tls_ca", Kind::kPath, ""},
    Option{"tls_cert", Kind::kPath, ""},
    Option{"tls_key", Kind::kPath, ""},
    Option{"token_file", Kind::kPath, ""},
    Option{"local", Kind::kFlag, "true"},
    Option{"log_level", Kind::kLevel, "warning"},
    Option{"pinned_bytes", Kind::kMemory, "536870912"},
    Option{"local_group", Kind::kGroup, "off"},
    Option{"nccl_library", Kind::kPath, ""},
    Option{"timeline", Kind::kPath, ""},
    Option{"timeline_every", Kind::kRounds, "1"},
    Option{"timeline_max_bytes", Kind::kBytes, "67108864"},
    Option{"software", Kind::kSoftware, ""},
};

constexpr bool AreTheClients() {
  if (kOptions.size() != std::size(basin::kClientOptions)) return false;
  for (size_t i = 0; i < kOptions.size(); ++i) {
    if (kOptions[i].key != basin::kClientOptions[i]) return false;
  }
  return true;
}
static_assert(AreTheClients(), "The aggregator must know the variables of its clients.");

// ---- values

// The bounds of what a timeline is set to; that of bytes also bounds pinned memory.
constexpr uint64_t kMostRounds = 1000000;
constexpr size_t kMostAddresses = 16;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;

// The bytes that the trainer may use for versions, beside that of this library.
constexpr size_t kMostSoftware = 200;

std::string NumberRule(uint64_t least, uint64_t most) {
  return absl::StrCat("a whole number from ", least, " to ", most);
}

bool IsNumber(std::string_view text, uint64_t least, uint64_t most) {
  uint64_t number = 0;
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &number) &&
         number >= least && number <= most;
}

std::optional<bool> Flag(std::string_view text) {
  bool flag = false;
  if (!absl::SimpleAtob(absl::string_view(text.data(), text.size()), &flag)) return std::nullopt;
  return flag;
}

std::string OneAddressRule(std::string_view value) {
  for (const char* scheme : {"http://", "https://", "grpc://", "grpcs://", "tcp://"}) {
    if (value.substr(0, std::strlen(scheme)) == scheme) {
      return absl::StrCat("leave ", scheme, " out; host:port is needed",
                          value.substr(0, 5) == "https" ? ", and tls_ca for TLS" : "");
    }
  }
  if (value.find(' ') != std::string_view::npos) return "leave the blanks out";
  return value.find(':') != std::string_view::npos ? "" : "host:port is needed";
}

// Several aggregators that stand by for each other have commas between their addresses.
std::string AddressRule(std::string_view value) {
  const std::vector<std::string> all =
      absl::StrSplit(absl::string_view(value.data(), value.size()), ',');
  if (all.size() > kMostAddresses) {
    return absl::StrCat("at most ", kMostAddresses, " addresses are possible");
  }
  for (const std::string& each : all) {
    if (std::string rule = OneAddressRule(each); !rule.empty()) return rule;
  }
  return "";
}

// Empty, or the allowed values.
std::string Wrong(Kind kind, std::string_view value) {
  const auto rule = [](const absl::Status& status) {
    return status.ok() ? "" : std::string(status.message());
  };
  switch (kind) {
    case Kind::kAddress:
      return AddressRule(value);
    case Kind::kJob:
      return rule(basin::CheckJobName(value));
    case Kind::kRun:
      return value.empty() ? "" : rule(basin::CheckRunId(value));
    case Kind::kWorker:
      return rule(basin::CheckWorkerId(value));
    case Kind::kWorkers:
      return IsNumber(value, 0, kMaxWorkers) ? "" : NumberRule(0, kMaxWorkers) + " is needed";
    case Kind::kRanks:
      return IsNumber(value, 1, kMaxRanks) ? "" : NumberRule(1, kMaxRanks) + " is needed";
    case Kind::kLocalRank:
      return IsNumber(value, 0, kMaxRanks - 1) ? "" : NumberRule(0, kMaxRanks - 1) + " is needed";
    case Kind::kStreams:
      return IsNumber(value, 1, kMaxStreams) ? "" : NumberRule(1, kMaxStreams) + " is needed";
    case Kind::kFlag:
      return Flag(value).has_value() ? "" : "true, false, yes, no, 1 or 0 is needed";
    case Kind::kPath:
      return value.empty() || (basin::IsPrintable(value) && value.size() <= basin::kMaxTextBytes)
                 ? ""
                 : "the path of a file in printable characters is needed";
    case Kind::kRounds:
      return IsNumber(value, 1, kMostRounds) ? "" : NumberRule(1, kMostRounds) + " is needed";
    case Kind::kBytes:
      return IsNumber(value, basin::client::TimelineText::kLeastBytes, kMostBytes)
                 ? ""
                 : NumberRule(basin::client::TimelineText::kLeastBytes, kMostBytes) + " is needed";
    case Kind::kMemory:
      return IsNumber(value, 0, kMostBytes) ? "" : NumberRule(0, kMostBytes) + " is needed";
    case Kind::kLevel:
      for (const char* level : basin::c::kLogLevels) {
        if (value == level) return "";
      }
      return "debug, info, warning or error is needed";
    case Kind::kGroup:
      for (const char* wish : {"off", "auto", "deterministic", "fast"}) {
        if (value == wish) return "";
      }
      return "off, auto, deterministic or fast is needed";
    case Kind::kSoftware:
      return basin::IsPrintable(value) && value.size() <= kMostSoftware
                 ? ""
                 : absl::StrCat("at most ", kMostSoftware, " printable characters are needed");
  }
  return "";
}

std::string VariableOf(const Option& option) {
  return absl::StrCat("BASIN_", absl::AsciiStrToUpper(option.key));
}

const Option* Find(std::string_view key) {
  for (const Option& option : kOptions) {
    if (key == option.key) return &option;
  }
  return nullptr;
}

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// The same, for the launcher's.
std::optional<std::string> Read(const char* name) {
  const char* value = Variable(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// ---- identity of this worker

// A label made of a name that may have other characters in it.
std::string LabelOf(std::string_view name, const std::string& suffix) {
  std::string label;
  for (const char c : name) {
    if (label.size() + suffix.size() >= basin::kMaxWorkerIdBytes) break;
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    const bool fits = absl::ascii_isalnum(static_cast<unsigned char>(lower));
    if (fits || !label.empty()) label.push_back(fits ? lower : '-');
  }
  return label.empty() ? "worker" + suffix : label + suffix;
}

std::string Host() {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return host.data();
}

std::string HostAndProcess() { return LabelOf(Host(), absl::StrCat("-", getpid())); }

}  // namespace

basin_options::basin_options(bool read_environment) {
  log_.write = basin::c::LogToStderr;
  for (const Option& option : kOptions) {
    if (option.value != nullptr) defaults_[option.key] = option.value;
  }
  defaults_["worker_id"] = HostAndProcess();
  defaults_["max_workers"] = "1";
  if (!read_environment) return;

  if (auto launched = basin::client::ReadIdentity(Read); !launched.ok()) {
    launched_ = launched.status();
  } else if (launched->has_value()) {
    const basin::client::LaunchedIdentity& identity = **launched;
    defaults_["worker_id"] = LabelOf("worker", absl::StrCat("-", identity.rank));
    if (identity.size.has_value()) {
      defaults_["max_workers"] = absl::StrCat(*identity.size);
    } else {
      defaults_.erase("max_workers");  // Several, but their number is unknown.
    }
    launcher_decision_ = identity.decision;
  }
  place_ = basin::client::ReadPlace(Read);
  for (const Option& option : kOptions) {
    const std::string variable = VariableOf(option);
    const char* value = Variable(variable.c_str());
    if (value == nullptr) continue;
    if (const std::string wrong = Wrong(option.kind, value); !wrong.empty()) {
      bad_environment_[option.key] =
          absl::StrCat("The environment has ", variable, "=", value, ": ", wrong, ".");
    }
    environment_[option.key] = value;
  }
}

absl::Status basin_options::Set(std::string_view key, std::string_view value) {
  const Option* option = Find(key);
  if (option == nullptr) {
    std::string known;
    for (const Option& each : kOptions)
      absl::StrAppend(&known, known.empty() ? "" : ", ", each.key);
    return absl::InvalidArgumentError(
        absl::StrCat("There is no option ", std::string(key), ". The options are ", known, "."));
  }
  if (const std::string wrong = Wrong(option->kind, value); !wrong.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("Option ", option->key, " cannot be ",
                                                   basin::QuoteForError(value), ": ", wrong, "."));
  }
  set_[option->key] = std::string(value);
  return absl::OkStatus();
}

const char* basin_options::Get(std::string_view key) const {
  for (const auto* source : {&set_, &environment_, &defaults_}) {
    if (const auto found = source->find(key); found != source->end()) return found->second.c_str();
  }
  return nullptr;
}

void basin_options::SetLog(basin_log write, void* user) {
  log_.write = write;
  log_.user = user;
}

std::string basin_options::Text(std::string_view key) const {
  const char* value = Get(key);
  return value == nullptr ? "" : value;
}

uint64_t basin_options::Number(std::string_view key) const {
  uint64_t number = 0;
  return absl::SimpleAtoi(Text(key), &number) ? number : 0;
}

absl::StatusOr<basin::c::Settings> basin_options::Resolve() const {
  for (const auto& [key, why] : bad_environment_) {
    if (set_.count(key) == 0) return absl::InvalidArgumentError(why);
  }
  const auto is_given = [this](std::string_view key) {
    return set_.count(key) > 0 || environment_.count(key) > 0;
  };
  if (!launched_.ok() && !(is_given("worker_id") && is_given("max_workers"))) return launched_;
  if (Get("max_workers") == nullptr) {
    return absl::InvalidArgumentError(
        "The launcher reports which worker this is, but not the number of workers. Set max_workers "
        "(BASIN_MAX_WORKERS) to that number.");
  }
  basin::c::Settings settings;
  settings.address = Text("address");
  settings.tls = {Text("tls_ca"), Text("tls_cert"), Text("tls_key")};
  if (auto credentials = basin::ChannelCredentialsOf(settings.tls); !credentials.ok()) {
    return credentials.status();
  }
  settings.token_file = Text("token_file");
  settings.local = Flag(Text("local")).value_or(true);
  const std::vector<std::string> addresses = basin::client::AddressesIn(settings.address);
  for (const std::string& address : addresses) {
    const auto token = basin::ReadToken(settings.token_file, settings.tls, address);
    if (!token.ok()) return token.status();
  }
  settings.pinned_bytes = settings.group.pinned_bytes = Number("pinned_bytes");
  settings.timeline = {Text("timeline"), Count("timeline_every"), Number("timeline_max_bytes")};
  basin::client::Config& core = settings.core;
  core.aggregator = settings.address;
  core.addresses = static_cast<uint32_t>(addresses.size());
  core.job = Text("job");
  core.run = Text("run_id");
  core.worker = Text("worker_id");
  core.fresh = Flag(Text("fresh")).value_or(false);
  core.streams = Count("streams");
  core.settings = {Count("min_workers"), Count("max_workers"), Count("start_workers")};
  core.software = absl::StrCat("basin ", basin_version());
  if (!Text("software").empty()) absl::StrAppend(&core.software, ", ", Text("software"));
  core.ranks = Count("ranks");
  core.local_rank = Count("local_rank");
  if (core.local_rank >= core.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("local_rank is ", core.local_rank,
                                                   ", but the worker stands for ", core.ranks,
                                                   " trainers (ranks), whose local ranks are 0 to ",
                                                   core.ranks - 1, ". Correct one of them."));
  }
  const basin::accelerator::node::LocalEnvironment local = {Text("local_group"), place_.local_rank,
                                                            place_.local_size, place_.rank_variable,
                                                            place_.size_variable};
  const auto group = basin::accelerator::node::DecideLocalGroup(local);
  if (!group.ok()) return group.status();
  if (group->grouped && core.ranks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "local_group is ", *local.local_group, ", but the worker stands for ", core.ranks,
        " trainers (ranks) that have reduced among themselves. Set local_group to off."));
  }
  const std::string node = basin::client::MachineOnHost(place_);
  settings.group = {*group, *local.local_group, Text("nccl_library"), node};
  // Hosts have different names, also those of containers that do not know the launcher's number.
  if (group->grouped) {
    core.group = {LabelOf(Host(), absl::StrCat("-", node)), static_cast<uint32_t>(group->size)};
  }
  if (!is_given("worker_id")) settings.launcher_decision = launcher_decision_;
  core.nonce = 0;        // Chosen at random,
  core.jitter_seed = 0;  // as is this.
  const basin::JobSettings& workers = core.settings;
  const uint32_t most = workers.max_workers;
  if (most > 0 && (workers.min_workers > most || workers.start_workers > most)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "min_workers is ", workers.min_workers, ", start_workers ", workers.start_workers,
        " and max_workers ", most, ". Raise max_workers, or lower the other two."));
  }
  return settings;
}

basin::c::Log basin_options::log() const {
  basin::c::Log log = log_;
  const std::string least = Text("log_level");
  for (size_t level = 0; level < basin::c::kLogLevels.size(); ++level) {
    if (least == basin::c::kLogLevels[level]) log.least = static_cast<basin_log_level>(level);
  }
  return log;
}

namespace {

absl::StatusOr<uint32_t> NumberOf(const char* variable, const std::optional<std::string>& value,
                                  uint32_t otherwise) {
  uint32_t number = otherwise;
  if (!value.has_value() || absl::SimpleAtoi(*value, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(variable, " is \"", *value, "\"; set it to a whole number, or unset it."));
}

absl::StatusOr<basin_machine> MachineOf(const basin::client::LaunchedPlace& place) {
  const auto local_rank = NumberOf(place.rank_variable, place.local_rank, 0);
  if (!local_rank.ok()) return local_rank.status();
  const auto local_size = NumberOf(place.size_variable, place.local_size, 1);
  if (!local_size.ok()) return local_size.status();
  const auto number = NumberOf("The number of the launcher's machine", place.machine, 0);
  if (!number.ok()) return number.status();
  // A launcher that numbers the workers of several machines, but not the machines.
  const bool is_open = !place.numbers_machines && !place.machine.has_value();
  const auto machines =
      NumberOf("The launcher's number of machines", place.machines, is_open ? 0 : 1);
  if (!machines.ok()) return machines.status();
  return basin_machine{sizeof(basin_machine), *local_rank, *local_size, *number, *machines};
}

}  // namespace

extern "C" {

basin_code basin_read_machine(basin_machine* machine, basin_error** error) {
  if (machine == nullptr) {
    return basin::c::Return(absl::InvalidArgumentError("The machine is null."), error);
  }
  auto read = MachineOf(basin::client::ReadPlace(Read));
  if (!read.ok()) return basin::c::Return(read.status(), error);
  // The part that fits the structure of an older caller.
  const size_t size = std::min(machine->size, sizeof(*read));
  read->size = machine->size;
  std::memcpy(machine, &*read, size);
  return BASIN_OK;
}

basin_options* basin_options_new(uint32_t flags) {
  return new basin_options((flags & BASIN_READ_ENVIRONMENT) != 0);
}

void basin_options_free(basin_options* options) { delete options; }

basin_code basin_options_set(basin_options* options, const char* key, const char* value,
                             basin_error** error) {
  if (options == nullptr || key == nullptr || value == nullptr) {
    return basin::c::Return(
        absl::InvalidArgumentError("An option, its key or its value is null. Pass all three."),
        error);
  }
  return basin::c::Return(options->Set(key, value), error);
}

const char* basin_options_get(const basin_options* options, const char* key) {
  return options == nullptr || key == nullptr ? nullptr : options->Get(key);
}

void basin_options_set_log(basin_options* options, basin_log log, void* user) {
  if (options != nullptr) options->SetLog(log, user);
}

}  // extern "C"
