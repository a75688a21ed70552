// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/worker_process.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/explore/aggregator_process.h"

namespace basin::explore {
namespace {

// The client's clock stands still, because none of its timers matters here.
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(24);

client::Config MakeConfig(uint32_t job, uint32_t worker, uint32_t life,
                          const JobSettings& settings) {
  client::Config config;
  config.job = NameOfJob(job);
  config.worker = absl::StrCat("w", worker);
  config.nonce = 1 + life * kMaxWorkers + worker;
  config.settings = settings;
  config.streams = 1;
  config.answer_warning = absl::InfiniteDuration();
  config.backoff_limit = absl::ZeroDuration();  // A step of the world decides when it reconnects.
  config.follows_link = false;                  // Its estimates would make equal worlds different.
  return config;
}

// A tensor of one whole chunk.
TensorSpec TheTensor() { return {"t", DType::kF32, {kChunkBytes / 4}}; }

RoundSpec TheSpec() {
  RoundSpec spec;
  spec.op = ReduceOp::kAverage;
  return spec;
}

}  // namespace

WorkerProcess::WorkerProcess(uint32_t job, uint32_t worker, uint32_t life,
                             const JobSettings& settings, Node node)
    : worker_(worker), life_(life), node_(node), client_(MakeConfig(job, worker, life, settings)) {}

void WorkerProcess::Start(LaneKind kind) {
  Call(client::RegisterTensors{kLane, kind, {TheTensor()}});
  Step(client::DeclareReady{}, nullptr);
}

void WorkerProcess::SessionUp() { Call(client::SessionUp{}); }

void WorkerProcess::SessionDown() { Call(client::SessionDown{"explored"}); }

void WorkerProcess::StreamDown() { Call(client::StreamDown{0}); }

void WorkerProcess::Take(const Item& item) {
  outputs_.clear();
  applied_.clear();
  wrong_.clear();
  if (const auto* message = std::get_if<ToWorker>(&item)) {
    Step(client::MessageReceived{*message}, nullptr);
  } else {
    const ResultFrame& frame = std::get<ResultFrame>(item);
    Step(shell::EventOf(Sums(), frame), &frame);
  }
}

bool WorkerProcess::TrainerCanStep(RoundNumber last_round) const {
  if (trainer_ == TrainerPhase::kBegun || trainer_ == TrainerPhase::kWithout) return true;
  return trainer_ == TrainerPhase::kIdle && last_verdict() < last_round;
}

void WorkerProcess::StepTrainer(bool whole) {
  outputs_.clear();
  applied_.clear();
  wrong_.clear();
  if (trainer_ == TrainerPhase::kWithout) {
    trainer_ = TrainerPhase::kInRound;
    return Step(client::RequestResults{0}, nullptr);
  }
  if (trainer_ == TrainerPhase::kIdle) {
    trainer_ = TrainerPhase::kBegun;
    loads_ = false;
    SetRanks(last_verdict() + 1);
    client::BeginRound begin;
    begin.spec = TheSpec();
    begin.carries = node_ == Node::kCarries && worker_ == 0 ? 1 : 0;
    Step(begin, nullptr);
    if (!whole) return;
  }
  if (node_ == Node::kCarries && worker_ == 1) {
    trainer_ = TrainerPhase::kWithout;
    Step(client::WithdrawRound{0, "w0 has its gradients", true}, nullptr);
    return Step(client::WaitRound{0, absl::InfiniteFuture()}, nullptr);
  }
  trainer_ = TrainerPhase::kInRound;
  const RoundNumber round = last_verdict() + 1;
  Step(client::PushTensor{0, 0, DigestOf(ContributionOf(worker_, life_, round))}, nullptr);
  Step(client::CommitRound{0}, nullptr);
  SetRanks(round + 1);  // While the round is open, so that hellos report it before a begin does.
  // An early verdict ends the round with the commit; the wait then ends at once.
  Step(client::WaitRound{0, absl::InfiniteFuture()}, nullptr);
}

uint32_t WorkerProcess::TrainersOf(uint32_t worker, RoundNumber round) const {
  if (worker != 0 || node_ == Node::kNone) return 1;
  return node_ == Node::kCarries || round % 2 == 1 ? 2 : 1;
}

void WorkerProcess::SetRanks(RoundNumber round) {
  if (node_ != Node::kShrinks || worker_ != 0) return;
  Step(client::SetRanks{TrainersOf(worker_, round), 0}, nullptr);
}

RoundNumber WorkerProcess::last_verdict() const { return client_.lanes()[0].last_verdict; }

bool WorkerProcess::Holds(const Applied& version) const {
  if (!client_.has_history()) return false;
  const client::Lane& lane = client_.lanes()[0];
  for (const VerdictRecord& record : lane.verdicts) {
    if (Applied{record.round, record.chain} == version) return true;
  }
  const std::optional<StagedValue>& staged = lane.settlement.staged();
  return staged.has_value() && staged->round == version.round && lane.chain.has_value() &&
         ExtendChain(*lane.chain, staged->round, staged->value) == version.chain;
}

// Makes a call that begins a step, so earlier outputs are cleared.
void WorkerProcess::Call(const client::Event& event) {
  outputs_.clear();
  applied_.clear();
  wrong_.clear();
  Step(event, nullptr);
}

void WorkerProcess::Step(const client::Event& event, const ResultFrame* arrived) {
  std::vector<client::Action> actions;
  client_.Step(event, kNow, actions);
  bool opens = false;
  for (const client::Action& action : actions) {
    Do(action, arrived);
    opens |= std::holds_alternative<client::OpenStream>(action);
  }
  if (loads_ && client_.lanes()[0].undelivered.has_value()) {
    Wrong("its first round has a verdict before it has the state of before that round");
  }
  // A data stream opens as soon as the client asks for it: a late opening would look the same as
  // late frames.
  if (opens) Step(client::StreamUp{0}, nullptr);
  if (declare_ready_) {
    declare_ready_ = false;
    Step(client::DeclareReady{}, nullptr);
  }
}

void WorkerProcess::Wrong(std::string what) {
  if (wrong_.empty()) wrong_ = std::move(what);
}

void WorkerProcess::Do(const client::Action& action, const ResultFrame* arrived) {
  using Kind = WorkerOutput::Kind;
  const auto spec_of = [](uint32_t) { return TheTensor(); };
  std::visit(
      [&](const auto& what) {
        using T = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<T, client::Send>) {
          outputs_.push_back({Kind::kMessage, Item(what.message)});
        } else if constexpr (std::is_same_v<T, client::OpenSession>) {
          outputs_.push_back({Kind::kOpenSession, {}});
        } else if constexpr (std::is_same_v<T, client::CloseSession>) {
          outputs_.push_back({Kind::kCloseSession, {}});
        } else if constexpr (std::is_same_v<T, client::OpenStream>) {
          outputs_.push_back({Kind::kOpenStream, {}});
        } else if constexpr (std::is_same_v<T, client::SendContribution>) {
          const auto chunk_of = [&](const TensorSpec&, uint32_t) {
            return ContributionOf(worker_, life_, what.round);
          };
          outputs_.push_back({Kind::kFrame, Item(shell_.FrameOf(what, spec_of, chunk_of))});
        } else if constexpr (std::is_same_v<T, client::SendSupply>) {
          absl::StatusOr<PushFrame> frame = shell_.FrameOf(what, spec_of);
          if (!frame.ok()) return Wrong(std::string(frame.status().message()));
          outputs_.push_back({Kind::kFrame, Item(*std::move(frame))});
        } else if constexpr (std::is_same_v<T, client::KeepResult>) {
          const absl::Status status = shell_.Do(what, arrived);
          if (!status.ok()) Wrong(std::string(status.message()));
        } else if constexpr (std::is_same_v<T, client::Deliver>) {
          Deliver(what.record);
        } else if constexpr (std::is_same_v<T, client::FailRound>) {
          Fail(what);
        } else if constexpr (std::is_same_v<T, client::RoundRejected>) {
          Wrong(absl::StrCat("its contribution was rejected: ", what.error.text));
        } else if constexpr (std::is_same_v<T, client::Refused>) {
          Wrong(absl::StrCat("a call of its trainer was refused: ", what.error.text));
        } else if constexpr (std::is_same_v<T, client::MembershipNow>) {
          TakePlace(what);
        } else if constexpr (std::is_same_v<T, client::Fatal>) {
          trainer_ = TrainerPhase::kStopped;
          conflict_ = what.error.code == ErrorCode::kLineageConflict;
          if (!conflict_) Wrong(absl::StrCat("it was told to stop: ", what.error.text));
        } else {
          Wrong("it asks for something that no explored world leads to");
        }
      },
      action);
}

void WorkerProcess::Deliver(const VerdictRecord& record) {
  applied_.push_back({record.round, record.chain});
  if (trainer_ != TrainerPhase::kInRound && trainer_ != TrainerPhase::kWithout) {
    Wrong(absl::StrCat("round ", record.round, " is delivered to a trainer that does not wait"));
  }
  trainer_ = TrainerPhase::kIdle;
  uint64_t mask = 0;
  uint32_t trainers = 0;
  for (const Contributor& contributor : record.value.contributors) {
    const auto worker = static_cast<uint32_t>(contributor.worker[1] - '0');
    mask += MaskOf(worker);
    trainers += TrainersOf(worker, record.round);
  }
  if (record.value.divisor != trainers) {
    Wrong(absl::StrCat("round ", record.round, " is divided by ", record.value.divisor,
                       ", but holds the gradients of ", trainers, " trainers"));
  }
  const shell::StagedChunks<Chunk>& staged = shell_.staged(0);
  const Chunk* chunk = staged.Find(0, 0);
  if (staged.round != record.round || chunk == nullptr || chunk->mask != mask ||
      DigestOf(*chunk) != record.value.digest) {
    Wrong(absl::StrCat("it applies round ", record.round, " with the bytes of round ", staged.round,
                       " from ", DescribeMask(chunk == nullptr ? 0 : chunk->mask),
                       " where the record counts ", DescribeMask(mask)));
  }
}

void WorkerProcess::Fail(const client::FailRound& fail) {
  switch (fail.error.code) {
    case ErrorCode::kRoundAborted:
      trainer_ = TrainerPhase::kIdle;
      break;
    case ErrorCode::kEvicted:
      trainer_ = TrainerPhase::kWaiting;
      declare_ready_ = true;
      break;
    case ErrorCode::kLineageConflict:
      break;  // Fatal follows.
    default:
      Wrong(absl::StrCat("round ", fail.round, " fails: ", fail.error.text));
  }
}

void WorkerProcess::TakePlace(const client::MembershipNow& place) {
  // With generation zero, its incarnation has ended, and it does not know its next membership yet.
  if (place.membership.generation.term > 0) {
    if (place.membership.generation < generation_) {
      Wrong(absl::StrCat("its generation goes back from ", ToString(generation_), " to ",
                         ToString(place.membership.generation)));
    }
    generation_ = place.membership.generation;
  }
  if (place.role == Role::kMember) {
    if (trainer_ == TrainerPhase::kWaiting) {
      trainer_ = TrainerPhase::kIdle;
      // A script that makes calls loads no state: it stages a call that was prepared before it
      // joined.
      loads_ = place.donor.has_value() && client_.lanes()[0].kind == LaneKind::kGradient;
    }
  } else if (trainer_ != TrainerPhase::kWaiting && trainer_ != TrainerPhase::kStopped) {
    trainer_ = TrainerPhase::kWaiting;
    declare_ready_ = true;
  }
}

}  // namespace basin::explore
