// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The doctor before aggregators with another clock or version; test_basinctl.py has the rest.

#include "aggregator/ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "basin/v1/admin.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "protocol/version.h"
#include "runtime/grpc/greeting.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;

class OtherAggregator : public v1::Admin::Service {
 public:
  OtherAggregator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~OtherAggregator() override { server_->Shutdown(); }

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                         v1::ServiceStatus*) override {
    greet(*context);
    return grpc::Status::OK;
  }

  Finding FindingOf(const std::string& step) const {
    Arguments arguments;
    arguments.address = absl::StrCat("127.0.0.1:", port_);
    for (const Finding& finding : DiagnoseOperators(arguments).findings) {
      if (finding.step == step) return finding;
    }
    ADD_FAILURE() << "no finding about " << step;
    return {};
  }

  std::function<void(grpc::ServerContext&)> greet;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// What an aggregator sends, with some of it changed.
void Send(grpc::ServerContext& context, const std::string& version, uint32_t protocol,
          absl::Time time) {
  context.AddInitialMetadata("basin-version", version);
  context.AddInitialMetadata("basin-protocol-version", absl::StrCat(protocol));
  context.AddInitialMetadata("basin-time-unix-ns", absl::StrCat(absl::ToUnixNanos(time)));
}

TEST(Doctor, AClockThatIsWrongIsAWarningWithTheDifference) {
  OtherAggregator aggregator;
  aggregator.greet = [](grpc::ServerContext& context) {
    Send(context, "1", kProtocolVersion, absl::Now() - absl::Hours(1));
  };
  const Finding clock = aggregator.FindingOf("clock");
  EXPECT_EQ(clock.verdict, Verdict::kWarning);
  EXPECT_THAT(clock.what, HasSubstr("behind"));
  EXPECT_THAT(clock.fix, HasSubstr("NTP"));
}

TEST(Doctor, TheSameClockIsGood) {
  OtherAggregator aggregator;
  aggregator.greet = [](grpc::ServerContext& context) { Greet(context, "1"); };
  EXPECT_EQ(aggregator.FindingOf("clock").verdict, Verdict::kOk);
}

TEST(Doctor, Fault_A12_AnotherVersionIsAWarningAndAnotherProtocolAFailure) {
  OtherAggregator aggregator;
  aggregator.greet = [](grpc::ServerContext& context) {
    Send(context, "9.9.9", kProtocolVersion, absl::Now());
  };
  Finding version = aggregator.FindingOf("version");
  EXPECT_EQ(version.verdict, Verdict::kWarning);
  EXPECT_THAT(version.what, HasSubstr("basind 9.9.9"));
  aggregator.greet = [](grpc::ServerContext& context) {
    Send(context, "9.9.9", kProtocolVersion + 1, absl::Now());
  };
  version = aggregator.FindingOf("version");
  EXPECT_EQ(version.verdict, Verdict::kFailed);
  EXPECT_TRUE(absl::IsFailedPrecondition(version.status)) << version.status;
  EXPECT_THAT(version.fix, HasSubstr("same version"));
}

TEST(Doctor, AnAggregatorThatReportsNothingIsNotJudged) {
  OtherAggregator aggregator;
  aggregator.greet = [](grpc::ServerContext&) {};
  EXPECT_EQ(aggregator.FindingOf("clock").verdict, Verdict::kSkipped);
  EXPECT_EQ(aggregator.FindingOf("version").verdict, Verdict::kSkipped);
}

TEST(Doctor, ThePacketsOfEthernetAreGood) {
  const Finding finding = JudgePackets({1500, 1500}, "10.0.0.5");
  EXPECT_EQ(finding.step, "mtu");
  EXPECT_EQ(finding.verdict, Verdict::kOk);
  EXPECT_THAT(finding.what, HasSubstr("1500"));
  EXPECT_EQ(finding.fix, "");
}

TEST(Doctor, SmallPacketsAreAWarningThatNamesTheTunnel) {
  const Finding finding = JudgePackets({1450, 1450}, "10.0.0.5");
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.what, HasSubstr("1450"));
  EXPECT_THAT(finding.fix, HasSubstr("overlay"));
}

TEST(Doctor, JumboPacketsAreGoodAndComeWithTheWayToTryThem) {
  const Finding finding = JudgePackets({9000, 9000}, "10.0.0.5");
  EXPECT_EQ(finding.verdict, Verdict::kOk);
  EXPECT_THAT(finding.fix, HasSubstr("ping -M do -s 8972 10.0.0.5"));
}

TEST(Doctor, EndsWithDifferentPacketsAreAWarning) {
  const Finding finding = JudgePackets({9000, 1500}, "10.0.0.5");
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.what, HasSubstr("9000 bytes here, and up to 1500"));
  EXPECT_THAT(finding.fix, HasSubstr("same MTU"));
}

TEST(Doctor, PacketsThatStayOnThisMachineAreNotJudged) {
  EXPECT_EQ(JudgePackets({65536, 32793}, "127.0.0.1").verdict, Verdict::kOk);
  EXPECT_EQ(JudgePackets({65536, 32793}, "127.0.0.1").fix, "");
  EXPECT_EQ(JudgePackets({}, "127.0.0.1").verdict, Verdict::kSkipped);
  OtherAggregator aggregator;
  aggregator.greet = [](grpc::ServerContext&) {};
  EXPECT_THAT(aggregator.FindingOf("mtu").what, HasSubstr("this machine"));
}

}  // namespace
}  // namespace basin::aggregator
