// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/aggregator_process.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"

namespace basin::explore {
namespace {

template <typename K, typename V>
V* Find(std::vector<std::pair<K, V>>& entries, const K& key) {
  for (auto& [known, value] : entries) {
    if (known == key) return &value;
  }
  return nullptr;
}

template <typename K, typename V>
void Put(std::vector<std::pair<K, V>>& entries, const K& key, V value) {
  if (V* known = Find(entries, key)) {
    *known = std::move(value);
    return;
  }
  const auto before = [](const auto& entry, const K& k) { return entry.first < k; };
  entries.emplace(std::lower_bound(entries.begin(), entries.end(), key, before), key,
                  std::move(value));
}

template <typename V, typename Matches>
void EraseIf(std::vector<V>& values, Matches matches) {
  values.erase(std::remove_if(values.begin(), values.end(), matches), values.end());
}

bool IsTheChunk(const ChunkRange& range) { return range == ChunkRange{0, 0, 1}; }

}  // namespace

void AggregatorProcess::Open(aggregator::SessionId session) {
  Step(aggregator::SessionOpened{session, session}, nullptr);
}

void AggregatorProcess::Take(aggregator::SessionId session, const Item& item) {
  if (const auto* message = std::get_if<ToAggregator>(&item)) {
    Step(aggregator::MessageReceived{session, *message}, nullptr);
    return;
  }
  const PushFrame& frame = std::get<PushFrame>(item);
  Step(aggregator::FrameReceived{session,
                                 frame.kind,
                                 frame.lane,
                                 frame.round,
                                 frame.ballot,
                                 frame.range,
                                 kChunkBytes,
                                 {DigestOf(frame.chunk)}},
       &frame.chunk);
}

void AggregatorProcess::Lose(aggregator::SessionId session) {
  Step(aggregator::SessionLost{session, false}, nullptr);
}

void AggregatorProcess::Evict(const WorkerId& worker) {
  Step(aggregator::EvictWorker{kJob, worker, "explored"}, nullptr);
}

void AggregatorProcess::FinishReduction() {
  const Reduction done = reductions_.front();
  reductions_.erase(reductions_.begin());
  Put(results_, {done.lane, done.round, done.ballot}, done.result);
  aggregator::ReduceDone event;
  event.lane = done.lane;
  event.round = done.round;
  event.ballot = done.ballot;
  event.range = done.range;
  event.digests.assign(1, DigestOf(done.result));
  event.facts.squared_norms.assign(1, aggregator::ChunkNorm{});
  Step(event, nullptr);
}

bool AggregatorProcess::WindowRuns() const {
  if (job() == nullptr) return now_ < started_ + core_.config().recovery_window;
  return job()->state() == aggregator::JobState::kRecovering;
}

void AggregatorProcess::PassWindow() {
  now_ += core_.config().recovery_window;
  Step(aggregator::Tick{}, nullptr);
}

bool AggregatorProcess::StartTimeoutRuns() const {
  return job() != nullptr && job()->state() == aggregator::JobState::kForming &&
         core_.NextDeadline() != absl::InfiniteFuture();
}

void AggregatorProcess::PassStartTimeout() {
  now_ += core_.config().start_timeout;
  Step(aggregator::Tick{}, nullptr);
}

void AggregatorProcess::Step(const aggregator::Event& event, const Chunk* chunk) {
  wrong_.clear();
  outputs_.clear();
  std::vector<aggregator::Action> actions;
  core_.Step(event, now_, actions);
  // When the core next wants to wake depends on what it last looked at; a tick makes it look at
  // all.
  core_.Step(aggregator::Tick{}, now_, actions);
  for (aggregator::Action& action : actions) Do(action, chunk);
}

void AggregatorProcess::Do(aggregator::Action& action, const Chunk* chunk) {
  std::visit(
      [&](auto& what) {
        using T = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<T, aggregator::Send>) {
          outputs_.push_back(
              {AggregatorOutput::Kind::kMessage, what.session, Item(std::move(what.message))});
        } else if constexpr (std::is_same_v<T, aggregator::SendAll>) {
          for (const aggregator::SessionId session : what.sessions) {
            outputs_.push_back({AggregatorOutput::Kind::kMessage, session, Item(what.message)});
          }
        } else if constexpr (std::is_same_v<T, aggregator::EndSession>) {
          outputs_.push_back({AggregatorOutput::Kind::kEnd, what.session,
                              Item(ToWorker(Ended{std::move(what.error)}))});
        } else if constexpr (std::is_same_v<T, aggregator::KeepChunks>) {
          if (chunk == nullptr || !IsTheChunk(what.range)) {
            wrong_ = "it keeps chunks of a frame that it was not given";
            return;
          }
          Put(kept_, {what.lane, what.round, what.contributor}, *chunk);
        } else if constexpr (std::is_same_v<T, aggregator::DiscardChunks>) {
          EraseIf(kept_, [&](const auto& entry) {
            return entry.first == ContributionKey{what.lane, what.round, what.contributor};
          });
        } else if constexpr (std::is_same_v<T, aggregator::StartAttempt>) {
          StartAttempt(what);
        } else if constexpr (std::is_same_v<T, aggregator::Reduce>) {
          Reduce(what);
        } else if constexpr (std::is_same_v<T, aggregator::Publish>) {
          Publish(what);
        } else if constexpr (std::is_same_v<T, aggregator::ReleaseResult>) {
          EraseIf(results_, [&](const auto& entry) {
            return entry.first == ResultKey{what.lane, what.round, what.ballot};
          });
        } else if constexpr (std::is_same_v<T, aggregator::RelayResult>) {
          for (const aggregator::SessionId session : what.sessions) {
            SendFrame(session, {what.lane, what.round, what.ballot, what.range, *chunk});
          }
        } else if constexpr (std::is_same_v<T, aggregator::EndRound>) {
          EndRound(what);
        } else if constexpr (std::is_same_v<T, aggregator::Note> ||
                             std::is_same_v<T, aggregator::NameTensors> ||
                             std::is_same_v<T, aggregator::EndJob> ||
                             std::is_same_v<T, aggregator::ResultsTaken> ||
                             std::is_same_v<T, aggregator::Drained>) {
          // Nothing that a worker sees.
        } else {
          wrong_ = "it asks for something that no explored world leads to";
        }
      },
      action);
}

// What was reduced in earlier attempts is of no use any more.
void AggregatorProcess::StartAttempt(const aggregator::StartAttempt& start) {
  EraseIf(results_, [&](const auto& entry) {
    const auto& [lane, round, ballot] = entry.first;
    return lane == start.lane && round == start.round && !(ballot == start.ballot);
  });
  EraseIf(reductions_, [&](const Reduction& reduction) {
    return reduction.lane == start.lane && reduction.round == start.round &&
           !(reduction.ballot == start.ballot);
  });
  Put(attempts_, {start.lane, start.round}, Attempt{start.ballot, start.contributors});
}

void AggregatorProcess::Reduce(const aggregator::Reduce& reduce) {
  const Attempt* attempt = Find(attempts_, RoundKey{reduce.lane, reduce.round});
  if (attempt == nullptr || !(attempt->ballot == reduce.ballot) || !IsTheChunk(reduce.range)) {
    wrong_ = "it reduces at a ballot that it has not started";
    return;
  }
  Reduction reduction{reduce.lane, reduce.round, reduce.ballot, reduce.range, {}};
  for (uint32_t i = 0; i < attempt->contributors.size(); ++i) {
    if (std::count(reduce.skipped.begin(), reduce.skipped.end(), i) > 0) continue;
    const ContributionKey key{reduce.lane, reduce.round, attempt->contributors[i].incarnation};
    const Chunk* kept = Find(kept_, key);
    if (kept == nullptr) {
      wrong_ = absl::StrCat("it reduces bytes of worker ", attempt->contributors[i].worker,
                            " that are not held");
      return;
    }
    reduction.result.mask += kept->mask;
    reduction.result.content += kept->content;
  }
  for (const Contributor& contributor : attempt->contributors) {
    EraseIf(kept_, [&](const auto& entry) {
      return entry.first == ContributionKey{reduce.lane, reduce.round, contributor.incarnation};
    });
  }
  reductions_.push_back(reduction);
}

void AggregatorProcess::Publish(const aggregator::Publish& publish) {
  const Chunk* result = Find(results_, ResultKey{publish.lane, publish.round, publish.ballot});
  if (result == nullptr || !IsTheChunk(publish.range)) {
    wrong_ = "it publishes a result that is not held";
    return;
  }
  for (const aggregator::SessionId session : publish.sessions) {
    SendFrame(session, {publish.lane, publish.round, publish.ballot, publish.range, *result});
  }
}

void AggregatorProcess::EndRound(const aggregator::EndRound& end) {
  const RoundKey round{end.lane, end.round};
  const auto of_round = [&](const auto& key) {
    return std::get<0>(key) == end.lane && std::get<1>(key) == end.round;
  };
  EraseIf(kept_, [&](const auto& entry) { return of_round(entry.first); });
  EraseIf(results_, [&](const auto& entry) { return of_round(entry.first); });
  EraseIf(attempts_, [&](const auto& entry) { return entry.first == round; });
  EraseIf(reductions_, [&](const Reduction& reduction) {
    return reduction.lane == end.lane && reduction.round == end.round;
  });
}

void AggregatorProcess::SendFrame(aggregator::SessionId session, ResultFrame frame) {
  outputs_.push_back({AggregatorOutput::Kind::kFrame, session, Item(std::move(frame))});
}

}  // namespace basin::explore
