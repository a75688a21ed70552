// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/world.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/leadership/core/leadership.h"

namespace basin::aggregator {
namespace {

constexpr absl::Duration kLease = absl::Seconds(1);
constexpr absl::Duration kFaults = absl::Seconds(14);        // Then nothing fails any more,
constexpr absl::Duration kQuiet = absl::Seconds(10);         // and after this one must lead.
constexpr absl::Duration kPause = absl::Milliseconds(100);   // The longest that goes unnoticed.
constexpr absl::Duration kRounding = absl::Microseconds(1);  // Between times by two clocks.
const absl::Time kBegin = absl::FromUnixSeconds(1'000'000);

// The fate of a request.
enum class Fate : uint8_t { kWell, kLost, kAnswerLost, kLate, kAskerPauses, kForgottenBefore };
constexpr uint64_t kFates = 6;

struct Timed {
  absl::Time at;
  uint64_t number;  // In the order in which they were planned.
  std::function<void()> what;
  bool operator<(const Timed& other) const {
    return at != other.at ? at > other.at : number > other.number;
  }
};

class World {
 public:
  World(const Chooser& choose, bool drawn, PlantedMistake mistake)
      : choose_(choose), drawn_(drawn), mistake_(mistake) {}

  LeadershipRun Run() {
    vouches_ = Pick(2) == 1;
    const uint64_t processes = drawn_ ? 2 + Pick(2) : 2;
    for (uint64_t i = 0; i < processes; ++i) Start(i);
    if (drawn_) {
      for (uint64_t left = Pick(6); left > 0; --left) PlanFault();
    }
    while (!plan_.empty() && run_.violation.empty()) {
      const Timed next = plan_.top();
      plan_.pop();
      if (next.at > kBegin + kFaults + kQuiet) break;
      now_ = next.at;
      next.what();
    }
    if (run_.violation.empty()) CheckOneLeads();
    return run_;
  }

 private:
  struct Process {
    explicit Process(LeadershipConfig config, absl::Time start) : core(std::move(config), start) {}
    Leadership core;
    double rate = 1;  // How fast its clock is, against the true one.
    absl::Time started;
    absl::Duration ahead;                            // What its clock showed then.
    absl::Time paused_until = absl::InfinitePast();  // True time, as all that follows.
    absl::Time may_until = absl::InfinitePast();     // Its permission.
    uint64_t fence = 0;
    uint64_t request = 0;  // The one under way; 0: none.
    uint64_t timer = 0;    // The last that was planned.
    bool dead = false;
  };

  uint64_t Pick(uint64_t options) { return choose_(ChoiceKind::kWorld, options); }
  absl::Duration UpTo(absl::Duration most) {
    return most * static_cast<double>(drawn_ ? Pick(1000) : 100) / 1000;
  }

  void At(absl::Time at, std::function<void()> what) {
    plan_.push({at, ++planned_, std::move(what)});
  }

  void Start(uint64_t place) {
    LeadershipConfig config;
    config.holder = absl::StrCat("p", place, "-", ++lives_);
    config.address = config.holder;
    // Two versions of the configuration may meet.
    config.lease = drawn_ && Pick(4) == 0 ? kLease * 1.3 : kLease;
    config.unnoticed_pause = kPause;
    double wrong = drawn_ ? static_cast<double>(Pick(21)) / 1000 - 0.01 : place == 0 ? -0.01 : 0.01;
    if (mistake_ == PlantedMistake::kClocksDriftFurther) wrong *= 25;
    const absl::Duration ahead = absl::Seconds(static_cast<int64_t>(drawn_ ? Pick(100000) : place));
    auto& process =
        processes_.emplace_back(std::make_unique<Process>(config, absl::UnixEpoch() + ahead));
    process->rate = 1 + wrong;
    process->started = now_;
    process->ahead = ahead;
    Process* const one = process.get();
    At(now_ + UpTo(kLease / 5), [=] { Wake(*one, place); });
  }

  static absl::Time Shows(const Process& process, absl::Time at) {
    return absl::UnixEpoch() + process.ahead + (at - process.started) * process.rate;
  }
  static absl::Time TrueTime(const Process& process, absl::Time shown) {
    return process.started + (shown - absl::UnixEpoch() - process.ahead) / process.rate;
  }

  // Runs `what` in the process, when it is not paused.
  template <typename F>
  void In(Process& process, F what) {
    if (process.dead) return;
    if (process.paused_until > now_) {
      At(process.paused_until, [this, &process, what] { In(process, what); });
      return;
    }
    what();
  }

  void Wake(Process& process, uint64_t place) {
    In(process, [this, &process, place] { Step(process, place, TimePassed{}); });
  }

  void Step(Process& process, uint64_t place, const LeadershipEvent& event) {
    ++run_.steps;
    std::vector<LeadershipAction> actions;
    const absl::Time wall = now_ + absl::Seconds(static_cast<int64_t>(Pick(3)));
    process.core.Step(event, Shows(process, now_), wall, actions);
    for (const LeadershipAction& action : actions) Do(process, place, action);
    const absl::Time next = process.core.NextDeadline();
    const uint64_t timer = ++process.timer;
    if (next == absl::InfiniteFuture()) return;
    // It wakes a little late.
    const absl::Time at = std::max(now_, TrueTime(process, next)) + kRounding + UpTo(kLease / 100);
    At(at, [this, &process, place, timer] {
      if (process.timer == timer) Wake(process, place);
    });
  }

  void Do(Process& process, uint64_t place, const LeadershipAction& action) {
    if (std::holds_alternative<ReadRecord>(action)) {
      Ask(process, place, std::nullopt);
    } else if (const auto* write = std::get_if<WriteRecord>(&action)) {
      if (write->record.holder.empty()) ++run_.released;
      Ask(process, place, *write);
    } else if (const auto* begin = std::get_if<BeginLeading>(&action)) {
      ++run_.begins;
      process.fence = begin->fence;
    } else if (const auto* decide = std::get_if<DecideUntil>(&action)) {
      Permit(process, decide->until);
    } else {
      ++run_.ends;
      process.fence = 0;
    }
  }

  void Permit(Process& process, absl::Time until) {
    absl::Time end = TrueTime(process, until);
    if (end <= now_ + kRounding) {  // What was decided until now takes its effect at once.
      if (process.may_until > now_) process.may_until = now_;
      return;
    }
    if (process.may_until != absl::InfinitePast() && process.may_until < now_) ++run_.goes_on;
    if (mistake_ == PlantedMistake::kDecidesWhileItLeads) end += kLease;
    // A decision at the last moment takes effect after a pause.
    process.may_until = end + kPause / process.rate;
    for (const auto& other : processes_) {
      if (other.get() == &process || other->may_until <= now_) continue;
      Violate(absl::StrCat(process.core.config().holder, " decides from ",
                           absl::FormatDuration(now_ - kBegin), " on, and ",
                           other->core.config().holder, " until ",
                           absl::FormatDuration(other->may_until - kBegin)));
    }
  }

  // ---- the authority

  void Ask(Process& process, uint64_t place, const std::optional<WriteRecord>& write) {
    const uint64_t request = process.request = ++requests_;
    const absl::Duration timeout = process.core.config().request_timeout() / process.rate;
    At(now_ + timeout, [this, &process, place, request] {
      In(process, [this, &process, place, request] {
        Answer(process, place, request, RequestFailed{"no answer came"});
      });
    });
    Fate fate = Fate::kWell;
    if (now_ < kBegin + kFaults) {
      fate = static_cast<Fate>(choose_(ChoiceKind::kRequest, kFates));
      if (away_until_ > now_) fate = Fate::kLost;
    }
    if (fate == Fate::kLost) return;
    if (fate == Fate::kForgottenBefore) Forget();
    absl::Duration there = UpTo(kLease / 20);
    if (fate == Fate::kLate) there += kLease / 3 + UpTo(kLease);
    if (fate == Fate::kAskerPauses) process.paused_until = now_ + kLease + UpTo(2 * kLease);
    At(now_ + there, [this, &process, place, request, write, fate] {
      const LeadershipEvent answer = write.has_value() ? Write(*write) : LeadershipEvent(Read());
      if (write.has_value() && process.request != request) ++run_.late_writes;
      if (fate == Fate::kAnswerLost) return;
      At(now_ + UpTo(kLease / 20), [this, &process, place, request, answer] {
        In(process, [=, &process] { Answer(process, place, request, answer); });
      });
    });
  }

  void Answer(Process& process, uint64_t place, uint64_t request, const LeadershipEvent& event) {
    if (process.request != request) return;
    process.request = 0;
    Step(process, place, event);
  }

  RecordRead Read() {
    RecordState state = record_;
    if (state.record.has_value() && vouches_) {
      for (const auto& process : processes_) {
        const bool gone = process->dead || (mistake_ == PlantedMistake::kEndedHolderIsOnlyPaused &&
                                            process->paused_until > now_);
        if (gone && process->core.config().holder == state.record->holder) {
          state.holder_ended = true;
        }
      }
    }
    return {state};
  }

  LeadershipEvent Write(const WriteRecord& write) {
    if (write.version != record_.version && mistake_ != PlantedMistake::kVersionsAreIgnored) {
      return WriteRefused{};
    }
    const std::string& holder = write.record.holder;
    const bool changes = !record_.record.has_value() || record_.record->holder != holder;
    if (changes && !holder.empty() && write.record.fence <= highest_fence_) {
      Violate(absl::StrCat("fence ", write.record.fence, " follows fence ", highest_fence_));
    }
    highest_fence_ = std::max(highest_fence_, write.record.fence);
    record_ = {write.record, absl::StrCat(++versions_), false};
    return RecordWritten{record_.version};
  }

  void Forget() {
    if (record_.record.has_value()) ++run_.forgotten;
    record_ = {};
    highest_fence_ = 0;  // From here on, the wall clocks of the aggregators decide.
  }

  // ---- faults

  void PlanFault() {
    const absl::Time at = kBegin + UpTo(kFaults);
    const uint64_t kind = Pick(5);
    const uint64_t place = Pick(processes_.size());
    const absl::Duration lasts = UpTo(4 * kLease);
    At(at, [this, kind, place, lasts] {
      Process& process = *processes_[place];
      if (kind == 0) {
        process.paused_until = std::max(process.paused_until, now_ + lasts);
      } else if (kind == 1) {
        away_until_ = now_ + lasts;
      } else if (kind == 2) {
        Forget();
      } else if (kind == 3) {
        In(process, [this, &process, place] { Step(process, place, StepDown{}); });
      } else if (!process.dead) {
        process.dead = true;
        process.may_until = std::min(process.may_until, now_);
        At(now_ + lasts, [this, place] { Start(place); });
      }
    });
  }

  // ---- checks

  void Violate(std::string text) {
    if (run_.violation.empty()) run_.violation = std::move(text);
  }

  void CheckOneLeads() {
    uint64_t leaders = 0;
    for (const auto& process : processes_) {
      if (!process->dead && process->core.leads() && process->may_until > now_) ++leaders;
    }
    if (leaders != 1) Violate(absl::StrCat(leaders, " lead when nothing has failed for long"));
  }

  const Chooser& choose_;
  const bool drawn_;
  const PlantedMistake mistake_;
  LeadershipRun run_;
  absl::Time now_ = kBegin;
  std::priority_queue<Timed> plan_;
  uint64_t planned_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  uint64_t lives_ = 0;
  uint64_t requests_ = 0;
  uint64_t highest_fence_ = 0;  // The highest one written since the record was lost.

  RecordState record_;
  uint64_t versions_ = 0;
  bool vouches_ = false;  // It knows which processes have ended.
  absl::Time away_until_ = absl::InfinitePast();
};

}  // namespace

LeadershipRun RunLeadership(const Chooser& choose, bool drawn_faults, PlantedMistake mistake) {
  return World(choose, drawn_faults, mistake).Run();
}

}  // namespace basin::aggregator
