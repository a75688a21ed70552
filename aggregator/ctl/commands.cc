// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/commands.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "aggregator/admin/metadata.h"
#include "aggregator/auth/grants.h"
#include "aggregator/config/nearest.h"
#include "aggregator/ctl/arguments.h"
#include "aggregator/ctl/show.h"
#include "aggregator/tls/mint.h"
#include "basin/v1/admin.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "proto/limits/limits.h"
#include "proto/limits/names.h"
#include "proto/status/status.h"
#include "proto/vocabulary/version.h"

namespace basin::aggregator {
namespace {

// The longest name of a token.
constexpr size_t kMostNameBytes = 200;

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void Complain(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// On one line, with the field names of the protocol.
std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Fails for messages with an Any of an unknown type only; ours have none.
  google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

// A connection to the aggregator, and the arguments.
class Client {
 public:
  Client(Arguments arguments, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
         std::string token)
      : arguments_(std::move(arguments)), token_(std::move(token)) {
    grpc::ChannelArguments channel;
    // A proxy that the environment names is for the world outside.
    channel.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = v1::Admin::NewStub(grpc::CreateCustomChannel(arguments_.address, credentials, channel));
  }

  const Arguments& arguments() const { return arguments_; }
  // An argument of the command; the command itself is word 0. REQUIRES: it exists.
  const std::string& word(size_t i) const { return arguments_.words[i]; }
  v1::Admin::Stub& stub() { return *stub_; }

  template <typename Request>
  static Request With() {
    Request request;
    request.mutable_header()->set_magic(kMagic);
    request.mutable_header()->set_protocol_version(kProtocolVersion);
    return request;
  }

  // Calls `method` of the stub.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    Identify(context);
    SetDeadline(context);
    return FromGrpc((stub_.get()->*method)(&context, request, &response));
  }

  void Identify(grpc::ClientContext& context) const {
    if (!token_.empty()) context.AddMetadata(kAuthorizationMetadata, kBearer + token_);
  }
  void SetDeadline(grpc::ClientContext& context) const {
    context.set_deadline(absl::ToChronoTime(absl::Now() + arguments_.timeout));
  }

  template <typename Response>
  void Answer(const Response& response) const {
    Print(arguments_.json ? Json(response) + "\n" : Show(response));
  }

 private:
  const Arguments arguments_;
  const std::string token_;  // Empty: none.
  std::unique_ptr<v1::Admin::Stub> stub_;
};

// ---- the commands

absl::Status RunStatus(Client& client) {
  v1::ServiceStatus status;
  absl::Status called =
      client.Call(&v1::Admin::Stub::GetStatus, Client::With<v1::GetStatusRequest>(), status);
  if (!called.ok()) return called;
  v1::ListJobsResponse jobs;
  called = client.Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (!called.ok()) return called;
  if (client.arguments().json) {
    // One object: {"service": {...}, "jobs": [...]}.
    Print(absl::StrCat("{\"service\":", Json(status), ",", Json(jobs).substr(1), "\n"));
  } else {
    Print(Show(status) + Show(jobs));
  }
  return absl::OkStatus();
}

absl::Status RunMembers(Client& client) {
  auto request = Client::With<v1::ListMembersRequest>();
  request.set_job(client.word(1));
  v1::ListMembersResponse members;
  absl::Status called = client.Call(&v1::Admin::Stub::ListMembers, request, members);
  if (called.ok()) client.Answer(members);
  return called;
}

absl::Status RunRounds(Client& client) {
  auto request = Client::With<v1::ListRoundsRequest>();
  request.set_job(client.word(1));
  request.set_lane(client.arguments().lane);
  request.set_last(client.arguments().last);
  v1::ListRoundsResponse rounds;
  absl::Status called = client.Call(&v1::Admin::Stub::ListRounds, request, rounds);
  if (called.ok()) client.Answer(rounds);
  return called;
}

// The number of the newest event when the call began; nothing if the call was refused.
std::optional<uint64_t> LastEvent(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find(kLastEventMetadata);
  uint64_t last = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &last)) {
    return std::nullopt;
  }
  return last;
}

absl::Status RunEvents(Client& client) {
  const Arguments& arguments = client.arguments();
  auto request = Client::With<v1::WatchEventsRequest>();
  request.set_job(arguments.job);
  request.set_after(arguments.after);
  grpc::ClientContext context;
  client.Identify(context);
  // With -f there is no deadline.
  if (!arguments.follow) client.SetDeadline(context);
  const auto reader = client.stub().WatchEvents(&context, request);
  reader->WaitForInitialMetadata();
  const std::optional<uint64_t> last = LastEvent(context);
  v1::Event event;
  bool complete = !arguments.follow && last.has_value() && *last <= arguments.after;
  while (!complete && reader->Read(&event)) {
    client.Answer(event);
    std::fflush(stdout);
    complete = !arguments.follow && last.has_value() && event.sequence() >= *last;
  }
  if (complete) {
    context.TryCancel();
    reader->Finish();
    return absl::OkStatus();
  }
  return FromGrpc(reader->Finish());
}

// "drain service", "drain worker JOB WORKER".
absl::Status RunDrain(Client& client) {
  v1::ChangeResponse change;
  absl::Status called;
  if (client.word(1) == "service") {
    called = client.Call(&v1::Admin::Stub::DrainService, Client::With<v1::DrainServiceRequest>(),
                         change);
  } else if (client.word(1) == "worker" && client.arguments().words.size() == 4) {
    auto request = Client::With<v1::DrainWorkerRequest>();
    request.set_job(client.word(2));
    request.set_worker(client.word(3));
    called = client.Call(&v1::Admin::Stub::DrainWorker, request, change);
  } else {
    return absl::InvalidArgumentError(
        "write `basinctl drain service` or `basinctl drain worker JOB WORKER`");
  }
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunEvict(Client& client) {
  auto request = Client::With<v1::EvictRequest>();
  request.set_job(client.word(1));
  request.set_worker(client.word(2));
  request.set_reason(client.arguments().reason);
  v1::ChangeResponse change;
  absl::Status called = client.Call(&v1::Admin::Stub::Evict, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunReportExit(Client& client) {
  auto request = Client::With<v1::ReportExitRequest>();
  request.set_job(client.word(1));
  request.set_worker(client.word(2));
  request.set_exit_status(client.arguments().exit_status);
  v1::ChangeResponse change;
  absl::Status called = client.Call(&v1::Admin::Stub::ReportExit, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

// A change of a job that needs no more than its name.
template <typename Request, typename Method>
absl::Status ChangeJob(Client& client, Method method) {
  auto request = Client::With<Request>();
  request.set_job(client.word(1));
  v1::ChangeResponse change;
  absl::Status called = client.Call(method, request, change);
  if (called.ok()) client.Answer(change);
  return called;
}

absl::Status RunPause(Client& client) {
  return ChangeJob<v1::PauseRequest>(client, &v1::Admin::Stub::Pause);
}
absl::Status RunResume(Client& client) {
  return ChangeJob<v1::ResumeRequest>(client, &v1::Admin::Stub::Resume);
}
absl::Status RunRecover(Client& client) {
  return ChangeJob<v1::RecoverRequest>(client, &v1::Admin::Stub::Recover);
}

// ---- without an aggregator

absl::Status RunToken(const Arguments& arguments) {
  if (arguments.words[1] != "new") {
    return absl::InvalidArgumentError("write `basinctl token new --jobs=JOBS`");
  }
  if (arguments.jobs.empty()) {
    return absl::InvalidArgumentError("--jobs is missing; write the name of a job, or '*' for all");
  }
  if (const absl::StatusOr<Role> role = ParseRole(arguments.role); !role.ok()) return role.status();
  if (absl::Status jobs = CheckJobs(arguments.jobs); !jobs.ok()) return jobs;
  if (!IsPrintable(arguments.name) || arguments.name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError("--name must be a short text of printable characters");
  }
  const absl::StatusOr<std::string> token = NewToken();
  if (!token.ok()) return token.status();
  Print(*token + "\n");
  Complain(absl::StrCat(arguments.role, " ", arguments.jobs, " ", ToString(HashOf(*token)),
                        arguments.name.empty() ? "" : " " + arguments.name, "\n"));
  return absl::OkStatus();
}

// Only the owner may read it. Refuses to replace a file.
absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = std::strerror(errno);
  if (file >= 0) close(file);
  if (written) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, " cannot be written: ", why));
}

// "DNS:a" or "IP:1.2.3.4", as OpenSSL has them.
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  in6_addr unused = {};
  if (inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
      inet_pton(AF_INET6, host.c_str(), &unused) == 1) {
    return "IP:" + host;
  }
  const bool is_name = !host.empty() && host.size() <= 253 &&
                       host.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == std::string::npos;
  if (is_name) return "DNS:" + host;
  return absl::InvalidArgumentError(
      absl::StrCat("--host is ", QuoteForError(host), ": it is neither a name nor an address"));
}

absl::Status RunDevCerts(const Arguments& arguments) {
  const std::string& folder = arguments.words[1];
  CertificateRequest request;
  request.names = {"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
  for (const std::string& host : arguments.names) {
    absl::StatusOr<std::string> name = AlternativeName(host);
    if (!name.ok()) return name.status();
    request.names.push_back(*std::move(name));
  }
  // Clocks of machines differ.
  request.not_before = absl::Now() - absl::Hours(1);
  request.not_after = absl::Now() + arguments.lifetime;
  request.name = "Basin development CA";
  const absl::StatusOr<KeyPair> ca = MintCa(request);
  if (!ca.ok()) return ca.status();
  request.name = "basind";
  request.for_server = true;
  const absl::StatusOr<KeyPair> server = Mint(*ca, request);
  if (!server.ok()) return server.status();
  request.name = "client";
  request.names = {"DNS:client"};
  request.for_server = false;
  request.for_client = true;
  const absl::StatusOr<KeyPair> client = Mint(*ca, request);
  if (!client.ok()) return client.status();
  if (mkdir(folder.c_str(), 0700) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder ", folder, " cannot be made: ", std::strerror(errno), "; name a new folder"));
  }
  for (const auto& [name, text] : {std::pair{"/ca.crt", &ca->cert},
                                   {"/server.crt", &server->cert},
                                   {"/server.key", &server->key},
                                   {"/client.crt", &client->cert},
                                   {"/client.key", &client->key}}) {
    if (absl::Status written = WriteNewFile(folder + name, *text); !written.ok()) return written;
  }
  Print(absl::StrCat("aggregator: basind --tls-cert=", folder, "/server.crt --tls-key=", folder,
                     "/server.key\nworkers, basinctl: export BASIN_TLS_CA=", folder,
                     "/ca.crt\nWith --tls-client-ca=", folder,
                     "/ca.crt they also need: export BASIN_TLS_CERT=", folder,
                     "/client.crt BASIN_TLS_KEY=", folder, "/client.key\n"));
  return absl::OkStatus();
}

// ---- which of them

struct Command {
  std::string name;
  std::string usage;  // Behind the name, with every flag that the command has of its own.
  std::string summary;
  std::string details;  // What a user should know.
  std::vector<std::string> examples;
  size_t least_words;  // With the name.
  size_t most_words;
  absl::Status (*run)(Client&);                             // Null: it needs no aggregator,
  absl::Status (*run_offline)(const Arguments&) = nullptr;  // but this.
};

const std::vector<Command>& Commands() {
  static const std::vector<Command>& commands = *new std::vector<Command>{
      {"status",
       "",
       "show the service and its jobs",
       "Shows the state of each job and, while it waits, the cause.",
       {"basinctl status", "basinctl status -o json"},
       1,
       1,
       RunStatus},
      {"members",
       "JOB",
       "list the workers of a job",
       "Lists the members by rank, then joiners, spares, and workers that have finished.",
       {"basinctl members vision"},
       2,
       2,
       RunMembers},
      {"rounds",
       "JOB [--lane=LANE] [--last=N]",
       "show open rounds, what they wait for, and the last",
       "Names a worker that each open round waits for, and the tensor. --last: the number of "
       "past\nrounds of each lane (2); the aggregator remembers only a few. -o json prints the "
       "whole\nreply: op, scales, divisor, effective batch, norms, contributors.",
       {"basinctl rounds vision", "basinctl rounds vision --lane=gradients --last=1 -o json"},
       2,
       2,
       RunRounds},
      {"events",
       "[-f] [--job=JOB] [--after=N]",
       "show past events; -f: and new ones",
       "Shows the numbered decisions of the aggregator with their reasons. -f continues until "
       "Ctrl-C,\nor, with --job, until that job ends. --after: only events with a higher number.",
       {"basinctl events --job=vision", "basinctl events -f --after=1500"},
       1,
       1,
       RunEvents},
      {"drain",
       "worker JOB WORKER | service",
       "stop a worker, or the aggregator, in order",
       "A worker ends its open rounds and is not in the next generation. The service admits no "
       "more\nworkers, ends the open rounds within drain.grace, and exits.",
       {"basinctl drain worker vision w-7", "basinctl drain service"},
       2,
       4,
       RunDrain},
      {"evict",
       "JOB WORKER [--reason=TEXT]",
       "end a worker's membership now",
       "The open round continues without a contribution that the worker has not sent in full. "
       "The\nworker receives the reason, and can rejoin with the state of the others.",
       {"basinctl evict vision w-7 --reason='wrong data set'"},
       3,
       3,
       RunEvict},
      {"report-exit",
       "JOB WORKER [--status=N]",
       "report that a worker's process has ended",
       "For launchers: without it the aggregator waits for the worker's lease. --status: the "
       "exit\nstatus of the process, or minus the signal that ended it.",
       {"basinctl report-exit vision w-7 --status=-9"},
       3,
       3,
       RunReportExit},
      {"pause",
       "JOB",
       "suspend a job",
       "No round opens or ends until `basinctl resume`. Nothing is lost.",
       {"basinctl pause vision"},
       2,
       2,
       RunPause},
      {"resume",
       "JOB",
       "resume a suspended job",
       "Ends a suspension by `basinctl pause`.",
       {"basinctl resume vision"},
       2,
       2,
       RunResume},
      {"recover",
       "JOB",
       "end a halted recovery with the workers that are back",
       "A restarted aggregator halts when too few workers are back to know the last round. "
       "This\ncommand continues with those that are back: what only the others had is lost, and is "
       "reported.",
       {"basinctl status", "basinctl recover vision"},
       2,
       2,
       RunRecover},
      {"token",
       "new --jobs=JOBS [--role=ROLE] [--name=TEXT]",
       "make a token, and its line for auth.file",
       "Prints the token on standard output, for the file of BASIN_TOKEN_FILE, and the line for "
       "the\naggregator's auth.file on standard error; the line has only a hash of the token. "
       "--jobs: a\njob, or the beginning of names before *. --role: worker (the default), "
       "observer, or admin.\nNeeds no aggregator.",
       {"basinctl token new --jobs='team-a/*' --name='team a' > token 2>> grants",
        "basinctl token new --jobs='*' --role=admin"},
       2,
       2,
       nullptr,
       RunToken},
      {"dev-certs",
       "FOLDER [--host=HOST] [--lifetime=DURATION]",
       "make a CA and certificates for development",
       "Writes ca.crt, server.crt, server.key, client.crt and client.key into a new folder. "
       "--host: a\nname or address of the aggregator besides localhost; can be repeated. "
       "--lifetime: 720h by\ndefault. The key of the CA is not kept. Needs no aggregator.",
       {"basinctl dev-certs certs --host=trainer-1 --host=10.0.0.5"},
       2,
       2,
       nullptr,
       RunDevCerts},
  };
  return commands;
}

std::string Usage(const Command& command) {
  return absl::StrCat(command.name, command.usage.empty() ? "" : " ", command.usage);
}

constexpr char kFlagsOfAll[] =
    "\nflags:\n  --address=HOST:PORT   the aggregator's admin.listen (127.0.0.1:29602; also\n      "
    "                  BASIN_ADMIN_ADDRESS)\n  --tls-ca=FILE         connect with TLS; the CA of "
    "the "
    "aggregator's certificate (also BASIN_TLS_CA)\n  --tls-cert=FILE       certificate of this "
    "operator, if required (also BASIN_TLS_CERT)\n  --tls-key=FILE        its private key (also "
    "BASIN_TLS_KEY)\n  --token-file=FILE     a token, if required (also BASIN_TOKEN_FILE)\n  -o, "
    "--output=FORMAT   table (the default) or json, "
    "with the field names of the protocol\n  --timeout=DURATION    how long to wait for an answer "
    "(10s)\n";

std::string Examples(const std::vector<std::string>& examples) {
  return absl::StrCat("\nexamples:\n  ", absl::StrJoin(examples, "\n  "), "\n");
}

std::string HelpOf(const Command& command) {
  return absl::StrCat("basinctl ", command.name, ": ", command.summary, "\n\nusage: basinctl ",
                      Usage(command), "\n\n", command.details, "\n", kFlagsOfAll,
                      Examples(command.examples));
}

std::string Help() {
  std::string text =
      "basinctl shows and controls a running aggregator.\n\nusage: basinctl COMMAND ... "
      "[flags]\n\ncommands:\n";
  for (const Command& command : Commands()) {
    const std::string usage = Usage(command);
    absl::StrAppend(&text, "  ", usage, std::string(usage.size() < 38 ? 38 - usage.size() : 1, ' '),
                    command.summary, "\n");
  }
  return absl::StrCat(text, "\n`basinctl COMMAND --help` describes a command.\n", kFlagsOfAll,
                      Examples({"basinctl status", "basinctl rounds vision -o json",
                                "basinctl events -f --job=vision",
                                "basinctl evict vision w-7 --reason='wrong data set'"}),
                      "\nexit codes: 0 ok, 1 failed, 2 usage, 3 unreachable, 4 denied, 5 not "
                      "found,\n6 precondition, 7 timeout\n");
}

ExitCode Refuse(const absl::Status& status) {
  Complain(absl::StrCat("basinctl: ", PrintableText(std::string(status.message()), kMaxTextBytes),
                        "\n"));
  return ExitCodeOf(status);
}

// The command that `words` begin with; nullptr: none of that name.
const Command* FindNamed(const std::vector<std::string>& words) {
  for (const Command& command : Commands()) {
    if (!words.empty() && command.name == words[0]) return &command;
  }
  return nullptr;
}

absl::Status Unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteForError(name), " is not a command; ",
                   nearest.empty() ? "see basinctl --help" : "did you mean " + nearest + "?"));
}

absl::Status CheckUse(const Command& command, const Arguments& arguments) {
  const size_t words = arguments.words.size();
  if (words < command.least_words || words > command.most_words) {
    return absl::InvalidArgumentError(absl::StrCat("write `basinctl ", Usage(command), "`"));
  }
  for (const std::string& flag : arguments.own_flags) {
    if (absl::StrContains(command.usage, flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(command.name, " takes no ", flag, "; write `basinctl ", Usage(command), "`"));
  }
  return absl::OkStatus();
}

}  // namespace

ExitCode RunBasinctl(const std::vector<std::string>& arguments, const Environment& environment) {
  absl::StatusOr<Arguments> read = ReadArguments(arguments, environment);
  if (!read.ok()) return Refuse(read.status());
  const Command* command = FindNamed(read->words);
  if (read->help) {
    Print(command != nullptr ? HelpOf(*command) : Help());
    return kExitOk;
  }
  if (read->words.empty()) {
    return Refuse(absl::InvalidArgumentError("a command is missing; see basinctl --help"));
  }
  if (command == nullptr) return Refuse(Unknown(read->words[0]));
  if (const absl::Status use = CheckUse(*command, *read); !use.ok()) return Refuse(use);
  if (command->run_offline != nullptr) {
    const absl::Status run = command->run_offline(*read);
    return run.ok() ? kExitOk : Refuse(run);
  }
  const auto credentials = ChannelCredentialsOf(read->tls);
  if (!credentials.ok()) return Refuse(credentials.status());
  const absl::StatusOr<std::string> token = ReadToken(read->token_file, read->tls, read->address);
  if (!token.ok()) return Refuse(token.status());
  Client client(*std::move(read), *credentials, *token);
  const absl::Status run = command->run(client);
  if (run.ok()) return kExitOk;
  if (absl::IsUnavailable(run)) {
    Complain(absl::StrCat("basinctl: nothing answers on ", client.arguments().address,
                          "; check that the aggregator runs, that this is its admin.listen, and ",
                          client.arguments().tls.on()
                              ? "that BASIN_TLS_CA is the CA of its certificate\n"
                              : "set BASIN_TLS_CA if it has tls.cert\n"));
  }
  return Refuse(run);
}

}  // namespace basin::aggregator
