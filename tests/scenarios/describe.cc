// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/describe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "protocol/overloaded.h"
#include "tests/world/message_names.h"

namespace basin::scenarios {
namespace {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kJoiner:
      return "joiner";
    case Role::kSpare:
      return "spare";
    case Role::kMember:
      return "member";
  }
  return "unknown";
}

const char* PhaseName(RoundPhase phase) {
  switch (phase) {
    case RoundPhase::kIdle:
      return "IDLE";
    case RoundPhase::kCollect:
      return "COLLECT";
    case RoundPhase::kPrepared:
      return "PREPARED";
  }
  return "UNKNOWN";
}

// Lists only the names, because shapes would make the lines too long.
std::string TensorList(const std::vector<TensorSpec>& tensors) {
  return absl::StrCat(
      "{",
      absl::StrJoin(tensors, ",",
                    [](std::string* out, const TensorSpec& t) { absl::StrAppend(out, t.name); }),
      "}");
}

std::string TensorNames(const Names& names, LaneIndex lane,
                        const std::vector<TensorIndex>& tensors) {
  std::vector<std::string> list;
  for (const TensorIndex tensor : tensors) list.push_back(names.Tensor(lane, tensor));
  return Braces(list);
}

std::string Where(const Names& names, LaneIndex lane, RoundNumber round) {
  return absl::StrCat(" lane=", names.Lane(lane), " round=", round);
}

template <typename Frame>
std::string Chunks(const Names& names, const Frame& frame) {
  std::string text = Where(names, frame.lane, frame.round);
  size_t index = 0;
  for (const ChunkRange& range : frame.ranges) {
    absl::StrAppend(&text, " ", frame.chunks[index].tensor, "[", range.first, ",",
                    range.first + range.count, ")");
    index += range.count;
  }
  return text;
}

// Describes a value: "COMMITTED over {w1,w2}" or "ABORTED (reason)".
std::string DescribeValue(const RoundValue& value) {
  std::string text = OutcomeName(value.outcome);
  if (value.outcome != Outcome::kCommitted) return absl::StrCat(text, " (", value.reason, ")");
  std::vector<std::string> contributors;
  for (const Contributor& contributor : value.contributors) {
    contributors.push_back(contributor.worker);
    if (contributor.deferred > 0) contributors.back() += " with its last";
  }
  absl::StrAppend(&text, " over ", Braces(contributors));
  if (!value.dropped.empty()) absl::StrAppend(&text, " dropped ", Braces(value.dropped));
  if (!value.late.empty()) absl::StrAppend(&text, " without ", Braces(value.late), ", late");
  return text;
}

std::string DescribeHistory(const LaneHistory& lane) {
  std::string text = absl::StrCat(lane.name, ":", lane.last_verdict);
  if (lane.staged.has_value()) {
    absl::StrAppend(&text, " staged ", lane.staged->round, " at ", ToString(lane.staged->ballot));
  } else if (lane.begun > 0) {
    absl::StrAppend(&text, " begun ", lane.begun);
  }
  return text;
}

std::string DescribeHello(const Hello& hello) {
  std::string text = "Hello";
  if (!hello.run.empty()) absl::StrAppend(&text, " run=", hello.run);
  if (hello.fresh) absl::StrAppend(&text, " fresh");
  if (hello.membership.generation == Generation{}) return absl::StrCat(text, " without memory");
  absl::StrAppend(&text, " remembers generation ", Describe(hello.membership));
  if (hello.lanes.empty()) return text;
  return absl::StrCat(
      text, " verdicts ",
      absl::StrJoin(hello.lanes, ", ", [](std::string* out, const LaneHistory& lane) {
        absl::StrAppend(out, DescribeHistory(lane));
      }));
}

std::string DescribeWelcome(const Names& names, const Welcome& welcome) {
  std::string text =
      absl::StrCat("Welcome as ", RoleName(welcome.role), " incarnation ",
                   ToString(welcome.incarnation), " generation ", Describe(welcome.membership));
  for (const LastVerdicts& last : welcome.verdicts) {
    for (const VerdictRecord& record : last.verdicts) {
      absl::StrAppend(&text, ", missed", Where(names, last.lane, record.round), " ",
                      DescribeValue(record.value));
    }
  }
  for (const OpenRound& open : welcome.open) {
    absl::StrAppend(&text, ", open", Where(names, open.lane, open.round), " ",
                    PhaseName(open.phase));
    if (!open.have.empty()) {
      absl::StrAppend(&text, " has ", Describe(names, open.lane, open.have));
    }
  }
  return text;
}

std::string DescribePresent(const Names& names, const Commit& commit) {
  std::vector<TensorIndex> present;
  for (TensorIndex tensor = 0; tensor < commit.present.size(); ++tensor) {
    if (commit.present.Test(tensor)) present.push_back(tensor);
  }
  return TensorNames(names, commit.lane, present);
}

}  // namespace

void Names::Learn(const LaneLayout& layout) {
  LaneNames& lane = lanes_[layout.lane];
  lane.name = layout.name;
  if (lane.tensors.size() < layout.first + layout.tensors.size()) {
    lane.tensors.resize(layout.first + layout.tensors.size());
  }
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    lane.tensors[layout.first + i] = layout.tensors[i].name;
  }
}

std::string Names::Lane(LaneIndex lane) const {
  const auto it = lanes_.find(lane);
  return it == lanes_.end() ? absl::StrCat("#", lane) : it->second.name;
}

std::string Names::Tensor(LaneIndex lane, TensorIndex tensor) const {
  const auto it = lanes_.find(lane);
  const bool known = it != lanes_.end() && tensor < it->second.tensors.size();
  return known ? it->second.tensors[tensor] : absl::StrCat("#", tensor);
}

uint32_t Names::Tensors(LaneIndex lane) const {
  const auto it = lanes_.find(lane);
  return it == lanes_.end() ? 0 : static_cast<uint32_t>(it->second.tensors.size());
}

std::string Braces(const std::vector<std::string>& words) {
  return absl::StrCat("{", absl::StrJoin(words, ","), "}");
}

std::string Describe(const Error& error) {
  return absl::StrCat(ErrorCodeName(error.code), error.text.empty() ? "" : ": ", error.text);
}

std::string Describe(const Membership& membership) {
  return absl::StrCat(ToString(membership.generation), " ", Braces(membership.members));
}

std::string Describe(const BlobKey& key) {
  return absl::StrCat(key.tensor, "@", key.version, " of lane ", key.lane);
}

std::string Describe(const RoundSpec& spec) {
  std::string text = ReduceOpName(spec.op);
  if (spec.weight_by == WeightBy::kSamples) absl::StrAppend(&text, " by samples");
  if (spec.weight_by == WeightBy::kTokens) absl::StrAppend(&text, " by tokens");
  if (spec.weight_by == WeightBy::kMicroBatches) absl::StrAppend(&text, " by micro-batches");
  if (spec.denominator == Denominator::kPresent) absl::StrAppend(&text, " over PRESENT");
  if (spec.prescale != 1) absl::StrAppend(&text, " prescale ", spec.prescale);
  if (spec.postscale != 1) absl::StrAppend(&text, " postscale ", spec.postscale);
  if (spec.predivide != 1) absl::StrAppend(&text, " predivide ", spec.predivide);
  if (spec.loss_scale != 1) absl::StrAppend(&text, " loss scale ", spec.loss_scale);
  return text;
}

std::string Describe(const Names& names, LaneIndex lane, const std::vector<ChunkRange>& ranges) {
  if (ranges.empty()) return "nothing";
  return absl::StrJoin(ranges, " ", [&](std::string* out, const ChunkRange& range) {
    absl::StrAppend(out, names.Tensor(lane, range.tensor), "[", range.first, ",",
                    range.first + range.count, ")");
  });
}

std::string Describe(const Names& names, const ToAggregator& message) {
  const auto in = [&](LaneIndex lane, RoundNumber round) { return Where(names, lane, round); };
  const std::string rest = std::visit(
      Overloaded{
          [&](const Hello&) { return std::string(); },
          [&](const Ready& m) {
            return m.step_label == 0
                       ? std::string()
                       : absl::StrCat(" step=", m.step_label, " state=", m.state_hash);
          },
          [&](const Heartbeat&) { return std::string(); },
          [&](const Register& m) {
            return absl::StrCat(" lane=", m.lane, " ", TensorList(m.tensors));
          },
          [&](const LayoutSeen& m) {
            return absl::StrCat(" lane=", names.Lane(m.lane), " version=", m.version);
          },
          [&](const Begin& m) {
            std::string text = absl::StrCat(in(m.lane, m.round), " ", Describe(m.spec));
            if (m.counts.samples.has_value()) {
              absl::StrAppend(&text, " samples=", *m.counts.samples);
            }
            return text;
          },
          [&](const Skip& m) {
            return absl::StrCat(in(m.lane, m.round), " ", TensorNames(names, m.lane, m.tensors));
          },
          [&](const Commit& m) {
            return absl::StrCat(in(m.lane, m.round), " tensors=", DescribePresent(names, m),
                                " chunks=", m.chunks);
          },
          [&](const Withdraw& m) { return absl::StrCat(in(m.lane, m.round), ": ", m.reason); },
          [&](const Staged& m) {
            return absl::StrCat(in(m.lane, m.round), " ballot=", ToString(m.ballot));
          },
          [&](const ResultAck& m) {
            return absl::StrCat(in(m.lane, m.round), " ", Describe(names, m.lane, m.ranges));
          },
          [&](const Need& m) {
            return absl::StrCat(in(m.lane, m.round), " ballot=", ToString(m.ballot), " ",
                                Describe(names, m.lane, m.ranges));
          },
          [&](const Busy& m) {
            return absl::StrCat(" for ", absl::FormatDuration(m.expected), ": ", m.reason);
          },
          [&](const Abandon&) { return std::string(); },
          [&](const Finished&) { return std::string(); },
          [&](const Leave&) { return std::string(); },
          [&](const Announce& m) { return absl::StrCat(" ", Describe(m.key)); },
          [&](const Get& m) {
            std::string text = absl::StrCat(" ", Describe(m.key));
            if (m.count > 0) {
              absl::StrAppend(&text, " chunks [", m.first, ",", m.first + m.count, ")");
            }
            if (m.source.has_value()) absl::StrAppend(&text, " from ", *m.source);
            return text;
          },
          [&](const LeaseSamples& m) {
            return absl::StrCat(" up to ", m.count, " of epoch ", m.epoch.number);
          },
          [&](const ReturnSamples& m) {
            return absl::StrCat(" ", IntervalSet(m.ranges).count(), " of epoch ", m.epoch);
          },
          [&](const ReportBatch& m) { return absl::StrCat(" ", m.samples, " of ", m.target); },
          [&](const LetGo& m) { return in(m.lane, m.round); },
          [&](const ShardUnreachable& m) { return absl::StrCat(" shard=", m.shard, ": ", m.why); },
      },
      message);
  if (const auto* hello = std::get_if<Hello>(&message)) return DescribeHello(*hello);
  return absl::StrCat(TypeOf(message), rest);
}

std::string Describe(const Names& names, const ToWorker& message) {
  const auto in = [&](LaneIndex lane, RoundNumber round) { return Where(names, lane, round); };
  const auto ranges = [&](LaneIndex lane, const char* what, const std::vector<ChunkRange>& list) {
    return list.empty() ? std::string() : absl::StrCat(" ", what, " ", Describe(names, lane, list));
  };
  const std::string rest = std::visit(
      Overloaded{
          [&](const Welcome&) { return std::string(); },
          [&](const MembershipChanged& m) {
            std::string text =
                absl::StrCat(" ", RoleName(m.role), " generation ", Describe(m.membership));
            if (m.donor.has_value()) absl::StrAppend(&text, " state from ", *m.donor);
            for (const StartRound& start : m.start) {
              absl::StrAppend(&text, ", lane ", start.lane, " starts at round ", start.round);
            }
            return text;
          },
          [&](const LaneLayout& m) {
            return absl::StrCat(" lane=", m.name, " ", TensorList(m.tensors), " round=", m.round);
          },
          [&](const Credit& m) {
            return absl::StrCat(in(m.lane, m.round), ranges(m.lane, "acked", m.acked),
                                ranges(m.lane, "refused", m.refused), " window=", m.window / 1024,
                                "KiB");
          },
          [&](const Pull& m) {
            return absl::StrCat(in(m.lane, m.round), ranges(m.lane, "wanted", m.wanted),
                                ranges(m.lane, "discarded", m.discarded),
                                " window=", m.window / 1024, "KiB");
          },
          [&](const AttemptRestarted& m) {
            return absl::StrCat(in(m.lane, m.round), " ballot=", ToString(m.ballot),
                                ranges(m.lane, "redo", m.redo), ": ", m.reason);
          },
          [&](const Prepared& m) {
            std::string text = absl::StrCat(in(m.lane, m.round), " ballot=", ToString(m.ballot));
            if (m.value_ballot != m.ballot) {
              absl::StrAppend(&text, " value of ", ToString(m.value_ballot));
            }
            return absl::StrCat(text, " ", DescribeValue(m.value));
          },
          [&](const Supply& m) {
            return absl::StrCat(in(m.lane, m.round), " ballot=", ToString(m.ballot), " ",
                                Describe(names, m.lane, m.ranges));
          },
          [&](const Verdict& m) {
            std::string text =
                absl::StrCat(in(m.lane, m.record.round), " ", DescribeValue(m.record.value),
                             ", next generation ", Describe(m.record.next));
            if (m.donor.has_value()) absl::StrAppend(&text, " state from ", *m.donor);
            return text;
          },
          [&](const Rejected& m) { return absl::StrCat(" ", Describe(m.error)); },
          [&](const Ended& m) { return absl::StrCat(" ", Describe(m.error)); },
          [&](const Drain& m) { return std::string(m.service ? " of the service" : ""); },
          [&](const Ask& m) {
            return absl::StrCat(" ", Describe(m.key), " chunks [", m.first, ",", m.first + m.count,
                                ")");
          },
          [&](const BlobKnown& m) {
            return absl::StrCat(" ", Describe(m.key), " as ", DescribeSpec(m.spec), " at ",
                                m.source);
          },
          [&](const GetFailed& m) {
            return absl::StrCat(" ", Describe(m.key), " ", Describe(m.error));
          },
          [&](const HeldUp& m) -> std::string {
            if (m.round > 0) return absl::StrCat(in(m.lane, m.round), " for ", m.text);
            return absl::StrCat(" ", m.text.empty() ? "no more" : m.text);
          },
          [&](const SamplesLeased& m) {
            return absl::StrCat(" ", IntervalSet(m.ranges).count(), " of epoch ", m.epoch);
          },
          [&](const BatchReported& m) {
            return absl::StrCat(" ", m.samples, m.closed ? ", closed" : ", open");
          },
          [&](const LetGo& m) { return in(m.lane, m.round); },
          [&](const LaneGone& m) { return absl::StrCat(" lane=", names.Lane(m.lane)); },
          [&](const Placement& m) {
            std::string text = absl::StrCat(" ", m.number, ":");
            for (const PlacedShard& shard : m.shards) absl::StrAppend(&text, " ", shard.shard);
            for (const ShardId shard : m.lost) absl::StrAppend(&text, " lost ", shard);
            return text;
          },
      },
      message);
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    return DescribeWelcome(names, *welcome);
  }
  return absl::StrCat(TypeOf(message), rest);
}

std::string Describe(const Names& names, const PushFrame& frame) {
  std::string text = absl::StrCat(TypeOf(frame), Chunks(names, frame));
  if (frame.kind == aggregator::FrameKind::kSupply) {
    absl::StrAppend(&text, " ballot=", ToString(frame.ballot));
  }
  return text;
}

std::string Describe(const Names& names, const ResultFrame& frame) {
  return absl::StrCat("Result", Chunks(names, frame), " ballot=", ToString(frame.ballot));
}

std::string Describe(const BlobFrame& frame) {
  return absl::StrCat("Value ", Describe(frame.key), " chunks [", frame.first, ",",
                      frame.first + frame.count, ")");
}

std::string TypeOf(const ToAggregator& message) { return world::NameOf(message); }
std::string TypeOf(const ToWorker& message) { return world::NameOf(message); }

std::string TypeOf(const PushFrame& frame) {
  return frame.kind == aggregator::FrameKind::kSupply ? "Supplied" : "Contribution";
}

}  // namespace basin::scenarios
