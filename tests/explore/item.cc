// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/item.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::explore {
namespace {

std::string Names(const std::vector<WorkerId>& workers) {
  return absl::StrCat("{", absl::StrJoin(workers, ","), "}");
}

std::string Describe(const Membership& membership) {
  return absl::StrCat("generation ", ToString(membership.generation), " ",
                      Names(membership.members));
}

std::string Describe(const RoundValue& value) {
  std::vector<WorkerId> contributors;
  for (const Contributor& contributor : value.contributors) {
    contributors.push_back(contributor.worker);
  }
  return absl::StrCat(OutcomeName(value.outcome), " over ", Names(contributors));
}

std::string Describe(const VerdictRecord& record) {
  return absl::StrCat("round ", record.round, " ", Describe(record.value), " reduced at ",
                      ToString(record.value_ballot), ", told at ", ToString(record.ballot),
                      ", next ", Describe(record.next));
}

struct Words {
  std::string operator()(const Hello& m) const {
    std::string text =
        absl::StrCat("Hello as ", ToString(m.incarnation), ", ", Describe(m.membership));
    for (const LaneHistory& lane : m.lanes) {
      absl::StrAppend(&text, ", last verdict ", lane.last_verdict);
      if (lane.staged.has_value()) {
        absl::StrAppend(&text, ", staged round ", lane.staged->round, " ",
                        Describe(lane.staged->value), " at ", ToString(lane.staged->ballot));
      }
    }
    return text;
  }
  std::string operator()(const Ready&) const { return "Ready"; }
  std::string operator()(const Heartbeat&) const { return "Heartbeat"; }
  std::string operator()(const Register&) const { return "Register"; }
  std::string operator()(const LayoutSeen& m) const {
    return absl::StrCat("LayoutSeen ", m.version);
  }
  std::string operator()(const Begin& m) const { return absl::StrCat("Begin round ", m.round); }
  std::string operator()(const Skip& m) const { return absl::StrCat("Skip round ", m.round); }
  std::string operator()(const Commit& m) const { return absl::StrCat("Commit round ", m.round); }
  std::string operator()(const Withdraw& m) const {
    return absl::StrCat("Withdraw round ", m.round);
  }
  std::string operator()(const Staged& m) const {
    return absl::StrCat("Staged round ", m.round, " at ", ToString(m.ballot));
  }
  std::string operator()(const ResultAck& m) const {
    return absl::StrCat("ResultAck round ", m.round, " of ", ToString(m.ballot));
  }
  std::string operator()(const Need& m) const {
    return absl::StrCat("Need round ", m.round, " of ", ToString(m.ballot));
  }
  std::string operator()(const Busy&) const { return "Busy"; }
  std::string operator()(const Abandon&) const { return "Abandon"; }
  std::string operator()(const Finished&) const { return "Finished"; }
  std::string operator()(const Leave&) const { return "Leave"; }
  std::string operator()(const Announce&) const { return "Announce"; }
  std::string operator()(const Get&) const { return "Get"; }

  std::string operator()(const Welcome& m) const {
    std::string text = absl::StrCat("Welcome as ", ToString(m.incarnation), " ",
                                    m.role == Role::kMember ? "member" : "joiner", ", term ",
                                    m.term, ", ", Describe(m.membership));
    for (const OpenRound& open : m.open) {
      absl::StrAppend(&text, ", open round ", open.round, " phase ", static_cast<int>(open.phase),
                      " at ", ToString(open.ballot));
    }
    for (const LastVerdicts& last : m.verdicts) {
      for (const VerdictRecord& record : last.verdicts) {
        absl::StrAppend(&text, ", verdict of ", Describe(record));
      }
    }
    return text;
  }
  std::string operator()(const MembershipChanged& m) const {
    std::string text =
        absl::StrCat("MembershipChanged ", Describe(m.membership),
                     m.role == Role::kMember ? ", you are a member" : ", you are not a member");
    for (const StartRound& start : m.start) absl::StrAppend(&text, ", from round ", start.round);
    return text;
  }
  std::string operator()(const LaneLayout& m) const {
    return absl::StrCat("LaneLayout ", m.first + m.tensors.size());
  }
  std::string operator()(const Credit& m) const {
    return absl::StrCat("Credit round ", m.round, ", acked ", m.acked.size(), ", refused ",
                        m.refused.size());
  }
  std::string operator()(const Pull& m) const { return absl::StrCat("Pull round ", m.round); }
  std::string operator()(const AttemptRestarted& m) const {
    return absl::StrCat("AttemptRestarted round ", m.round, " at ", ToString(m.ballot), ", redo ",
                        m.redo.size());
  }
  std::string operator()(const Prepared& m) const {
    return absl::StrCat("Prepared round ", m.round, " at ", ToString(m.ballot), ", ",
                        Describe(m.value), " reduced at ", ToString(m.value_ballot));
  }
  std::string operator()(const Supply& m) const { return absl::StrCat("Supply round ", m.round); }
  std::string operator()(const Verdict& m) const {
    return absl::StrCat("Verdict of ", Describe(m.record));
  }
  std::string operator()(const Rejected& m) const {
    return absl::StrCat("Rejected ", ErrorCodeName(m.error.code), ": ", m.error.text);
  }
  std::string operator()(const Ended& m) const {
    return absl::StrCat("Ended ", ErrorCodeName(m.error.code), ": ", m.error.text);
  }
  std::string operator()(const Drain&) const { return "Drain"; }
  std::string operator()(const Ask&) const { return "Ask"; }
  std::string operator()(const ValueKnown&) const { return "ValueKnown"; }
  std::string operator()(const GetFailed&) const { return "GetFailed"; }
  std::string operator()(const HeldUp& m) const { return absl::StrCat("HeldUp for ", m.text); }

  std::string operator()(const ToAggregator& m) const { return std::visit(*this, m); }
  std::string operator()(const ToWorker& m) const { return std::visit(*this, m); }
  std::string operator()(const PushFrame& m) const {
    return absl::StrCat(m.kind == aggregator::FrameKind::kSupply ? "supply" : "contribution",
                        " frame round ", m.round, " (", DescribeMask(m.chunks[0].mask), ")");
  }
  std::string operator()(const ResultFrame& m) const {
    return absl::StrCat("result frame round ", m.round, " of ", ToString(m.ballot), " (",
                        DescribeMask(m.chunks[0].mask), ")");
  }
};

}  // namespace

std::string Describe(const Item& item) { return std::visit(Words(), item); }

std::string DescribeMask(uint64_t mask) {
  std::vector<std::string> names;
  for (uint32_t worker = 0; worker < 16; ++worker) {
    const uint64_t times = (mask >> (4 * worker)) & 15;
    if (times == 1) names.push_back(absl::StrCat("w", worker));
    if (times > 1) names.push_back(absl::StrCat(times, " x w", worker));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, "+");
}

}  // namespace basin::explore
