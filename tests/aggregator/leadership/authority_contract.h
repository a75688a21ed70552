// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What every authority must do, as one suite of tests (aggregator/leadership/authority.h). A kind
// of authority joins with a class that makes some for one record:
//
//   class Place {
//     std::unique_ptr<Authority> Open(const std::string& holder);  // As another process.
//     void Lose();                                   // Somebody removes the record.
//     void GoAway();                                 // No request is carried out from now on.
//     void Disturb();                                // Anything may happen to requests from now
//     on. void ComeBack();                               // All go well again. std::string
//     why_not() const;                   // Why it cannot be tested here; empty: it can.
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(File, AuthorityContract, Place);

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_AUTHORITY_CONTRACT_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_AUTHORITY_CONTRACT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/leadership/authority.h"
#include "aggregator/leadership/candidate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {

// Far more than any answer takes.
inline constexpr absl::Duration kPatience = absl::Seconds(30);
// A number of a lead that every authority can keep, of the year 2023.
inline constexpr uint64_t kSomeFence = 1700000000;

// A record of this holder, of the lead with this number more.
inline LeaderRecord LedBy(const std::string& holder, uint64_t more = 0) {
  return {kSomeFence + more, holder, holder + ".basin:29600", absl::Seconds(3)};
}

inline RecordState ReadFrom(Authority& authority) {
  const absl::StatusOr<RecordState> state = authority.Read(kPatience);
  EXPECT_TRUE(state.ok()) << state.status();
  return state.value_or(RecordState());
}

// The version afterwards.
inline std::string WriteTo(Authority& authority, const LeaderRecord& record,
                           const std::string& version) {
  const absl::StatusOr<std::string> written = authority.Write(record, version, kPatience);
  EXPECT_TRUE(written.ok()) << written.status();
  return written.value_or("");
}

inline bool IsRefused(Authority& authority, const LeaderRecord& record,
                      const std::string& version) {
  return absl::IsAborted(authority.Write(record, version, kPatience).status());
}

// The text of a read that fails.
inline std::string TroubleOf(Authority& authority, absl::Duration timeout = kPatience) {
  const absl::Status failed = authority.Read(timeout).status();
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  return std::string(failed.message());
}

// A candidate with this authority, and how often it has begun and ended to lead.
class Contender {
 public:
  Contender(std::unique_ptr<Authority> authority, const std::string& holder,
            absl::Duration lease = absl::Seconds(1))
      : authority_(std::move(authority)) {
    CandidateActions actions;
    actions.begin_leading = [this](uint64_t) { Count(begun_); };
    actions.decide_until = [](absl::Time) {};
    actions.end_leading = [this](const std::string&) { Count(ended_); };
    actions.changed = [](const LeaderView&) {};
    candidate = std::make_unique<Candidate>(
        LeadershipConfig{holder, holder + ":1", lease, absl::ZeroDuration()}, *authority_, clock_,
        std::move(actions));
    candidate->Start();
  }
  ~Contender() { candidate.reset(); }

  // Until its view says so, too, which comes after what it does then.
  void AwaitLead(int times = 1) {
    AwaitCount(begun_, times);
    basin::Await([this] { return candidate->view().leads; });
  }
  void AwaitEnd(int times = 1) { AwaitCount(ended_, times); }

 private:
  void Count(int& count) {
    MutexLock lock(mutex_);
    ++count;
    changed_.NotifyAll();
  }
  void AwaitCount(int& count, int times) {
    MutexLock lock(mutex_);
    while (count < times) changed_.Wait(mutex_);
  }

  BootClock clock_;
  std::unique_ptr<Authority> authority_;
  Mutex mutex_;
  Condition changed_;
  int begun_ = 0;
  int ended_ = 0;

 public:
  std::unique_ptr<Candidate> candidate;
};

template <typename Place>
class AuthorityContract : public testing::Test {
 protected:
  void SetUp() override {
    if (!place_.why_not().empty()) GTEST_SKIP() << place_.why_not();
  }

  Place place_;
};

TYPED_TEST_SUITE_P(AuthorityContract);

TYPED_TEST_P(AuthorityContract, WhereNobodyHasWrittenThereIsNoRecord) {
  const auto a = this->place_.Open("a");
  EXPECT_FALSE(ReadFrom(*a).record.has_value());
  EXPECT_EQ(ReadFrom(*a).version, "");
}

TYPED_TEST_P(AuthorityContract, KeepsWhatWasWritten) {
  const auto a = this->place_.Open("a");
  const auto b = this->place_.Open("b");
  // As a leader has it, as one that has given it up, and where there was none.
  const std::vector<LeaderRecord> records = {
      LedBy("a"),
      {kSomeFence + 1, "", "", absl::Seconds(3)},
      {kSomeFence + 2, kNobody, "", absl::Seconds(1)},
      {kSomeFence + 3, "host-0123456789abcdef", "[::1]:29600", absl::Minutes(10)},
      {kSomeFence + 4, "a", "a:1", absl::Seconds(3), "cluster-a.basin"},
      {kSomeFence + 5, "a", "a:1", absl::Seconds(3)}};
  std::string version;
  for (const LeaderRecord& record : records) {
    version = WriteTo(*a, record, version);
    const RecordState state = ReadFrom(*b);
    ASSERT_TRUE(state.record.has_value());
    EXPECT_EQ(state.record->Fields(), record.Fields());
    EXPECT_EQ(state.version, version);
    EXPECT_FALSE(state.holder_ended);
  }
}

TYPED_TEST_P(AuthorityContract, OfTwoWritersOneFails) {
  const auto a = this->place_.Open("a");
  const auto b = this->place_.Open("b");
  EXPECT_EQ(ReadFrom(*a).version, "");
  EXPECT_EQ(ReadFrom(*b).version, "");
  // Both believed that there is none, and then both knew the same one.
  const std::string version = WriteTo(*a, LedBy("a"), "");
  EXPECT_TRUE(IsRefused(*b, LedBy("b"), ""));
  EXPECT_EQ(ReadFrom(*b).version, version);
  const std::string next = WriteTo(*b, LedBy("b", 1), version);
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), version));
  EXPECT_EQ(ReadFrom(*a).record->holder, "b");
  EXPECT_EQ(ReadFrom(*a).version, next);
}

TYPED_TEST_P(AuthorityContract, AVersionThatNobodyHasReadIsRefused) {
  const auto a = this->place_.Open("a");
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), "7"));
  const std::string version = WriteTo(*a, LedBy("a"), "");
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), version + "0"));
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), ""));
  EXPECT_EQ(ReadFrom(*a).version, version);
}

TYPED_TEST_P(AuthorityContract, EqualRecordsHaveDifferentVersions) {
  const auto a = this->place_.Open("a");
  std::vector<std::string> versions = {WriteTo(*a, LedBy("a"), "")};
  for (int i = 0; i < 5; ++i) versions.push_back(WriteTo(*a, LedBy("a"), versions.back()));
  this->place_.Lose();
  EXPECT_EQ(ReadFrom(*a).version, "");
  versions.push_back(WriteTo(*a, LedBy("a"), ""));
  for (int i = 0; i < 5; ++i) versions.push_back(WriteTo(*a, LedBy("a"), versions.back()));
  std::sort(versions.begin(), versions.end());
  EXPECT_EQ(std::adjacent_find(versions.begin(), versions.end()), versions.end());
}

TYPED_TEST_P(AuthorityContract, Fault_A5_ARecordThatIsLostIsNoneAndCannotBeRenewed) {
  const auto a = this->place_.Open("a");
  const std::string version = WriteTo(*a, LedBy("a"), "");
  this->place_.Lose();
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), version));
  const auto b = this->place_.Open("b");
  EXPECT_FALSE(ReadFrom(*b).record.has_value());
  EXPECT_EQ(ReadFrom(*b).version, "");
  EXPECT_EQ(ReadFrom(*a).version, "");
  WriteTo(*b, LedBy("b", 1), "");
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), version));
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), ""));
  EXPECT_EQ(ReadFrom(*a).record->holder, "b");
}

TYPED_TEST_P(AuthorityContract, Fault_A4_WhileItIsAwayItSaysSoAndDoesNothing) {
  const auto a = this->place_.Open("a");
  const std::string version = WriteTo(*a, LedBy("a"), "");
  this->place_.GoAway();
  EXPECT_THAT(TroubleOf(*a, absl::Milliseconds(300)),
              testing::AllOf(testing::HasSubstr("standby.authority"),
                             testing::Not(testing::EndsWith("."))));
  const absl::Status failed = a->Write(LedBy("a", 1), version, absl::Milliseconds(300)).status();
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  this->place_.ComeBack();
  EXPECT_EQ(ReadFrom(*a).version, version);
  EXPECT_EQ(ReadFrom(*a).record->Fields(), LedBy("a").Fields());
  WriteTo(*a, LedBy("a", 1), version);
}

// Several write, each for itself, and anything may happen to their requests.
TYPED_TEST_P(AuthorityContract, EachWriteReplacesTheOneBeforeItWhateverHappens) {
  constexpr int kWriters = 3;
  constexpr int kWrites = 40;
  constexpr absl::Duration kTimeout = absl::Milliseconds(100);
  this->place_.Disturb();
  Mutex mutex;
  std::vector<uint64_t> succeeded;  // The fences of writes that succeeded.
  uint64_t unknown = 0;             // Writes that may have happened.
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const std::string holder = absl::StrCat("w", i);
      const auto authority = this->place_.Open(holder);
      for (int done = 0; done < kWrites;) {
        const absl::StatusOr<RecordState> before = authority->Read(kTimeout);
        if (!before.ok()) continue;
        const uint64_t more =
            before->record.has_value() ? before->record->fence - kSomeFence + 1 : 1;
        const auto written = authority->Write(LedBy(holder, more), before->version, kTimeout);
        if (absl::IsAborted(written.status())) continue;
        MutexLock lock(mutex);
        if (written.ok()) {
          ++done;
          succeeded.push_back(more);
        } else {
          ++unknown;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  this->place_.ComeBack();
  MutexLock lock(mutex);
  std::sort(succeeded.begin(), succeeded.end());
  EXPECT_EQ(std::adjacent_find(succeeded.begin(), succeeded.end()), succeeded.end())
      << "two writes replaced the same version";
  EXPECT_EQ(succeeded.size(), size_t{kWriters} * kWrites);
  // One that was refused did nothing; one without an answer may have been carried out.
  const uint64_t last = ReadFrom(*this->place_.Open("reader")).record->fence - kSomeFence;
  EXPECT_GE(last, succeeded.back());
  EXPECT_LE(last, succeeded.size() + unknown);
}

TYPED_TEST_P(AuthorityContract, AProcessThatLeftIsNotKnownToHaveEnded) {
  const auto b = this->place_.Open("b");
  WriteTo(*b, LedBy("b"), "");
  b->Leave();
  EXPECT_FALSE(ReadFrom(*this->place_.Open("a")).holder_ended);
}

TYPED_TEST_P(AuthorityContract, Fault_A3_TheLeadIsHandedOver) {
  Contender a(this->place_.Open("a"), "a");
  a.AwaitLead();
  Contender b(this->place_.Open("b"), "b");
  ASSERT_TRUE(a.candidate->StepDown().ok());
  b.AwaitLead();
  a.AwaitEnd();
  EXPECT_EQ(ReadFrom(*this->place_.Open("reader")).record->holder, "b");
  // The record is lost: the leader ends, and one leads again.
  this->place_.Lose();
  b.AwaitEnd();
  basin::Await([&] { return b.candidate->view().Names(); });
}

TYPED_TEST_P(AuthorityContract, Fault_A1_ALeaderThatIsSilentIsReplacedWhenItsLeaseIsOver) {
  // Its process is not known to have ended, and renews no more.
  const auto gone = this->place_.Open("gone");
  WriteTo(*gone, {kSomeFence, "gone", "gone:1", absl::Seconds(1)}, "");
  Contender a(this->place_.Open("a"), "a");
  a.AwaitLead();
  const RecordState state = ReadFrom(*gone);
  EXPECT_EQ(state.record->holder, "a");
  EXPECT_GT(state.record->fence, kSomeFence);
}

REGISTER_TYPED_TEST_SUITE_P(AuthorityContract, WhereNobodyHasWrittenThereIsNoRecord,
                            KeepsWhatWasWritten, OfTwoWritersOneFails,
                            AVersionThatNobodyHasReadIsRefused, EqualRecordsHaveDifferentVersions,
                            Fault_A5_ARecordThatIsLostIsNoneAndCannotBeRenewed,
                            Fault_A4_WhileItIsAwayItSaysSoAndDoesNothing,
                            EachWriteReplacesTheOneBeforeItWhateverHappens,
                            AProcessThatLeftIsNotKnownToHaveEnded, Fault_A3_TheLeadIsHandedOver,
                            Fault_A1_ALeaderThatIsSilentIsReplacedWhenItsLeaseIsOver);

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_AUTHORITY_CONTRACT_H_
