// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/commands.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "accelerator/device/cuda_device.h"
#include "aggregator/auth/file.h"
#include "aggregator/basind/serve.h"
#include "aggregator/basind/shard.h"
#include "aggregator/basind/signals.h"
#include "aggregator/config/configuration.h"
#include "aggregator/config/describe.h"
#include "aggregator/config/given.h"
#include "aggregator/config/machine.h"
#include "aggregator/config/table.h"
#include "aggregator/http/http_client.h"
#include "aggregator/text/address.h"
#include "aggregator/text/nearest.h"
#include "aggregator/tls/files.h"
#include "kernels/cpu/cpu_reducer.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

// Shorter than the second that a kubelet gives a probe.
constexpr absl::Duration kProbeTimeout = absl::Milliseconds(900);

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void Complain(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// The context of a command.
struct Invocation {
  std::string version;
  std::vector<std::string> arguments;  // Those after the command.
  std::vector<std::string> environment;
  bool bare = false;  // `basind` alone.
};

using Own = std::map<std::string, std::string>;

struct Command {
  std::string name;
  std::string summary;
  std::vector<ProgramFlag> flags;  // Besides --help, --config and the options.
  std::string help;                // With examples.
  bool configured = true;          // Has a configuration.
  std::function<ExitCode(const Invocation&, const Own&, const Findings&)> run;
};

std::optional<std::string> ValueOf(const Own& own, const std::string& flag) {
  const auto found = own.find(flag);
  if (found == own.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<Configuration> ConfigurationOf(const Findings& findings) {
  return Configure(OptionTable(), findings, LookAtMachine());
}

// Also the files that it names.
absl::StatusOr<Configuration> CheckedConfigurationOf(const Findings& findings) {
  absl::StatusOr<Configuration> configuration = ConfigurationOf(findings);
  if (!configuration.ok()) return configuration;
  const Settings& settings = configuration->settings;
  const absl::Time now = absl::Now();
  if (TlsCheck tls = CheckServerTls(settings.tls, "tls.", now); !tls.status.ok()) return tls.status;
  if (TlsCheck http = CheckServerTls(settings.http_tls, "http.tls_", now); !http.status.ok()) {
    return http.status;
  }
  if (const std::string& path = settings.auth_path; !path.empty()) {
    const absl::StatusOr<AuthFile> file = ReadAuthFile(path);
    if (!file.ok()) return file.status();
  }
  return configuration;
}

ExitCode Refuse(const absl::Status& status) {
  Complain(absl::StrCat("basind: ", absl::StrReplaceAll(status.message(), {{"\n", "\nbasind: "}}),
                        "\n"));
  return ExitCodeOf(status);
}

// ---- the commands

std::string FirstSteps(const std::string& version, const Endpoints& endpoints) {
  return absl::StrCat(
      "basind ", version, " serves this machine; other machines cannot reach it.\n\n  workers    ",
      endpoints.grpc, "   for trainers: export BASIN_ADDRESS=", endpoints.grpc, "\n  operators  ",
      endpoints.admin, "   show the jobs: basinctl status\n  metrics    http://", endpoints.http,
      "/metrics\n\nTo serve a trusted network: basind --grpc-listen=0.0.0.0:29600 "
      "--grpc-insecure\nTo list all options: basind serve --help\nTo stop: Ctrl-C; open rounds end "
      "first, and a second Ctrl-C does not wait for them.\nThe log follows on standard output, one "
      "JSON object per line.\n\n");
}

// Serves with a configuration that was checked, until a signal ends it.
template <typename Run>
ExitCode ServeWith(const Findings& findings, const Run& run) {
  const absl::StatusOr<Configuration> configuration = CheckedConfigurationOf(findings);
  if (!configuration.ok()) return Refuse(configuration.status());
  for (const std::string& ignored : findings.ignored) {
    Complain(absl::StrCat("basind: ", ignored, "\n"));
  }
  BlockSignals();
  const absl::Status served = run(configuration->settings);
  if (served.ok()) return kExitOk;
  const ExitCode refused = Refuse(served);
  return absl::IsInvalidArgument(served) ? refused : kExitFailed;
}

ExitCode RunServe(const Invocation& invocation, const Own&, const Findings& findings) {
  return ServeWith(findings, [&](const Settings& settings) {
    return Serve(settings, invocation.version, [&](const Endpoints& endpoints) {
      if (invocation.bare) Complain(FirstSteps(invocation.version, endpoints));
    });
  });
}

ExitCode RunShard(const Invocation& invocation, const Own&, const Findings& findings) {
  return ServeWith(
      findings, [&](const Settings& settings) { return ServeShard(settings, invocation.version); });
}

ExitCode RunCheckConfig(const Invocation&, const Own&, const Findings& findings) {
  const absl::StatusOr<Configuration> configuration = CheckedConfigurationOf(findings);
  if (!configuration.ok()) return Refuse(configuration.status());
  Print("The configuration is valid.\n");
  return kExitOk;
}

ExitCode RunPrintConfig(const Invocation&, const Own& own, const Findings& findings) {
  const absl::StatusOr<Configuration> configuration = ConfigurationOf(findings);
  if (!configuration.ok()) return Refuse(configuration.status());
  Print(PrintConfiguration(OptionTable(), *configuration, ValueOf(own, "--sources").has_value()));
  return kExitOk;
}

ExitCode RunConfigSchema(const Invocation&, const Own& own, const Findings&) {
  const std::string format = ValueOf(own, "--format").value_or("json");
  if (format != "json" && format != "markdown") {
    return Refuse(absl::InvalidArgumentError(
        absl::StrCat("--format is ", QuoteForError(format), "; it is json or markdown")));
  }
  Print(format == "json" ? JsonSchema(OptionTable()) : MarkdownPage(OptionTable()));
  return kExitOk;
}

// What of CUDA this machine has, in a line.
std::string DescribeCuda() {
  const kernels::Result<std::string> devices = accelerator::DescribeCudaDevices();
  return devices.ok() ? "CUDA devices: " + devices.value()
                      : "no CUDA device: " + devices.failure().message;
}

ExitCode RunVersion(const Invocation& invocation, const Own& own, const Findings&) {
  const std::string cpu(kernels::MakeCpuReducer()->name());
  const std::string cuda(accelerator::CudaArchitectures());
  if (ValueOf(own, "--json").has_value()) {
    Print(absl::StrCat("{\"version\":\"", invocation.version, "\",\"protocol\":", kProtocolVersion,
                       ",\"contract\":", kContractVersion, ",\"cpu\":\"", cpu, "\",\"cuda\":\"",
                       cuda, "\",\"cuda_devices\":\"",
                       absl::StrReplaceAll(DescribeCuda(), {{"\\", "\\\\"}, {"\"", "\\\""}}),
                       "\"}\n"));
  } else {
    Print(absl::StrCat("basind ", invocation.version, " (protocol ", kProtocolVersion,
                       ", arithmetic contract ", kContractVersion, "), reduces on ", cpu,
                       cuda.empty() ? ", built without CUDA" : absl::StrCat(", or CUDA for ", cuda),
                       "\n", DescribeCuda(), "\n"));
  }
  return kExitOk;
}

ExitCode RunHealthcheck(const Invocation&, const Own& own, const Findings& findings) {
  const absl::StatusOr<Configuration> configuration = ConfigurationOf(findings);
  if (!configuration.ok()) return Refuse(configuration.status());
  const std::string& where = configuration->settings.http_address;
  if (where.empty()) {
    return Refuse(absl::FailedPreconditionError(
        "http.listen is none, so the aggregator cannot be asked; set it to an address"));
  }
  const std::string path = ValueOf(own, "--standby").has_value() ? "/standbyz"
                           : ValueOf(own, "--ready").has_value() ? "/readyz"
                                                                 : "/livez";
  const bool tls = configuration->settings.http_tls.on() || ValueOf(own, "--https").has_value();
  const absl::StatusOr<HttpPage> page = GetPage(*ParseAddress(where), tls, path, kProbeTimeout);
  if (!page.ok()) return Refuse(page.status());
  Print(page->body);
  return page->status == 200 ? kExitOk : kExitPrecondition;
}

// ---- which of them

std::vector<Command> Commands() {
  return {
      {"serve",
       "run the aggregator (the default)",
       {},
       "examples:\n"
       "  basind\n"
       "  basind serve --config=/etc/basin/basind.yaml\n"
       "  BASIN_LOG_LEVEL=debug basind --state-file=/var/lib/basin/state\n"
       "  basind --grpc-listen=0.0.0.0:29600 --grpc-insecure\n",
       true,
       RunServe},
      {"shard",
       "hold bytes for an aggregator",
       {},
       "A shard takes gradients of workers, adds them up and sends the results, as the aggregator\n"
       "(its coordinator) decides. Workers learn of it from the aggregator, and open data streams\n"
       "to it, so they must reach it. It may come and go at any time.\n"
       "After SIGTERM it ends when no round needs it, or after drain.grace.\n\n"
       "  --coordinator=HOST:PORT  the aggregator: its grpc.listen; several with commas between\n"
       "  --name=NAME              no other shard of the aggregator may have it; the host's name\n"
       "  --advertise=HOST:PORT    where workers reach this shard; as it listens\n\n"
       "examples:\n"
       "  basind shard --coordinator=basin.example:29600 --grpc-listen=0.0.0.0:29600 "
       "--grpc-insecure\n"
       "  basind shard --coordinator=127.0.0.1:29600 --name=s-1 --grpc-listen=127.0.0.1:0 "
       "--http-listen=127.0.0.1:0\n"
       "  BASIN_SHARD_COORDINATOR=a:29600,b:29600 basind shard --config=/etc/basin/shard.yaml\n",
       true,
       RunShard},
      {"check-config",
       "check a configuration",
       {},
       "examples:\n"
       "  basind check-config --config=basind.yaml\n"
       "  basind check-config --worker-lease=10s\n",
       true,
       RunCheckConfig},
      {"print-config",
       "print the configuration in force",
       {{"--sources", false}},
       "  --sources  add the source of each value as a comment\n\nexamples:\n  basind print-config "
       "--sources\n  basind print-config --config=basind.yaml > complete.yaml\n",
       true,
       RunPrintConfig},
      {"config-schema",
       "print the schema of a configuration file",
       {{"--format", true}},
       "  --format=json|markdown  a JSON Schema (the default), or the documentation "
       "page\n\nexamples:\n  basind config-schema > basind.schema.json\n  basind config-schema "
       "--format=markdown\n",
       false,
       RunConfigSchema},
      {"version",
       "print the version, and the GPUs that it finds",
       {{"--json", false}},
       "  --json  print a JSON object\n\nexamples:\n  basind version\n  basind version --json\n",
       false,
       RunVersion},
      {"healthcheck",
       "check a running aggregator",
       {{"--ready", false}, {"--standby", false}, {"--https", false}},
       "Sends a request to http.listen, so it needs the configuration of the running "
       "aggregator.\n\n  --ready    check that workers are served (/readyz) instead of liveness "
       "(/livez)\n  --standby  check that workers are served, or that another aggregator leads and "
       "this\n             one can take over (/standbyz)\n  --https    with TLS even if "
       "http.tls_cert is none here; the certificate is not "
       "checked\n\nexamples:\n  basind healthcheck\n  basind healthcheck --ready "
       "--http-listen=127.0.0.1:29601\n",
       true,
       RunHealthcheck},
  };
}

std::string Overview(const std::vector<Command>& commands) {
  std::string text =
      "basind averages the gradients of training jobs.\n\nusage: basind [COMMAND] [--FLAG=VALUE "
      "...]\n\ncommands:\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "  ", command.name, std::string(15 - command.name.size(), ' '),
                    command.summary, "\n");
  }
  return absl::StrCat(
      text,
      "\n`basind COMMAND --help`, or `basind help COMMAND`, describes a command.\n\nexamples:\n"
      "  basind                        serve this machine on 127.0.0.1:29600\n  "
      "basind serve --help           list all options\n  basind print-config --sources show the "
      "values in force, and their sources\n\nexit codes: 0 ok, 1 failed, 2 usage or configuration, "
      "3 unreachable, 4 denied,\n5 not found, 6 precondition, 7 timeout\n");
}

std::string HelpOf(const Command& command) {
  std::string text =
      absl::StrCat("basind ", command.name, ": ", command.summary, "\n\nusage: basind ",
                   command.name, " [--FLAG=VALUE ...]\n\n", command.help);
  if (!command.configured) return text;
  return absl::StrCat(text,
                      "\nEvery flag below can also be given in the environment (--worker-lease "
                      "as\nBASIN_WORKER_LEASE) and in a file (worker: {lease: 10s}). A flag "
                      "overrides the\nenvironment, which overrides the file.\n\n  --config=FILE  a "
                      "configuration file, in YAML; also BASIN_CONFIG\n",
                      FlagHelp(OptionTable()));
}

// The options from all sources.
Findings Read(const Command& command, const Invocation& invocation, Own& own) {
  std::vector<ProgramFlag> flags = command.flags;
  flags.push_back({"--help", false});
  Findings findings;
  if (!command.configured) {
    own = ReadFlags({}, flags, invocation.arguments, findings);
    return findings;
  }
  const std::vector<Option> table = OptionTable();
  flags.push_back({"--config", true});
  own = ReadFlags(table, flags, invocation.arguments, findings);
  ReadEnvironment(table, invocation.environment, findings);
  std::optional<std::string> file = ValueOf(own, "--config");
  for (const std::string& variable : invocation.environment) {
    if (!file.has_value() && absl::StartsWith(variable, "BASIN_CONFIG=")) {
      file = variable.substr(variable.find('=') + 1);
    }
  }
  if (file.has_value()) LoadFile(table, *file, findings);
  return findings;
}

// "help serve" as "serve --help".
std::vector<std::string> WithHelpBehind(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), "--help");
  return arguments;
}

// The short names of the options that only a shard has.
std::vector<std::string> WithShardOptions(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    for (const char* name : {"coordinator", "name", "advertise"}) {
      const std::string flag = absl::StrCat("--", name);
      if (argument == flag || absl::StartsWith(argument, flag + "=")) {
        argument = absl::StrCat("--shard-", argument.substr(2));
        break;
      }
    }
  }
  return arguments;
}

ExitCode NoSuchCommand(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const Command& command : commands) names.push_back(command.name);
  const std::string nearest = Nearest(name, names);
  return Refuse(absl::InvalidArgumentError(
      absl::StrCat(QuoteForError(name), " is not a command; ",
                   nearest.empty() ? "see basind --help" : "did you mean " + nearest + "?")));
}

}  // namespace

ExitCode RunBasind(const std::string& version, const std::vector<std::string>& given,
                   const std::vector<std::string>& environment) {
  const std::vector<std::string> arguments = WithHelpBehind(given);
  const std::vector<Command> commands = Commands();
  const bool named = !arguments.empty() && !absl::StartsWith(arguments[0], "-");
  if (!named && !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    Print(Overview(commands));
    return kExitOk;
  }
  const std::string name = named ? arguments[0] : "serve";
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& known) { return known.name == name; });
  if (command == commands.end()) return NoSuchCommand(commands, name);

  Invocation invocation;
  invocation.version = version;
  invocation.arguments.assign(arguments.begin() + (named ? 1 : 0), arguments.end());
  if (name == "shard") invocation.arguments = WithShardOptions(std::move(invocation.arguments));
  invocation.environment = environment;
  invocation.bare = arguments.empty();
  Own own;
  const Findings findings = Read(*command, invocation, own);
  if (own.count("--help") > 0) {
    Print(HelpOf(*command));
    return kExitOk;
  }
  if (!command->configured && !findings.problems.empty()) {
    return Refuse(absl::InvalidArgumentError(findings.problems.front()));
  }
  return command->run(invocation, own, findings);
}

}  // namespace basin::aggregator
