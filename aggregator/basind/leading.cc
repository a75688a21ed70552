// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/leading.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "aggregator/basind/process.h"
#include "aggregator/core/term.h"
#include "aggregator/leadership/etcd/etcd_authority.h"
#include "aggregator/leadership/file_authority.h"
#include "aggregator/leadership/kubernetes/kubernetes_authority.h"
#include "aggregator/leadership/one_deployment.h"
#include "aggregator/text/authority_name.h"
#include "aggregator/text/units.h"

namespace basin::aggregator {
namespace {

constexpr char kTriesOthers[] = "The worker tries its other addresses by itself.";

// As no other process is called: its host, and a random number.
std::string NewHolder() {
  std::string name = HostName();
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !absl::ascii_isalnum(c) && c != '-' && c != '.'; }, '-');
  std::random_device random;
  return absl::StrCat(name.empty() ? "basind" : name, "-",
                      absl::Hex(uint64_t{random()} << 32 | random(), absl::kZeroPad16));
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As Kubernetes tells its pods.
KubernetesPlace PlaceOfThisPod() {
  KubernetesPlace place;
  place.server.host = Variable("KUBERNETES_SERVICE_HOST");
  int port = 0;
  if (absl::SimpleAtoi(Variable("KUBERNETES_SERVICE_PORT"), &port) && port > 0 && port < 65536) {
    place.server.port = static_cast<uint16_t>(port);
  } else {
    place.server.host.clear();
  }
  place.account = "/var/run/secrets/kubernetes.io/serviceaccount";
  return place;
}

absl::StatusOr<std::unique_ptr<Authority>> OpenAuthority(const StandbySettings& settings,
                                                         const std::string& holder) {
  const absl::StatusOr<AuthorityName> name = ParseAuthorityName(settings.authority);
  if (!name.ok()) return name.status();
  switch (name->kind) {
    case AuthorityName::Kind::kDirectory:
      return FileAuthority::Open(name->directory, holder);
    case AuthorityName::Kind::kLease:
      return KubernetesAuthority::Open(PlaceOfThisPod(), name->space, name->lease);
    case AuthorityName::Kind::kEtcd:
      return EtcdAuthority::Open({name->endpoints, settings.etcd_tls, settings.etcd_user_path},
                                 name->key);
  }
  return absl::InternalError("not reached");
}

absl::Status NotTheLeader(const LeaderView& view) {
  return absl::UnavailableError(
      absl::StrCat("This aggregator is not the leader; ", view.InWords(), ". ", kTriesOthers));
}

}  // namespace

absl::Status NobodyLeadsYet() { return NotTheLeader(LeaderView()); }

absl::StatusOr<std::unique_ptr<Leading>> Leading::Open(const Settings& settings, Clock& clock,
                                                       Gate& gate, Engine& engine,
                                                       GrpcServer& server, Report report) {
  std::unique_ptr<Leading> leading(
      new Leading(settings, clock, gate, engine, server, std::move(report)));
  absl::StatusOr<std::unique_ptr<Authority>> authority =
      OpenAuthority(settings.standby, leading->holder_);
  if (!authority.ok()) return authority.status();
  leading->authority_ = std::make_unique<OneDeployment>(
      *std::move(authority), settings.standby.authority, settings.standby.deployment);
  return leading;
}

Leading::Leading(const Settings& settings, Clock& clock, Gate& gate, Engine& engine,
                 GrpcServer& server, Report report)
    : settings_(settings.standby),
      unnoticed_pause_(settings.core.stall_threshold),
      holder_(NewHolder()),
      term_random_(settings.core.term_random),
      clock_(clock),
      gate_(gate),
      engine_(engine),
      server_(server),
      report_(std::move(report)) {}

void Leading::Start(const std::string& address) {
  address_ = settings_.address.empty() ? address : settings_.address;
  CandidateActions actions;
  actions.begin_leading = [this](uint64_t fence) { Begin(fence); };
  actions.decide_until = [this](absl::Time until) {
    gate_.OpenUntil(until);
    engine_.LookAgain();
  };
  actions.end_leading = [this](const std::string& why) { End(why); };
  actions.changed = [this](const LeaderView& view) { OnChange(view); };
  candidate_ = std::make_unique<Candidate>(
      LeadershipConfig{holder_, address_, settings_.lease, unnoticed_pause_}, *authority_, clock_,
      std::move(actions));
  report_(LogLevel::kInfo, "standby",
          absl::StrCat("This aggregator is ", holder_, " at ", address_, " and stands by; ",
                       settings_.authority, " decides who leads, with a lease of ",
                       ShowDuration(settings_.lease), "."));
  candidate_->Start();
}

void Leading::Stop() {
  if (candidate_ != nullptr) candidate_->Stop();
}

absl::Status Leading::StepDown() {
  const LeaderView before = view();
  if (!before.leads) return absl::FailedPreconditionError(NotTheLeader(before).message());
  server_.EndRounds(/*keeps_sessions=*/true);
  return candidate_->StepDown();
}

absl::Status Leading::Ready() const {
  const LeaderView now = view();
  if (!now.leads) return NotTheLeader(now);
  if (gate_.open()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("This aggregator leads, but could not renew its lead in time, so rounds wait",
                   now.trouble.empty() ? "" : absl::StrCat(": ", now.trouble), "."));
}

absl::Status Leading::ReadyToTakeOver() const {
  const LeaderView now = view();
  const bool follows = !now.leads && now.Names() && now.trouble.empty();
  return follows ? absl::OkStatus() : Ready();
}

LeaderView Leading::view() const {
  return candidate_ == nullptr ? LeaderView() : candidate_->view();
}

std::string Leading::InWords() const {
  const LeaderView now = view();
  if (!now.leads) return absl::StrCat("stands by; ", now.InWords());
  return gate_.open() ? absl::StrCat("leads with fence ", now.fence)
                      : "leads, but may not decide now";
}

std::vector<Total> Leading::Totals() const {
  const LeaderView now = view();
  return {
      {"basin_leader", "Whether this aggregator leads and may decide.", uint64_t{Ready().ok()}, "",
       Total::Kind::kGauge},
      {"basin_leader_known", "Whether the authority answers and names a leader.",
       uint64_t{now.trouble.empty() && now.Names()}, "", Total::Kind::kGauge},
      {"basin_leader_fence", "The number of the lead, which grows with each change.", now.fence, "",
       Total::Kind::kGauge},
      {"basin_leads_total", "How often this aggregator began to lead.", now.begun},
  };
}

void Leading::Begin(uint64_t fence) {
  const Term term = TermOfFence(fence, term_random_);
  server_.Lead(term);
  report_(LogLevel::kInfo, "leads",
          absl::StrCat("This aggregator leads from now on, with fence ", fence, " and term ", term,
                       "; jobs recover from their workers."));
}

void Leading::End(const std::string& why) {
  report_(LogLevel::kWarning, "leads_no_more",
          absl::StrCat("This aggregator leads no more: ", why,
                       ". Its sessions end, and workers look for the new leader."));
  server_.Follow(absl::UnavailableError(
      absl::StrCat("This aggregator is not the leader any more: ", why, ". ", kTriesOthers)));
}

void Leading::OnChange(const LeaderView& view) {
  if (!view.trouble.empty()) {
    report_(LogLevel::kWarning, "authority_away",
            absl::StrCat("What decides who leads gives no answer that counts: ", view.trouble,
                         view.leads ? ". Without one this aggregator stops deciding when its lease "
                                      "ends, and goes on with the next one."
                                    : ". This aggregator cannot take the lead."));
  }
  if (view.leads) return;
  server_.Refuse(NotTheLeader(view));
  if (view.trouble.empty()) {
    report_(LogLevel::kInfo, "follows",
            absl::StrCat("This aggregator stands by; ", view.InWords(), "."));
  }
}

}  // namespace basin::aggregator
