// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/world/narrate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "protocol/overloaded.h"
#include "tests/world/message_names.h"

namespace basin::world {
namespace {

std::string Text(const ChunkRange& range) {
  return absl::StrCat("t", range.tensor, "[", range.first, "..", range.first + range.count, ")");
}

std::string Text(absl::Span<const ChunkRange> ranges) {
  return absl::StrJoin(ranges, " ", [](std::string* out, const ChunkRange& range) {
    absl::StrAppend(out, Text(range));
  });
}

std::string Text(const std::vector<SampleRange>& ranges) {
  std::string text;
  for (const SampleRange& range : ranges) {
    absl::StrAppend(&text, " [", range.begin, ",", range.end, ")");
  }
  return text;
}

std::string Round(LaneIndex lane, RoundNumber round) {
  return absl::StrCat(" lane ", lane, " round ", round);
}

std::string Text(const Membership& membership) {
  return absl::StrCat("generation ", ToString(membership.generation), " {",
                      absl::StrJoin(membership.members, ","), "}");
}

const char* RoleName(Role role) {
  return role == Role::kMember ? "member" : role == Role::kSpare ? "spare" : "joiner";
}

std::string Text(const Placement& placement) {
  std::string text = absl::StrCat("placement ", placement.number, " {");
  for (const PlacedShard& placed : placement.shards) absl::StrAppend(&text, " ", placed.shard);
  absl::StrAppend(&text, " }");
  for (const ShardId shard : placement.lost) absl::StrAppend(&text, " without ", shard);
  return text;
}

// Empty while everything is on shard 0.
std::string Text(const RoundPlacement& placement) {
  if (placement.number == 0) return "";
  return absl::StrCat(", then placement ", placement.number, " of ", placement.layout, " tensors");
}

std::string Text(const RoundValue& value) {
  return absl::StrCat(OutcomeName(value.outcome), " over {",
                      absl::StrJoin(value.contributors, ",",
                                    [](std::string* out, const Contributor& contributor) {
                                      absl::StrAppend(out, contributor.worker);
                                      if (contributor.deferred == 0) return;
                                      absl::StrAppend(out, " with its last");
                                    }),
                      "}", value.late.empty() ? "" : ", without ", absl::StrJoin(value.late, ","),
                      value.reason.empty() ? "" : " because ", value.reason,
                      value.samples.has_value() ? Text(value.samples->ranges) : "");
}

}  // namespace

std::string Narrate(const VerdictRecord& record) {
  return absl::StrCat("round ", record.round, " ", Text(record.value), ", ballot ",
                      ToString(record.ballot), ", value ", ToString(record.value_ballot), ", next ",
                      Text(record.next));
}

std::string Narrate(const client::MembershipNow& now) {
  return absl::StrCat("is ", RoleName(now.role), " in ", Text(now.membership),
                      now.donor.has_value() ? absl::StrCat(", state from ", *now.donor) : "");
}

std::string Narrate(const PushFrame<Chunk>& frame) {
  return absl::StrCat(frame.kind == aggregator::FrameKind::kSupply ? "supply" : "push",
                      Round(frame.lane, frame.round), " ", Text(frame.ranges));
}

std::string Narrate(const ResultFrame<Chunk>& frame) {
  return absl::StrCat("result", Round(frame.lane, frame.round), " ballot ", ToString(frame.ballot),
                      " ", Text(frame.ranges));
}

std::string Narrate(const ToAggregator& message) {
  return absl::StrCat(
      NameOf(message),
      std::visit(
          Overloaded{
              [](const Hello& m) {
                std::string text = absl::StrCat(" ", m.worker, " nonce ", m.nonce % 1000,
                                                m.fresh ? " fresh" : "", ", incarnation ",
                                                ToString(m.incarnation), ", ", Text(m.membership));
                for (const LaneHistory& lane : m.lanes) {
                  absl::StrAppend(&text, "; ", lane.name, " after ", lane.last_verdict, ", begun ",
                                  lane.begun);
                  if (lane.staged.has_value()) {
                    absl::StrAppend(&text, ", staged ", lane.staged->round, " at ",
                                    ToString(lane.staged->ballot));
                  }
                }
                return text;
              },
              [](const Begin& m) { return Round(m.lane, m.round); },
              [](const Skip& m) {
                return absl::StrCat(Round(m.lane, m.round), " tensors ",
                                    absl::StrJoin(m.tensors, ","));
              },
              [](const Commit& m) {
                return absl::StrCat(Round(m.lane, m.round), " ", m.chunks, " chunks, layout ",
                                    m.layout_version);
              },
              [](const Withdraw& m) { return Round(m.lane, m.round); },
              [](const Staged& m) {
                return absl::StrCat(Round(m.lane, m.round), " ballot ", ToString(m.ballot));
              },
              [](const ResultAck& m) {
                return absl::StrCat(Round(m.lane, m.round), " ballot ", ToString(m.ballot), " ",
                                    Text(m.ranges));
              },
              [](const Need& m) {
                return absl::StrCat(Round(m.lane, m.round), " ballot ", ToString(m.ballot), " ",
                                    Text(m.ranges));
              },
              [](const LayoutSeen& m) {
                return absl::StrCat(" lane ", m.lane, " version ", m.version);
              },
              [](const basin::Register& m) {
                return absl::StrCat(" ", m.lane, ", ", m.tensors.size(), " tensors");
              },
              [](const basin::Announce& m) {
                return absl::StrCat(" ", m.key.lane, "/", m.key.tensor, "@", m.key.version);
              },
              [](const Get& m) {
                return absl::StrCat(" ", m.key.lane, "/", m.key.tensor, "@", m.key.version, " ",
                                    m.first, "+", m.count);
              },
              [](const LeaseSamples& m) {
                return absl::StrCat(" lane ", m.lane, " ", m.count, " of epoch ", m.epoch.number);
              },
              [](const ReturnSamples& m) {
                return absl::StrCat(" lane ", m.lane, " epoch ", m.epoch, Text(m.ranges));
              },
              [](const ReportBatch& m) {
                return absl::StrCat(" lane ", m.lane, " round ", m.round, " ", m.samples, " of ",
                                    m.target);
              },
              [](const LetGo& m) {
                return absl::StrCat(" lane ", m.lane, " after round ", m.round);
              },
              [](const ShardUnreachable& m) { return absl::StrCat(" ", m.shard, ": ", m.why); },
              [](const auto&) { return std::string(); },
          },
          message));
}

std::string Narrate(const ToWorker& message) {
  return absl::StrCat(
      NameOf(message),
      std::visit(
          Overloaded{
              [](const Welcome& m) {
                std::string text = absl::StrCat(" as ", RoleName(m.role), ", incarnation ",
                                                ToString(m.incarnation), ", ", Text(m.membership));
                for (const Placement& placement : m.placements) {
                  absl::StrAppend(&text, "; ", Text(placement));
                }
                for (const OpenRound& open : m.open) {
                  absl::StrAppend(&text, "; open", Round(open.lane, open.round), " phase ",
                                  static_cast<int>(open.phase), ", has ", Text(open.have));
                }
                return text;
              },
              [](const MembershipChanged& m) {
                std::string text = absl::StrCat(" ", RoleName(m.role), " in ", Text(m.membership));
                for (const StartRound& start : m.start) {
                  absl::StrAppend(&text, ", ", start.lane, " from ", start.round);
                }
                if (m.donor.has_value()) absl::StrAppend(&text, ", donor ", *m.donor);
                return text;
              },
              [](const LaneLayout& m) {
                return absl::StrCat(" ", m.name, " from ", m.first, ", ", m.tensors.size(),
                                    " tensors, round ", m.round, ", window ", m.window,
                                    Text(m.placement));
              },
              [](const Credit& m) {
                return absl::StrCat(Round(m.lane, m.round), " window ", m.window, " acked ",
                                    Text(m.acked), m.refused.empty() ? "" : " refused ",
                                    Text(m.refused));
              },
              [](const Pull& m) {
                return absl::StrCat(Round(m.lane, m.round), " wanted ", Text(m.wanted),
                                    " discarded ", Text(m.discarded), " window ", m.window);
              },
              [](const AttemptRestarted& m) {
                return absl::StrCat(Round(m.lane, m.round), " ballot ", ToString(m.ballot),
                                    " redo ", Text(m.redo));
              },
              [](const Prepared& m) {
                return absl::StrCat(Round(m.lane, m.round), " ballot ", ToString(m.ballot),
                                    " value ", ToString(m.value_ballot), " ", Text(m.value));
              },
              [](const Supply& m) {
                return absl::StrCat(Round(m.lane, m.round), " ", Text(m.ranges));
              },
              [](const Verdict& m) {
                return absl::StrCat(" lane ", m.lane, " ", Narrate(m.record), Text(m.placement));
              },
              [](const Rejected& m) {
                return absl::StrCat(" ", ErrorCodeName(m.error.code), ": ", m.error.text);
              },
              [](const Ended& m) {
                return absl::StrCat(" ", ErrorCodeName(m.error.code), ": ", m.error.text);
              },
              [](const Ask& m) {
                return absl::StrCat(" ", m.key.lane, "/", m.key.tensor, "@", m.key.version, " ",
                                    m.first, "+", m.count);
              },
              [](const SamplesLeased& m) {
                return absl::StrCat(" lane ", m.lane, " epoch ", m.epoch, " outcome ",
                                    static_cast<int>(m.outcome), Text(m.ranges));
              },
              [](const BatchReported& m) {
                return absl::StrCat(" lane ", m.lane, " round ", m.round, " ", m.samples,
                                    m.closed ? " closed" : " open");
              },
              [](const LetGo& m) {
                return absl::StrCat(" lane ", m.lane, " after round ", m.round);
              },
              [](const LaneGone& m) { return absl::StrCat(" lane ", m.lane); },
              [](const Placement& m) { return absl::StrCat(" ", Text(m)); },
              [](const auto&) { return std::string(); },
          },
          message));
}

}  // namespace basin::world
