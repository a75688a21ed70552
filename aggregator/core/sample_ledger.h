// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ledger of a lane's samples: every sample of an epoch is trained exactly once, whichever
// workers come and go.
//
// A position of the present epoch is committed, or held by one worker, or free. A worker begins a
// round with positions that it holds. The verdict commits those of all contributors that are
// counted; after a round that is aborted, or that does not count it, a worker still holds them.
//
// A holder that has gone (its worker is lost, has finished, or has asked for a later epoch) keeps
// only the positions that the open round still counts, until that round ends: they may be
// committed. All others are free at once.
//
// An epoch of steps is leased by another rule. Each round is of one step: of the `global_batch`
// lowest positions that are not committed, each of which is in one contribution. So who has which
// follows from what is committed and from the ranks of the generation. A lease is then only the
// asker's share of a step; nobody holds it, and a round that is not of a whole step is aborted.
//
// Whatever is committed is in the verdicts, so that a recovery finds it; who holds what is in the
// hellos.
//
// What it takes of memory grows with the separate ranges of positions, which workers choose. Need()
// is the most that it may become before the next request that can be refused: whatever a verdict
// commits, and whichever worker goes, each range that the open round counts cuts others at most
// twice. So a request that would need more than its Budget is refused, and everything else fits.
//
// The caller passes the incarnations of workers, and the positions that the open round
// counts for one of them (`counted`).
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_SAMPLE_LEDGER_H_
#define BASIN_AGGREGATOR_CORE_SAMPLE_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "protocol/ids.h"
#include "protocol/intervals.h"
#include "protocol/messages.h"
#include "protocol/samples.h"

namespace basin::aggregator {

// Makes values of this namespace comparable wherever they are nested, see protocol/fields.h.
using basin::operator==;
using basin::operator!=;

class SampleLedger {
 public:
  // How the worker that asks stands among the members.
  struct Asker {
    uint32_t members = 1;   // So many workers lease.
    uint32_t rank = 0;      // The first of the trainers that it stands for, ...
    uint32_t ranks = 1;     // ... of so many, ...
    uint32_t trainers = 1;  // ... among those of the generation.
  };
  // What the ledger may need.
  struct Budget {
    uint64_t bytes = 0;
    uint64_t named = 0;  // As in Need().
  };
  struct Answer {
    LeaseOutcome outcome = LeaseOutcome::kLeased;
    std::vector<SampleRange> ranges;
    Error refusal;  // With kRefused: the text is the end of a sentence about the worker.
    bool lacks_memory = false;  // That is why.
    bool moved = false;         // The lane is at another epoch now, ...
    uint64_t left = 0;          // ... and so many positions of the one before are not committed.
  };

  const SampleEpoch& epoch() const { return epoch_; }
  bool Ended() const { return committed_.count() == epoch_.samples; }
  uint64_t committed() const { return committed_.count(); }
  uint64_t free() const { return free_.count(); }
  // The positions that the worker holds.
  const IntervalSet& HeldBy(const Incarnation& incarnation) const;
  // What is committed as of the last verdict: the same at all workers that have it.
  SampleProgress settled() const;
  // What a checkpoint had committed, as long as no verdict has committed anything of the epoch.
  std::vector<SampleRange> resumed() const {
    return before_.has_value() ? committed_.Runs() : std::vector<SampleRange>{};
  }

  // ---- memory
  // What the positions and their holders take now.
  uint64_t held_bytes() const { return BytesOf(holders_.size(), runs()); }
  // What they need, if the contributions of the open round name so many ranges. A holder needs that
  // of a few ranges from the beginning, so that a worker that trains on neighbours is never
  // refused.
  uint64_t Need(uint64_t named) const { return NeedOf(holders_.size(), runs() + 2 * named); }
  // What so many holders and ranges need.
  static uint64_t NeedOf(uint64_t holders, uint64_t runs);
  // Why what a worker asks for does not fit into the budget, as the end of a sentence.
  std::string WhyNoMemory(const Budget& budget) const;

  // ---- what workers ask for
  // Free positions, the lowest first. At the end of the epoch a worker gets its share of what is
  // left; in an epoch of steps, its share of the step that it asks for. `counted` has the positions
  // of all contributions.
  Answer Lease(const Incarnation& incarnation, const WorkerId& worker, const LeaseSamples& ask,
               const Asker& asker, const IntervalSet& counted, const Budget& budget);
  // Positions that the worker does not hold, or that the open round counts, are ignored. Returns
  // why nothing was taken back, as the end of a sentence; empty if it was.
  std::string Return(const Incarnation& incarnation, const ReturnSamples& back,
                     const IntervalSet& counted, const Budget& budget);
  // Why a worker cannot contribute what it, and those that it was reduced with, computed from these
  // positions, as the end of a sentence; empty if it can. `begun`: how many ranges the others have
  // begun the round with.
  std::string WhyNotBegin(const std::vector<Incarnation>& workers, uint64_t epoch,
                          const std::vector<SampleRange>& ranges, uint64_t begun) const;

  // ---- rounds
  // Why a round whose contributions name so many positions, and together these, cannot commit them,
  // as the reason of an abort; empty if it can.
  std::string WhyNotCommit(const IntervalSet& positions, uint64_t named) const;
  // What a round commits whose contributions are of these positions. REQUIRES: the epoch exists.
  RoundSamples Of(const IntervalSet& positions) const;
  // The open round has ended; `samples` if it is committed, and commits some.
  void EndRound(const std::optional<RoundSamples>& samples);

  // ---- workers that go and return
  // The worker holds no more positions, and asks for none.
  void Leave(const Incarnation& incarnation, const IntervalSet& counted);
  // The worker has a new session: what its hello does not name was lost on its way, or is returned.
  // Returns why all of it is returned, as the end of a sentence; empty if the worker keeps what the
  // hello names.
  std::string Resume(const Incarnation& incarnation, const SampleProgress& leased,
                     const IntervalSet& counted, const Budget& budget);

  // ---- recovery: what was committed, then what each worker holds, then the value that is adopted
  void Recover(const SampleProgress& committed);
  void Restore(const Incarnation& incarnation, const WorkerId& worker, const LaneHistory& history);
  void Adopt(const RoundSamples& samples);

  auto Fields() const { return std::tie(epoch_, committed_, free_, holders_, before_, begun_by_); }

 private:
  struct Holder {
    IntervalSet positions;
    uint64_t asks = 0;  // The number of the epoch that it last asked for.
    bool stays = true;  // Its worker lives, and may ask again.
    auto Fields() const { return std::tie(positions, asks, stays); }
  };

  static uint64_t BytesOf(uint64_t holders, uint64_t runs);
  // The separate ranges that it holds.
  uint64_t runs() const;
  // Returns whether so many more holders and ranges fit into the budget.
  bool Fits(const Budget& budget, uint64_t holders, uint64_t runs) const {
    return NeedOf(holders_.size() + holders, this->runs() + runs + 2 * budget.named) <=
           budget.bytes;
  }
  Answer RefuseMemory(const Budget& budget) const;
  bool MayMoveOn(const IntervalSet& counted) const;
  void MoveTo(const SampleEpoch& epoch, const std::vector<SampleRange>& resumed,
              const WorkerId& worker);
  Error WhyNotLease(const LeaseSamples& ask) const;
  // The positions that are not committed, in ascending order: those from number `first` on, at
  // most `count`.
  IntervalSet Uncommitted(uint64_t first, uint64_t count) const;
  // The positions of the next round. REQUIRES: the epoch has steps.
  IntervalSet NextStep() const { return Uncommitted(0, epoch_.global_batch); }
  // What the asker trains on of the first step that begins at or after this position, without what
  // the open round counts. REQUIRES: likewise.
  IntervalSet ShareOf(const Asker& asker, uint64_t after, const IntervalSet& counted) const;
  // Frees what the holder has, except for `kept`.
  void Free(Holder& holder, const IntervalSet& kept);
  // By how much that increases the number of ranges, at most.
  static uint64_t RunsOfFree(const Holder& holder, const IntervalSet& kept);
  // Gives the holder what is free of this.
  void Hold(Holder& holder, const std::vector<SampleRange>& ranges);

  SampleEpoch epoch_;
  IntervalSet committed_;
  IntervalSet free_;  // Neither committed nor held.
  // The open round of a recovery holds the positions of workers that are not here, as that of no
  // incarnation.
  std::map<Incarnation, Holder> holders_;
  // What is committed as of the last verdict, while no verdict has committed anything of the
  // present epoch.
  std::optional<SampleProgress> before_;
  WorkerId begun_by_;  // The first that asked for the epoch; empty after a recovery.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SAMPLE_LEDGER_H_
