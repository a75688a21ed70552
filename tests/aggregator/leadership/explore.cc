// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/explore.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "aggregator/leadership/core/leadership.h"
#include "protocol/fingerprint.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
namespace {

constexpr int kCandidates = 2;
constexpr absl::Duration kStep = absl::Milliseconds(100);  // Of true time.
constexpr absl::Duration kRounding = absl::Microseconds(1);
const absl::Time kBegin = absl::UnixEpoch() + absl::Hours(1);

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Candidate {
  Leadership core;
  absl::Time now = kBegin;  // By its clock.
  uint32_t life = 0;
  // The request under way that has not reached the authority; a read has no record. Then its
  // answer, if it can still come.
  std::optional<WriteRecord> write;
  bool reads = false;
  std::optional<LeadershipEvent> answer;
  std::optional<WriteRecord> stale;  // A write for whose answer it does not wait.
  absl::Duration may;                // For how long, in true time, its decisions take effect.

  bool waits() const { return write.has_value() || reads || answer.has_value(); }
};

struct Authority {
  RecordState now;
  std::optional<RecordState> before;  // Without the last write, if that can be lost.
  int since_write = 0;                // Steps of time, up to a lease by the slowest clock.
};

enum class Move : uint8_t {
  kTime,
  kAct,
  kServe,
  kServeStale,
  kAnswer,
  kFail,
  kForget,
  kRestore,
  kStepDown,
  kRestart,
};

// Calls the visitor for all that a state holds, in one order. `When` is since when or until when,
// by the clock of a candidate, as a distance from now.
template <typename Visitor>
void VisitRecord(const std::optional<LeaderRecord>& record, Visitor& visit) {
  visit.Word(record.has_value());
  if (!record.has_value()) return;
  visit.Fence(*record);
  visit.Text(record->holder);
  visit.Word(static_cast<uint64_t>(absl::ToInt64Nanoseconds(record->lease)));
}
template <typename Visitor>
void VisitState(const RecordState& state, Visitor& visit) {
  VisitRecord(state.record, visit);
  visit.Version(state.version);
}
template <typename Visitor>
void VisitWrite(const std::optional<WriteRecord>& write, Visitor& visit) {
  visit.Word(write.has_value());
  if (!write.has_value()) return;
  VisitRecord(write->record, visit);
  visit.Version(write->version);
}
template <typename Visitor>
void VisitCandidate(const Candidate& one, Visitor& visit) {
  const auto& [config, state, asking, writing, knows, retiring, next_request, asked_at, renewed_at,
               decides_until, not_before, released_until, seen, seen_at, saw, written,
               highest_fence, trouble] = one.core.Fields();
  const auto since = [&](absl::Time when, absl::Duration most) {
    visit.When(std::max(when - one.now, -most - kStep));
  };
  const auto until = [&](absl::Time when) {
    visit.When(std::max(when - one.now, absl::ZeroDuration()));
  };
  const bool stands_by = state == LeadershipState::kStandby || state == LeadershipState::kTaking;
  visit.Word(one.life);
  visit.Word(static_cast<uint64_t>(state) * 16 + asking * 8 + writing * 4 + retiring * 2 + saw);
  if (!asking) until(next_request);
  if (writing) since(asked_at, config.lease);
  if (state == LeadershipState::kLeading) since(renewed_at, 2 * config.lease);
  until(not_before);
  if (state == LeadershipState::kReleased) until(released_until);
  visit.Version(seen.version);
  since(seen_at, 2 * std::max(config.lease,
                              seen.record.has_value() ? seen.record->lease : absl::ZeroDuration()));
  // One that stands by reads the record before it decides anything.
  if (!stands_by) visit.Word(knows);
  if (!stands_by) VisitRecord(seen.record, visit);
  if (!stands_by || writing) VisitRecord(written, visit);
  VisitWrite(one.write, visit);
  VisitWrite(one.stale, visit);
  visit.Word(one.reads);
  visit.Word(one.answer.has_value() ? one.answer->index() : ~uint64_t{0});
  if (one.answer.has_value()) {
    if (const auto* read = std::get_if<RecordRead>(&*one.answer)) VisitState(read->state, visit);
    if (const auto* done = std::get_if<RecordWritten>(&*one.answer)) visit.Version(done->version);
  }
  visit.When(one.may);
}
template <typename Visitor>
void VisitAuthority(const Authority& authority, Visitor& visit) {
  VisitState(authority.now, visit);
  visit.Word(authority.before.has_value());
  if (!authority.before.has_value()) return;
  VisitState(*authority.before, visit);
  visit.Word(static_cast<uint64_t>(authority.since_write));
}

// The versions that are known, in order of first sight, and the highest fence.
struct Names {
  std::map<std::string, uint64_t> versions{{"", 0}};
  uint64_t highest_fence = 0;
  void Word(uint64_t) {}
  void Text(const std::string&) {}
  void When(absl::Duration) {}
  void Fence(const LeaderRecord& record) { highest_fence = std::max(highest_fence, record.fence); }
  void Version(const std::string& version) { versions.emplace(version, versions.size()); }
};

// With names, states are equal whose versions and fences have other names.
struct Printer {
  const Names* names = nullptr;
  // What each candidate has written last: it compares its records with that, and with nothing else.
  std::map<std::string, uint64_t> fences;
  Fingerprint print;

  void Word(uint64_t word) { print.Add(word); }
  void Text(const std::string& text) { print.Add(text); }
  void When(absl::Duration when) { print.Add(when); }
  void Fence(const LeaderRecord& record) {
    if (names == nullptr) return print.Add(record.fence);
    const auto own = fences.find(record.holder);
    print.Add(own != fences.end() && own->second == record.fence);
  }
  void Version(const std::string& version) {
    if (names == nullptr) return print.Add(version);
    print.Add(names->versions.at(version));
  }
};

template <typename T>
class Kept {
 public:
  template <typename Visit>
  uint32_t Add(T value, Visit&& visit) {
    Printer printer;
    visit(value, printer);
    const auto [it, added] = ids_.try_emplace(printer.print, static_cast<uint32_t>(values_.size()));
    if (added) values_.push_back(std::move(value));
    return it->second;
  }
  const T& operator[](uint32_t id) const { return values_[id]; }

 private:
  absl::flat_hash_map<Fingerprint, uint32_t, FingerprintHash> ids_;
  std::deque<T> values_;
};

class Searcher {
 public:
  explicit Searcher(const LeadershipBounds& bounds) : bounds_(bounds) {}

  LeadershipSearch Run() {
    const double begin = CpuSeconds();
    Whole start{{Born(0, 0), Born(1, 0)}, {}};
    Add(start, 0, {});
    size_t level_end = states_.size();
    for (size_t at = 0; at < states_.size() && result_.violation.empty(); ++at) {
      if (at == level_end) {
        ++result_.depth;
        level_end = states_.size();
      }
      if (states_.size() > bounds_.max_states) break;
      Expand(static_cast<uint32_t>(at));
    }
    result_.complete = result_.violation.empty() && states_.size() <= bounds_.max_states;
    result_.states = states_.size();
    result_.seconds = CpuSeconds() - begin;
    return std::move(result_);
  }

 private:
  struct Whole {
    std::array<Candidate, kCandidates> candidates;
    Authority authority;
  };
  struct Step {
    Move move = Move::kTime;
    uint8_t who = 0;
  };
  struct State {
    std::array<uint32_t, kCandidates> candidates{};
    uint32_t authority = 0;
    uint32_t parent = 0;
    uint32_t restarts = 0;
    Step step;
  };

  // How fast a clock is, against the true one.
  double RateOf(int who) const {
    const double wrong = bounds_.broken == BrokenRule::kClocksDriftFurther ? 0.05 : 0.01;
    return who == 0 ? 1 - wrong : 1 + wrong;
  }
  // In steps of time.
  int LongestLease() const { return bounds_.longer_lease ? 2 * bounds_.steps : bounds_.steps; }
  absl::Duration StepOf(int who) const { return kStep * RateOf(who); }

  Candidate Born(int who, uint32_t life) const {
    LeadershipConfig config;
    config.holder = absl::StrCat(who == 0 ? "slow-" : "fast-", life);
    config.address = config.holder;
    config.lease = bounds_.steps * StepOf(1);
    config.unnoticed_pause = config.lease / 10;
    if (bounds_.longer_lease && who == 0) config.lease *= 2;
    return Candidate{Leadership(config, kBegin), kBegin, life, {}, false, {}, {}, {}};
  }

  void Add(const Whole& whole, uint32_t restarts, State state) {
    const Names names = NamesIn(whole);
    Printer printer;
    printer.names = &names;
    for (const Candidate& one : whole.candidates) {
      printer.fences[one.core.config().holder] = WrittenBy(one).fence;
    }
    for (const Candidate& one : whole.candidates) VisitCandidate(one, printer);
    VisitAuthority(whole.authority, printer);
    printer.Word(restarts);
    if (!seen_.emplace(printer.print, true).second) return;
    const auto visit_candidate = [](const Candidate& one, Printer& to) { VisitCandidate(one, to); };
    for (int who = 0; who < kCandidates; ++who) {
      state.candidates[who] = candidates_[who].Add(whole.candidates[who], visit_candidate);
    }
    state.authority = authorities_.Add(
        whole.authority, [](const Authority& one, Printer& to) { VisitAuthority(one, to); });
    state.restarts = restarts;
    states_.push_back(state);
  }

  Whole WholeOf(const State& state) const {
    return {{candidates_[0][state.candidates[0]], candidates_[1][state.candidates[1]]},
            authorities_[state.authority]};
  }

  std::vector<Step> StepsOf(const Whole& whole, const State& state) const {
    std::vector<Step> steps{{Move::kTime, 0}};
    for (uint8_t who = 0; who < kCandidates; ++who) {
      const Candidate& one = whole.candidates[who];
      if (one.core.NextDeadline() <= one.now) steps.push_back({Move::kAct, who});
      if (one.reads || one.write.has_value()) steps.push_back({Move::kServe, who});
      if (one.stale.has_value()) steps.push_back({Move::kServeStale, who});
      if (one.answer.has_value()) steps.push_back({Move::kAnswer, who});
      if (one.waits()) steps.push_back({Move::kFail, who});
      if (bounds_.step_downs && one.core.leads()) steps.push_back({Move::kStepDown, who});
      if (state.restarts < bounds_.restarts) steps.push_back({Move::kRestart, who});
    }
    if (bounds_.forgets && whole.authority.now.record.has_value()) {
      steps.push_back({Move::kForget, 0});
    }
    if (whole.authority.before.has_value() && (bounds_.restores == Restores::kAtAnyTime ||
                                               whole.authority.since_write > LongestLease())) {
      steps.push_back({Move::kRestore, 0});
    }
    return steps;
  }

  void Expand(uint32_t index) {
    const State state = states_[index];
    const Whole whole = WholeOf(state);
    for (const Step& step : StepsOf(whole, state)) {
      Whole next = whole;
      ++result_.steps;
      std::string violation = Take(next, step, nullptr);
      if (!violation.empty()) {
        result_.violation = std::move(violation);
        Tell(index, step);
        return;
      }
      State made;
      made.parent = index;
      made.step = step;
      Add(next, state.restarts + (step.move == Move::kRestart), made);
    }
  }

  // Takes the step. Returns what is wrong; "" for nothing.
  std::string Take(Whole& whole, const Step& step, std::vector<std::string>* trail) {
    wrong_.clear();
    trail_ = trail;
    whole_ = &whole;
    Candidate& one = whole.candidates[step.who];
    Authority& authority = whole.authority;
    const std::string& name = one.core.config().holder;
    switch (step.move) {
      case Move::kTime:
        Say("time passes");
        for (int who = 0; who < kCandidates; ++who) {
          Candidate& each = whole.candidates[who];
          each.now += StepOf(who);
          each.may = std::max(each.may - kStep, absl::ZeroDuration());
        }
        authority.since_write = std::min(authority.since_write + 1, LongestLease() + 1);
        break;
      case Move::kAct:
        Say(absl::StrCat(name, " acts"));
        StepCore(step.who, TimePassed{});
        break;
      case Move::kServe:
        Say(absl::StrCat("the request of ", name, " reaches the authority"));
        if (one.reads) {
          one.answer = RecordRead{authority.now};
        } else {
          one.answer = Write(*std::exchange(one.write, std::nullopt));
        }
        one.reads = false;
        break;
      case Move::kServeStale:
        Say(absl::StrCat("a late write of ", name, " reaches the authority"));
        Write(*std::exchange(one.stale, std::nullopt));
        break;
      case Move::kAnswer:
        Say(absl::StrCat(name, " receives the answer"));
        StepCore(step.who, *std::exchange(one.answer, std::nullopt));
        break;
      case Move::kFail:
        Say(absl::StrCat("the request of ", name, " fails"));
        if (one.write.has_value() && bounds_.stale_writes) one.stale = std::move(one.write);
        one.write.reset();
        one.answer.reset();
        one.reads = false;
        StepCore(step.who, RequestFailed{"it is away"});
        break;
      case Move::kForget:
        Say("the authority loses the record");
        authority = Authority();
        break;
      case Move::kRestore:
        Say("the authority loses its last write");
        authority.now = *std::exchange(authority.before, std::nullopt);
        break;
      case Move::kStepDown:
        Say(absl::StrCat(name, " is asked to step down"));
        StepCore(step.who, StepDown{});
        break;
      case Move::kRestart: {
        Say(absl::StrCat(name, " ends and starts again"));
        Candidate next = Born(step.who, one.life + 1);
        next.core = Leadership(next.core.config(), one.now);
        next.now = one.now;
        if (bounds_.stale_writes) next.stale = one.write.has_value() ? one.write : one.stale;
        one = std::move(next);
        break;
      }
    }
    DropDeadWrites(whole);
    return wrong_;
  }

  void StepCore(int who, const LeadershipEvent& event) {
    Candidate& one = whole_->candidates[who];
    std::vector<LeadershipAction> actions;
    // The wall clock gives a fence that nobody had, also where the record was lost.
    const absl::Time wall = absl::FromUnixSeconds(static_cast<int64_t>(HighestFence() + 1));
    one.core.Step(event, one.now, wall, actions);
    for (const LeadershipAction& action : actions) {
      std::visit(Overloaded{
                     [&](const ReadRecord&) { one.reads = true; },
                     [&](const WriteRecord& write) { one.write = write; },
                     [&](const BeginLeading& begin) {
                       ++result_.begins;
                       Say(absl::StrCat("    leads, with fence ", begin.fence));
                     },
                     [&](const DecideUntil& decide) { Permit(who, decide.until, event); },
                     [&](const EndLeading& end) {
                       ++result_.ends;
                       Say(absl::StrCat("    leads no more: ", end.why));
                     },
                 },
                 action);
    }
  }

  void Permit(int who, absl::Time until, const LeadershipEvent& event) {
    Candidate& one = whole_->candidates[who];
    const LeadershipConfig& config = one.core.config();
    const bool grants = std::holds_alternative<RecordWritten>(event) && one.core.leads();
    if (bounds_.broken == BrokenRule::kNoMargin && grants) until += config.margin();
    if (bounds_.broken == BrokenRule::kCountsFromTheAnswer && grants) {
      until = one.now + config.lease - config.margin();
    }
    // A decision at the last moment takes effect after a pause.
    const absl::Duration pause = config.unnoticed_pause / RateOf(who);
    if (until - one.now <= kRounding) {
      const bool acts = bounds_.broken == BrokenRule::kActsAfterRelease;
      one.may = std::min(one.may, acts ? pause : absl::ZeroDuration());
      return;
    }
    if (one.may == absl::ZeroDuration() && one.core.leads()) ++result_.goes_on;
    one.may = (until - one.now) / RateOf(who) + pause;
    Say(absl::StrCat("    may decide for ", absl::FormatDuration(one.may)));
    const Candidate& other = whole_->candidates[1 - who];
    if (other.may <= absl::ZeroDuration()) return;
    wrong_ = absl::StrCat(config.holder, " may decide, and so may ", other.core.config().holder,
                          " for ", absl::FormatDuration(other.may));
  }

  LeadershipEvent Write(const WriteRecord& write) {
    Authority& authority = whole_->authority;
    if (write.version != authority.now.version && bounds_.broken != BrokenRule::kIgnoresVersions) {
      Say("    it is refused");
      return WriteRefused{};
    }
    if (bounds_.restores != Restores::kNever) authority.before = authority.now;
    authority.since_write = 0;
    authority.now = {write.record, NewVersion(), false};
    return RecordWritten{authority.now.version};
  }

  Names NamesIn(const Whole& whole) const {
    Names names;
    for (const Candidate& one : whole.candidates) VisitCandidate(one, names);
    VisitAuthority(whole.authority, names);
    return names;
  }
  static const LeaderRecord& WrittenBy(const Candidate& one) {
    return std::get<15>(one.core.Fields());
  }
  uint64_t HighestFence() const {
    uint64_t highest = NamesIn(*whole_).highest_fence;
    for (const Candidate& one : whole_->candidates) {
      highest = std::max({highest, WrittenBy(one).fence, std::get<16>(one.core.Fields())});
    }
    return highest;
  }
  // The lowest number that nobody knows.
  std::string NewVersion() const {
    const Names names = NamesIn(*whole_);
    uint64_t number = 1;
    while (names.versions.count(absl::StrCat(number)) > 0) ++number;
    return absl::StrCat(number);
  }

  // Late writes that can never succeed.
  void DropDeadWrites(Whole& whole) const {
    const Authority& authority = whole.authority;
    if (bounds_.broken == BrokenRule::kIgnoresVersions) return;
    for (Candidate& one : whole.candidates) {
      if (!one.stale.has_value()) continue;
      const std::string& version = one.stale->version;
      const bool lives = version.empty() || version == authority.now.version ||
                         (authority.before.has_value() && version == authority.before->version);
      if (!lives) one.stale.reset();
    }
  }

  void Say(std::string what) {
    if (trail_ != nullptr) trail_->push_back(std::move(what));
  }

  void Tell(uint32_t index, const Step& last) {
    std::vector<Step> steps{last};
    for (; index != 0; index = states_[index].parent) steps.push_back(states_[index].step);
    std::reverse(steps.begin(), steps.end());
    Whole whole = WholeOf(states_[0]);
    for (const Step& step : steps) Take(whole, step, &result_.trail);
  }

  const LeadershipBounds bounds_;
  std::array<Kept<Candidate>, kCandidates> candidates_;
  Kept<Authority> authorities_;
  std::vector<State> states_;  // The search goes on from them in this order.
  absl::flat_hash_map<Fingerprint, bool, FingerprintHash> seen_;
  LeadershipSearch result_;
  // Of the step that is taken.
  Whole* whole_ = nullptr;
  std::vector<std::string>* trail_ = nullptr;
  std::string wrong_;
};

}  // namespace

std::string LeadershipSearch::Summary() const {
  std::string text = absl::StrFormat(
      "%d states, %d steps, depth %d; leads began in %d steps, went on in %d, ended in %d; %.1f s "
      "of CPU; ",
      states, steps, depth, begins, goes_on, ends, seconds);
  absl::StrAppend(&text, !violation.empty() ? absl::StrCat("VIOLATION: ", violation)
                         : complete         ? "complete, no violation"
                                            : "CUT, no violation");
  for (const std::string& line : trail) absl::StrAppend(&text, "\n  ", line);
  return text;
}

LeadershipSearch ExploreLeadership(const LeadershipBounds& bounds) {
  return Searcher(bounds).Run();
}

}  // namespace basin::aggregator
