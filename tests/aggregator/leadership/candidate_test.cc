// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/candidate.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

// A record in memory, which can be away.
class MemoryAuthority : public Authority {
 public:
  absl::StatusOr<RecordState> Read(absl::Duration) override {
    MutexLock lock(mutex_);
    ++asked_;
    changed_.NotifyAll();
    if (away_) return absl::UnavailableError("the authority is away");
    return state_;
  }
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration) override {
    MutexLock lock(mutex_);
    ++asked_;
    changed_.NotifyAll();
    if (away_) return absl::UnavailableError("the authority is away");
    if (version != state_.version) return absl::AbortedError("it has changed");
    // What does not wait for the release goes on meanwhile.
    const bool release = record.holder.empty();
    const auto late = std::chrono::steady_clock::now() + late_;
    while (release && std::chrono::steady_clock::now() < late) changed_.WaitUntil(mutex_, late);
    if (release) ++released_;
    state_ = {record, absl::StrCat(++versions_), false};
    return state_.version;
  }

  void ReleaseLate(std::chrono::milliseconds by) {
    MutexLock lock(mutex_);
    late_ = by;
  }
  void Set(bool away) {
    MutexLock lock(mutex_);
    away_ = away;
  }
  void Replace(const LeaderRecord& record) {
    MutexLock lock(mutex_);
    state_ = {record, absl::StrCat(++versions_), false};
  }
  // Until it was asked so many times from now on.
  void AwaitQuestions(int more) {
    MutexLock lock(mutex_);
    const int until = asked_ + more;
    while (asked_ < until) changed_.Wait(mutex_);
  }
  RecordState state() const {
    MutexLock lock(mutex_);
    return state_;
  }
  int released() const {
    MutexLock lock(mutex_);
    return released_;
  }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  RecordState state_ ABSL_GUARDED_BY(mutex_) = {LeaderRecord{5, "", "", absl::Seconds(1)}, "0",
                                                false};
  int versions_ ABSL_GUARDED_BY(mutex_) = 0;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::milliseconds late_ ABSL_GUARDED_BY(mutex_){0};
  int released_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Long enough that a thread which waits for a busy processor does not lose the lead by that.
constexpr absl::Duration kLease = absl::Seconds(2);

// A candidate, and what it has done.
class Rig {
 public:
  Rig(MemoryAuthority& authority, const std::string& holder) {
    CandidateActions actions;
    actions.begin_leading = [this](uint64_t fence) { Note(absl::StrCat("begin ", fence > 5)); };
    actions.decide_until = [this](absl::Time until) {
      MutexLock lock(mutex_);
      until_ = until;
    };
    actions.end_leading = [this](const std::string& why) { Note("end: " + why); };
    actions.changed = [this](const LeaderView& view) { Note(view.InWords()); };
    candidate = std::make_unique<Candidate>(
        LeadershipConfig{holder, holder + ":1", kLease, absl::ZeroDuration()}, authority, clock_,
        std::move(actions));
    candidate->Start();
  }
  ~Rig() { candidate.reset(); }

  // Waits for a note that contains the text, and forgets those up to it.
  std::string Await(const std::string& text) {
    MutexLock lock(mutex_);
    while (true) {
      while (!notes_.empty()) {
        const std::string note = notes_.front();
        notes_.erase(notes_.begin());
        if (note.find(text) != std::string::npos) return note;
      }
      changed_.Wait(mutex_);
    }
  }
  absl::Time until() const {
    MutexLock lock(mutex_);
    return until_;
  }
  absl::Time now() const { return clock_.Now(); }

 private:
  void Note(std::string note) {
    MutexLock lock(mutex_);
    notes_.push_back(std::move(note));
    changed_.NotifyAll();
  }

  BootClock clock_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  absl::Time until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();

 public:
  std::unique_ptr<Candidate> candidate;
};

TEST(CandidateTest, OneLeadsAndTheOtherNamesIt) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  Rig b(authority, "b");
  EXPECT_EQ(b.Await("it is"), "it is a at a:1");
  EXPECT_FALSE(b.candidate->view().leads);
  EXPECT_TRUE(absl::IsFailedPrecondition(b.candidate->StepDown()));
}

TEST(CandidateTest, Fault_A3_AStepDownHandsTheLeadOver) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  Rig b(authority, "b");
  b.Await("it is a");
  a.Await("it is a");  // Its own view comes after "begin".
  ASSERT_TRUE(a.candidate->StepDown().ok());
  a.Await("end: ");
  b.Await("begin 1");
  a.Await("it is b");
  EXPECT_LE(a.until(), a.now());
}

TEST(CandidateTest, AStepDownReturnsWhenTheRecordSaysIt) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  a.Await("it is a");
  authority.ReleaseLate(std::chrono::milliseconds(50));
  ASSERT_TRUE(a.candidate->StepDown().ok());
  EXPECT_EQ(authority.released(), 1);
}

TEST(CandidateTest, ACandidateThatStopsGivesTheLeadUp) {
  MemoryAuthority authority;
  auto a = std::make_unique<Rig>(authority, "a");
  a->Await("begin");
  Rig b(authority, "b");
  a.reset();
  b.Await("begin 1");
}

TEST(CandidateTest, ALeaderWithoutItsAuthorityEndsAndLeadsAgainLater) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  const uint64_t fence = authority.state().record->fence;
  authority.Set(true);
  a.Await("end: its lease could not be renewed: the authority is away");
  EXPECT_LE(a.until(), a.now());
  authority.Set(false);
  a.Await("begin");
  EXPECT_GT(authority.state().record->fence, fence);
}

TEST(CandidateTest, Fault_A5_ALeaderThatWasReplacedEnds) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  authority.Replace({uint64_t{1} << 40, "other", "there:1", absl::Hours(1)});
  // On a busy machine the lease may run out first, so that the reason is another one.
  a.Await("end: ");
  a.Await("it is other at there:1");
  EXPECT_LE(a.until(), a.now());
  EXPECT_EQ(a.candidate->view().InWords(), "it is other at there:1");
}

TEST(CandidateTest, ALeaderRenews) {
  MemoryAuthority authority;
  Rig a(authority, "a");
  a.Await("begin");
  const absl::Time first = a.until();
  authority.AwaitQuestions(3);
  EXPECT_GT(a.until(), first);
  EXPECT_TRUE(a.candidate->view().leads);
}

}  // namespace
}  // namespace basin::aggregator
