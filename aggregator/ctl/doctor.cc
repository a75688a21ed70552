// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/doctor.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "aggregator/ctl/client.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/reach.h"
#include "aggregator/text/units.h"
#include "basin/v1/session.grpc.pb.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/grpc/failure.h"
#include "grpcpp/create_channel.h"
#include "nlohmann/json.hpp"
#include "protocol/limits/names.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/greeting.h"

namespace basin::aggregator {
namespace {

// A difference of clocks that makes logs hard to compare, and young certificates invalid.
constexpr absl::Duration kMostClockSkew = absl::Seconds(5);

// Calls to measure the round trip with; the median counts.
constexpr int kCalls = 5;

// The bytes of a packet: what loopback interfaces have at least, what Ethernet has by default, and
// the headers of IPv4 and ICMP in a ping.
constexpr uint32_t kLoopbackPackets = 65000;
constexpr uint32_t kEthernetPackets = 1500;
constexpr uint32_t kPingHeaders = 28;

// The bytes by which TCP's options may make a segment shorter than the way allows.
constexpr uint32_t kMostOptions = 40;

// The outcome of a call that changes nothing.
struct Answer {
  absl::Status status;
  std::optional<Greeting> greeting;
};
using Probe = std::function<Answer()>;

// The job that the token is for; empty: not given.
const std::string& JobOf(const Arguments& arguments) {
  return arguments.job.empty() ? arguments.job_of_worker : arguments.job;
}

absl::Status CheckJob(const Arguments& arguments) {
  const std::string& job = JobOf(arguments);
  absl::Status good = job.empty() ? absl::OkStatus() : CheckJobName(job);
  if (good.ok()) return good;
  return absl::InvalidArgumentError(
      absl::StrCat(arguments.job.empty() ? "BASIN_JOB: " : "--job: ", good.message()));
}

class Doctor {
 public:
  Doctor(std::string of, std::string address, const Arguments& arguments)
      : diagnosis_{std::move(of), std::move(address), {}},
        arguments_(arguments),
        job_(JobOf(arguments)) {}

  // The steps up to a connection. False: it makes no sense to continue.
  bool Reach() {
    const absl::StatusOr<Address> address = ParseAddress(diagnosis_.address);
    if (!address.ok()) {
      return Failed("name", address.status(), "Write HOST:PORT, for example 10.0.0.5:29600.");
    }
    const auto found = Resolve(*address);
    if (!found.ok()) {
      return Failed("name", found.status(),
                    absl::StrCat("Check the name ", address->host,
                                 " and the name server. In Kubernetes, it is "
                                 "POD.SERVICE.NAMESPACE.svc, for example "
                                 "basin-0.basin.training.svc."));
    }
    std::string hosts;
    for (const SocketAddress& one : *found) {
      absl::StrAppend(&hosts, hosts.empty() ? "" : ", ", HostOf(one));
    }
    Add({"name", Verdict::kOk, hosts, "", absl::OkStatus()});
    absl::StatusOr<PacketSize> connected = absl::UnavailableError("the name has no address");
    for (const SocketAddress& one : *found) {
      const absl::Time begin = absl::Now();
      connected = Connect(one, arguments_.timeout);
      if (!connected.ok()) continue;
      Add({"tcp", Verdict::kOk,
           absl::StrCat("connected to ", HostOf(one), " in ", ShowTime(absl::Now() - begin)), "",
           absl::OkStatus()});
      Add(JudgePackets(*connected, HostOf(one)));
      return true;
    }
    return Failed("tcp", connected.status(),
                  absl::IsDeadlineExceeded(connected.status())
                      ? "Packets are lost on the way: check firewalls and, in Kubernetes, the "
                        "NetworkPolicy."
                      : "Check that the aggregator runs, and that it listens on this address: its "
                        "log has a line \"serving\" with all addresses.");
  }

  // The credentials for gRPC. Nothing if the files are not good.
  std::shared_ptr<grpc::Channel> OpenChannel() {
    const auto credentials = ChannelCredentialsOf(arguments_.tls);
    if (!credentials.ok()) {
      Failed("tls", credentials.status(), "");
      return nullptr;
    }
    const absl::StatusOr<std::string> token =
        ReadToken(arguments_.token_file, arguments_.tls, diagnosis_.address);
    if (!token.ok()) {
      Failed("token", token.status(), "");
      return nullptr;
    }
    token_ = *token;
    grpc::ChannelArguments channel;
    channel.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return grpc::CreateCustomChannel(diagnosis_.address, *credentials, channel);
  }

  void Prepare(grpc::ClientContext& context) const {
    if (!token_.empty()) context.AddMetadata(kAuthorizationMetadata, kBearer + token_);
    context.set_deadline(absl::ToChronoTime(absl::Now() + arguments_.timeout));
  }

  // The steps that need the aggregator's answer.
  void Ask(const Probe& probe) {
    const Answer answer = probe();
    const bool refused =
        absl::IsUnauthenticated(answer.status) || absl::IsPermissionDenied(answer.status);
    if (!answer.status.ok() && !refused) {
      Failed(arguments_.tls.on() ? "tls" : "answer",
             absl::Status(answer.status.code(), answer.status.message()), "");
      return;
    }
    Add({"tls", arguments_.tls.on() ? Verdict::kOk : Verdict::kSkipped,
         arguments_.tls.on() ? "the certificate is trusted and has this name"
                             : "no BASIN_TLS_CA: the connection is not encrypted",
         "", absl::OkStatus()});
    if (refused) {
      Failed("token", answer.status,
             token_.empty() ? "Set BASIN_TOKEN_FILE to the file of a token."
                            : absl::StrCat("Check that the line of this token is in auth.file of "
                                           "the aggregator, with the role of ",
                                           diagnosis_.of,
                                           job_.empty() ? "" : " and for the job " + job_, "."));
      return;
    }
    const bool for_job =
        !job_.empty() && answer.greeting.has_value() && answer.greeting->job == job_;
    const std::string of_job =
        for_job ? absl::StrCat("for the job ", job_)
                : absl::StrCat("for which jobs was not checked: ",
                               job_.empty() ? "give --job or BASIN_JOB"
                                            : "this aggregator does not report it");
    Add({"token", token_.empty() ? Verdict::kSkipped : Verdict::kOk,
         token_.empty() ? "none is set, and none is required" : "valid, " + of_job, "",
         absl::OkStatus()});
    Measure(probe);
  }

  Diagnosis Take() { return std::move(diagnosis_); }

 private:
  void Add(Finding finding) { diagnosis_.findings.push_back(std::move(finding)); }

  // Always false.
  bool Failed(const char* step, const absl::Status& status, std::string fix) {
    Add({step, Verdict::kFailed, std::string(status.message()), std::move(fix), status});
    return false;
  }

  void Measure(const Probe& probe) {
    std::vector<absl::Duration> times;
    std::optional<Greeting> greeting;
    absl::Duration skew;
    for (int i = 0; i < kCalls; ++i) {
      const absl::Time begin = absl::Now();
      const Answer answer = probe();
      const absl::Time end = absl::Now();
      if (!answer.status.ok()) {
        Failed("round trip", answer.status, "The connection broke: call again.");
        return;
      }
      // The fastest call gives the best estimate of the clock.
      if (answer.greeting.has_value() &&
          (times.empty() || end - begin < *std::min_element(times.begin(), times.end()))) {
        greeting = answer.greeting;
        skew = greeting->time - (begin + (end - begin) / 2);
      }
      times.push_back(end - begin);
    }
    std::sort(times.begin(), times.end());
    Add({"round trip", Verdict::kOk,
         absl::StrCat(ShowTime(times[kCalls / 2]), ", the median of ", kCalls, " calls"), "",
         absl::OkStatus()});
    if (!greeting.has_value()) {
      const std::string why = "this aggregator does not report it";
      Add({"clock", Verdict::kSkipped, why, "", absl::OkStatus()});
      Add({"version", Verdict::kSkipped, why, "", absl::OkStatus()});
      return;
    }
    JudgeClock(skew, times.front());
    JudgeVersion(*greeting);
  }

  void JudgeClock(absl::Duration skew, absl::Duration round_trip) {
    const bool good = absl::AbsDuration(skew) <= kMostClockSkew;
    Add({"clock", good ? Verdict::kOk : Verdict::kWarning,
         absl::StrCat("that of the aggregator is ", ShowTime(absl::AbsDuration(skew)),
                      skew < absl::ZeroDuration() ? " behind" : " ahead", ", within ",
                      ShowTime(round_trip / 2)),
         good ? ""
              : "Synchronise the clocks (NTP). Training does not depend on them, but the validity "
                "of certificates does, and logs are hard to compare.",
         absl::OkStatus()});
  }

  void JudgeVersion(const Greeting& greeting) {
    const std::string what =
        absl::StrCat("basind ", greeting.version, ", protocol ", greeting.protocol_version,
                     "; basinctl ", BASIN_VERSION, ", protocol ", kProtocolVersion);
    if (greeting.protocol_version != kProtocolVersion) {
      const absl::Status status = absl::FailedPreconditionError(what);
      Failed("version", status, "Install the same version on both ends.");
      return;
    }
    const bool same = greeting.version == BASIN_VERSION;
    Add({"version", same ? Verdict::kOk : Verdict::kWarning, what,
         same ? "" : "They understand each other; update the older one.", absl::OkStatus()});
  }

  Diagnosis diagnosis_;
  const Arguments& arguments_;
  const std::string job_;  // Empty: not given.
  std::string token_;      // Empty: none.
};

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "FAILED";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "";
}

std::string AsText(const Diagnosis& diagnosis) {
  std::string text = absl::StrCat(diagnosis.of, " at ", diagnosis.address, "\n");
  for (const Finding& finding : diagnosis.findings) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-8s %-11s", VerdictName(finding.verdict), finding.step),
                    PrintableText(finding.what, kMaxTextBytes), "\n");
    if (!finding.fix.empty()) absl::StrAppend(&text, "           fix:       ", finding.fix, "\n");
  }
  return text;
}

nlohmann::ordered_json AsJson(const Diagnosis& diagnosis) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& finding : diagnosis.findings) {
    findings.push_back({{"step", finding.step},
                        {"verdict", absl::AsciiStrToLower(VerdictName(finding.verdict))},
                        {"what", PrintableText(finding.what, kMaxTextBytes)},
                        {"fix", finding.fix}});
  }
  return {{"of", diagnosis.of}, {"address", diagnosis.address}, {"findings", findings}};
}

}  // namespace

Finding JudgePackets(const PacketSize& size, const std::string& host) {
  Finding finding;
  finding.step = "mtu";
  if (size.way == 0) {
    finding.verdict = Verdict::kSkipped;
    finding.what = "this system does not report it";
    return finding;
  }
  finding.what = absl::StrCat("packets have up to ", size.way, " bytes");
  if (size.way >= kLoopbackPackets) {
    finding.what = "packets stay on this machine";
  } else if (size.ends + kMostOptions < size.way) {
    finding.verdict = Verdict::kWarning;
    absl::StrAppend(&finding.what, " here, and up to ", size.ends, " at the aggregator's end");
    finding.fix =
        "Give the network interfaces on both ends, and all between them, the same MTU. Where they "
        "differ, some packets are lost or cut.";
  } else if (size.way < kEthernetPackets) {
    finding.verdict = Verdict::kWarning;
    absl::StrAppend(&finding.what, ", fewer than the ", kEthernetPackets, " of Ethernet");
    finding.fix =
        "A tunnel or an overlay network on the way (VPN, VXLAN) takes the rest. Training works; "
        "for fewer packets, use hostNetwork on Kubernetes, or raise the MTU below the tunnel.";
  } else if (size.way > kEthernetPackets) {
    absl::StrAppend(&finding.what, ", more than the ", kEthernetPackets, " of Ethernet");
    finding.fix = absl::StrCat(
        "Nothing, if rounds pass. If small calls work and rounds stall, a switch or tunnel on the "
        "way drops such packets: try `ping -M do -s ",
        size.way - kPingHeaders, " ", host,
        "`, and set net.ipv4.tcp_mtu_probing=1 or an MTU of 1500 on both ends.");
  }
  return finding;
}

Diagnosis DiagnoseOperators(const Arguments& arguments) {
  Doctor doctor("operators", arguments.address, arguments);
  if (!doctor.Reach()) return doctor.Take();
  const auto channel = doctor.OpenChannel();
  if (channel == nullptr) return doctor.Take();
  const auto stub = v1::Admin::NewStub(channel);
  const auto described = [&](const grpc::Status& status) {
    return client::DescribeFailure(arguments.address, arguments.tls.on(), status);
  };
  bool checks_job = !JobOf(arguments).empty();
  doctor.Ask([&] {
    grpc::ClientContext context;
    doctor.Prepare(context);
    v1::ServiceStatus status;
    const grpc::Status called =
        stub->GetStatus(&context, Client::With<v1::GetStatusRequest>(), &status);
    if (!called.ok()) return Answer{described(called), {}};
    Answer answer{absl::OkStatus(), GreetingIn(context)};
    if (!std::exchange(checks_job, false)) return answer;
    grpc::ClientContext of_job;
    doctor.Prepare(of_job);
    auto request = Client::With<v1::ListMembersRequest>();
    request.set_job(JobOf(arguments));
    v1::ListMembersResponse members;
    const grpc::Status listed = stub->ListMembers(&of_job, request, &members);
    // A job that does not run is none of the doctor's business.
    if (!listed.ok() && listed.error_code() != grpc::StatusCode::NOT_FOUND) {
      return Answer{described(listed), {}};
    }
    if (answer.greeting.has_value()) answer.greeting->job = JobOf(arguments);
    return answer;
  });
  return doctor.Take();
}

// A session that ends before its first message is complete. The aggregator has checked the token by
// then, and has done nothing else.
Diagnosis DiagnoseWorkers(const Arguments& arguments) {
  Doctor doctor("workers", arguments.workers_address, arguments);
  if (!doctor.Reach()) return doctor.Take();
  const auto channel = doctor.OpenChannel();
  if (channel == nullptr) return doctor.Take();
  const auto stub = v1::Session::NewStub(channel);
  doctor.Ask([&] {
    grpc::ClientContext context;
    doctor.Prepare(context);
    if (!JobOf(arguments).empty()) AskAbout(JobOf(arguments), context);
    const auto stream = stub->Run(&context);
    v1::ToAggregator begun;
    begun.mutable_piece()->set_bytes("x");
    stream->Write(begun);
    stream->WritesDone();
    v1::ToWorker unused;
    while (stream->Read(&unused)) {
    }
    const grpc::Status ended = stream->Finish();
    if (!ended.ok()) {
      return Answer{client::DescribeFailure(arguments.workers_address, arguments.tls.on(), ended),
                    {}};
    }
    return Answer{absl::OkStatus(), GreetingIn(context)};
  });
  return doctor.Take();
}

absl::Status RunDoctor(const Arguments& arguments) {
  if (absl::Status job = CheckJob(arguments); !job.ok()) return job;
  const bool both = arguments.address_given == arguments.workers_address_given;
  std::vector<Diagnosis> diagnoses;
  if (both || arguments.address_given) diagnoses.push_back(DiagnoseOperators(arguments));
  if (both || arguments.workers_address_given) {
    Arguments one = arguments;
    for (const std::string& address : client::AddressesIn(arguments.workers_address)) {
      one.workers_address = address;
      diagnoses.push_back(DiagnoseWorkers(one));
    }
  }
  if (arguments.format == Format::kTable) {
    for (const Diagnosis& diagnosis : diagnoses) Print(AsText(diagnosis));
  } else {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Diagnosis& diagnosis : diagnoses) all.push_back(AsJson(diagnosis));
    const nlohmann::ordered_json reply = {{"diagnoses", all}};
    Print(Structured(reply.dump(), arguments.format));
  }
  for (const Diagnosis& diagnosis : diagnoses) {
    for (const Finding& finding : diagnosis.findings) {
      if (finding.verdict != Verdict::kFailed) continue;
      return absl::Status(finding.status.code(),
                          absl::StrCat(finding.step, " of ", diagnosis.of, " at ",
                                       diagnosis.address, " failed: ", finding.what));
    }
  }
  return absl::OkStatus();
}

}  // namespace basin::aggregator
