// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/auth/access.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/auth/grants.h"
#include "basin/v1/admin.pb.h"
#include "basin/v1/exchange.pb.h"
#include "basin/v1/session.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- the table

// Every cell: whether a worker, an observer, an admin, a shard may call it.
struct Cell {
  Rpc rpc;
  bool worker, observer, admin;
  bool shard = false;
};
constexpr Cell kCells[] = {
    {Rpc::kSession, true, false, false},      {Rpc::kExchange, true, false, false},
    {Rpc::kGetStatus, false, true, true},     {Rpc::kListJobs, false, true, true},
    {Rpc::kListMembers, false, true, true},   {Rpc::kListRounds, false, true, true},
    {Rpc::kWatchEvents, false, true, true},   {Rpc::kGetLimits, false, true, true},
    {Rpc::kDump, false, true, true},          {Rpc::kDrainWorker, false, false, true},
    {Rpc::kDrainService, false, false, true}, {Rpc::kStepDown, false, false, true},
    {Rpc::kEvict, false, false, true},        {Rpc::kPause, false, false, true},
    {Rpc::kResume, false, false, true},       {Rpc::kSetJob, false, false, true},
    {Rpc::kRecover, false, false, true},      {Rpc::kReportExit, true, false, true},
    {Rpc::kListShards, false, true, true},    {Rpc::kShard, false, false, false, true},
};

TEST(Access, Fault_S2_EveryCellOfTheTable) {
  ASSERT_EQ(std::size(kCells), kRpcs);
  for (const Cell& cell : kCells) {
    for (const auto& [role, allowed] :
         {std::pair{CallerRole::kWorker, cell.worker},
          std::pair{CallerRole::kObserver, cell.observer},
          std::pair{CallerRole::kAdmin, cell.admin}, std::pair{CallerRole::kShard, cell.shard}}) {
      const std::string what = absl::StrCat(RoleName(role), " ", RpcName(cell.rpc));
      EXPECT_EQ(Allows(role, cell.rpc), allowed) << what;
      const Decision decision = allowed ? Decision::kAllowed : Decision::kWrongRole;
      EXPECT_EQ(Decide({"", role, "*"}, cell.rpc, ""), decision) << what;
      EXPECT_EQ(Decide({"", role, "*"}, cell.rpc, "a"), decision) << what;
      EXPECT_EQ(Decide({"", role, "a"}, cell.rpc, "a"),
                allowed && ScopeOf(cell.rpc) == Scope::kService ? Decision::kWrongJob : decision)
          << what;
      if (!allowed || ScopeOf(cell.rpc) == Scope::kAny) continue;
      EXPECT_EQ(Decide({"", role, "a"}, cell.rpc, "b"), Decision::kWrongJob) << what;
      EXPECT_EQ(Decide({"", role, "a*"}, cell.rpc, ""), Decision::kWrongJob) << what;
    }
  }
}

TEST(Access, EveryRpcOfTheProtocolIsInTheTable) {
  std::set<std::string> served;
  const auto* admin = v1::GetStatusRequest::descriptor()->file()->FindServiceByName("Admin");
  for (int i = 0; i < admin->method_count(); ++i) served.insert(admin->method(i)->name());
  served.insert({"Session", "Exchange", "Shard"});
  std::set<std::string> known;
  for (int i = 0; i < kRpcs; ++i) known.insert(RpcName(static_cast<Rpc>(i)));
  EXPECT_EQ(known, served);
}

TEST(Access, AGrantCoversAJobOrABeginningOfNames) {
  EXPECT_TRUE((Grant{"", CallerRole::kWorker, "a"}).Covers("a"));
  EXPECT_FALSE((Grant{"", CallerRole::kWorker, "a"}).Covers("ab"));
  EXPECT_FALSE((Grant{"", CallerRole::kWorker, "ab"}).Covers("a"));
  EXPECT_TRUE((Grant{"", CallerRole::kWorker, "team-a/*"}).Covers("team-a/vision"));
  EXPECT_FALSE((Grant{"", CallerRole::kWorker, "team-a/*"}).Covers("team-b/vision"));
  EXPECT_FALSE((Grant{"", CallerRole::kWorker, "team-a/*"}).Covers("team-a"));
  EXPECT_TRUE((Grant{"", CallerRole::kWorker, "*"}).Covers("anything"));
}

// ---- the file

Credentials With(const std::string& token) { return {true, HashOf(token), {}}; }

std::string ProblemOf(const std::string& text) {
  const absl::StatusOr<Grants> grants = Grants::Parse(text);
  return grants.ok() ? "" : std::string(grants.status().message());
}

TEST(Grants, ATokenHasTheRightsOfItsLines) {
  const std::string token = *NewToken();
  const absl::StatusOr<Grants> grants = Grants::Parse(
      absl::StrCat("# comment\n\nworker vision* ", ToString(HashOf(token)),
                   " vision trainers\nobserver\tvision ", ToString(HashOf(token)), "\r\n"));
  ASSERT_TRUE(grants.ok()) << grants.status();
  EXPECT_EQ(grants->size(), 2u);
  const Grants::Answer allowed = grants->Check(With(token), Rpc::kSession, "vision-2");
  EXPECT_EQ(allowed.decision, Decision::kAllowed);
  EXPECT_EQ(allowed.grant->name, "vision trainers");
  EXPECT_EQ(grants->Check(With(token), Rpc::kListRounds, "vision").decision, Decision::kAllowed);
  EXPECT_EQ(grants->Check(With(token), Rpc::kSession, "text").decision, Decision::kWrongJob);
  EXPECT_EQ(grants->Check(With(token), Rpc::kEvict, "vision").decision, Decision::kWrongRole);
  EXPECT_EQ(grants->Check(With(token + "x"), Rpc::kSession, "vision").decision,
            Decision::kUnknownCredential);
  EXPECT_EQ(grants->Check(With(""), Rpc::kSession, "vision").decision,
            Decision::kUnknownCredential);
  EXPECT_EQ(grants->Check({}, Rpc::kSession, "vision").decision, Decision::kNoCredential);
}

TEST(Grants, ANameInACertificateIsTheOtherSource) {
  const absl::StatusOr<Grants> grants =
      Grants::Parse("admin * san:spiffe://cluster.local/ns/ops/sa/basinctl\n");
  ASSERT_TRUE(grants.ok()) << grants.status();
  Credentials caller;
  caller.sans = {"localhost", "spiffe://cluster.local/ns/ops/sa/basinctl"};
  EXPECT_EQ(grants->Check(caller, Rpc::kDrainService, "").decision, Decision::kAllowed);
  caller.sans.pop_back();
  EXPECT_EQ(grants->Check(caller, Rpc::kDrainService, "").decision, Decision::kUnknownCredential);
}

// A hash of zeros is no token that an empty credential could be.
TEST(Grants, NoTokenFitsNoHash) {
  const absl::StatusOr<Grants> grants =
      Grants::Parse("admin * sha256:" + std::string(64, '0') + "\n");
  Credentials caller;
  caller.sans = {"a"};
  EXPECT_EQ(grants->Check(caller, Rpc::kGetStatus, "").decision, Decision::kUnknownCredential);
}

TEST(Grants, MistakesNameTheLineAndNoSecret) {
  const std::string hash = ToString(HashOf("x"));
  EXPECT_THAT(ProblemOf("worker a " + hash + "\nroot a " + hash),
              AllOf(HasSubstr("line 2"), HasSubstr("\"root\" is no role")));
  EXPECT_THAT(ProblemOf("worker A " + hash), HasSubstr("\"A\" is neither the name of a job"));
  EXPECT_THAT(ProblemOf("worker *a " + hash), HasSubstr("neither the name of a job"));
  EXPECT_THAT(ProblemOf("worker a"), HasSubstr("ROLE JOBS CREDENTIAL"));
  const std::string token = *NewToken();
  EXPECT_THAT(ProblemOf("worker a " + token),
              AllOf(HasSubstr("basinctl token new"), Not(HasSubstr(token))));
  EXPECT_THAT(ProblemOf("worker a sha256:12"), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(ProblemOf("worker a san:"), HasSubstr("64 hexadecimal digits"));
}

TEST(Grants, TokensAreLongAndDiffer) {
  const std::string first = *NewToken();
  EXPECT_EQ(first.size(), 6u + 43u);
  EXPECT_NE(first, *NewToken());
  EXPECT_EQ(ToString(HashOf("abc")),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// ---- the gatekeeper

TEST(Gatekeeper, WithoutGrantsEverythingIsAllowed) {
  Gatekeeper gatekeeper;
  EXPECT_TRUE(gatekeeper.Check({}, Rpc::kDrainService, "").for_peer.ok());
}

TEST(Gatekeeper, ARefusalIsCountedAndTellsThePeerLess) {
  Gatekeeper gatekeeper;
  gatekeeper.Replace(
      *Grants::Parse("worker vision " + ToString(HashOf("secret")) + " vision trainers"));
  EXPECT_TRUE(gatekeeper.Check(With("secret"), Rpc::kSession, "vision").for_peer.ok());
  const Gatekeeper::Ruling ruling =
      gatekeeper.Check(With("secret"), Rpc::kSession, "text", "worker w-7 of job text");
  EXPECT_EQ(ruling.for_peer.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(ruling.for_peer.message()), Not(HasSubstr("vision")));
  EXPECT_THAT(ruling.for_operator,
              AllOf(HasSubstr("Session of worker w-7 of job text was refused (wrong_job)"),
                    HasSubstr("vision trainers has role worker for jobs vision"),
                    Not(HasSubstr("secret"))));
  EXPECT_EQ(gatekeeper.Check({}, Rpc::kSession, "vision").for_peer.code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(gatekeeper.refused(Decision::kWrongJob), 1u);
  EXPECT_EQ(gatekeeper.refused(Decision::kNoCredential), 1u);
  EXPECT_EQ(gatekeeper.refused(Decision::kAllowed), 0u);
}

TEST(Gatekeeper, AWrongRoleIsNamedWithTheOneThatIsNeeded) {
  Gatekeeper gatekeeper;
  gatekeeper.Replace(*Grants::Parse("worker vision " + ToString(HashOf("w")) + "\nshard vision* " +
                                    ToString(HashOf("s"))));
  const auto text = [&](std::string_view token, Rpc rpc) {
    const Gatekeeper::Ruling ruling = gatekeeper.Check(With(std::string(token)), rpc, "vision");
    EXPECT_EQ(ruling.for_peer.code(), absl::StatusCode::kPermissionDenied);
    return std::string(ruling.for_peer.message());
  };
  EXPECT_THAT(text("w", Rpc::kShard),
              AllOf(HasSubstr("has the role worker, and Shard needs the role shard."),
                    HasSubstr("(auth.file)"), Not(HasSubstr("name of the job"))));
  EXPECT_THAT(text("w", Rpc::kListRounds), HasSubstr("needs the role observer or admin."));
  EXPECT_THAT(text("s", Rpc::kSession), HasSubstr("has the role shard, and Session needs the role "
                                                  "worker."));
  EXPECT_THAT(text("s", Rpc::kShard),
              AllOf(HasSubstr("for some jobs only"), HasSubstr("that is for the jobs *")));
}

TEST(Gatekeeper, RemovalRevokesAtOnce) {
  Gatekeeper gatekeeper;
  gatekeeper.Replace(*Grants::Parse("worker * " + ToString(HashOf("secret"))));
  EXPECT_TRUE(gatekeeper.MayCall(With("secret"), Rpc::kSession, "a"));
  gatekeeper.Replace(*Grants::Parse(""));
  EXPECT_FALSE(gatekeeper.MayCall(With("secret"), Rpc::kSession, "a"));
}

}  // namespace
}  // namespace basin::aggregator
