// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The results for a trainer: the outcome of a round, a blob that was broadcast, and its view of the
// job.
//
// Ownership: a RoundResult and a Blob hold the received bytes; destroy them before the results of
// the next round arrive, or both stay in memory. Thread contract: constant, so safe from any
// thread. The calling thread makes the copies, so a trainer can copy a model with several threads.

#ifndef BASIN_CLIENT_TRANSPORT_OUTCOME_H_
#define BASIN_CLIENT_TRANSPORT_OUTCOME_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/core/action.h"
#include "client/core/event.h"
#include "client/transport/staging.h"
#include "protocol/messages.h"
#include "protocol/placement.h"

namespace basin::client {

class Timeline;

// A COMMITTED round.
class RoundResult {
 public:
  // `tensors`: by TensorHandle; no index: the job's layout does not have it.
  struct Tensor {
    std::string name;
    DType dtype = DType::kUnspecified;
    std::optional<TensorIndex> index;
  };
  // `layout`: of the job, also of tensors that were not registered here; it may be longer than the
  // round's. `timeline`: where copies of results are recorded, for `lane`; may be null.
  RoundResult(VerdictRecord record, std::optional<Error> rejected, std::vector<Tensor> tensors,
              const std::vector<TensorSpec>& layout, std::shared_ptr<StagedRound> staged,
              LaneHandle lane = 0, std::shared_ptr<Timeline> timeline = nullptr)
      : record_(std::move(record)),
        rejected_(std::move(rejected)),
        tensors_(std::move(tensors)),
        squared_norm_(SquaredNormOf(record_.value, layout)),
        nonfinite_tensor_(NonFiniteOf(record_.value, layout)),
        staged_(std::move(staged)),
        lane_(lane),
        timeline_(std::move(timeline)) {}

  // The same without the tensors, so that their bytes are free: none of them has a result.
  std::shared_ptr<const RoundResult> WithoutTensors() const;

  // Contributors, divisor, facts, digest, next members.
  const VerdictRecord& record() const { return record_; }
  // Why this worker's contribution was not counted as it was sent; absent: nothing was wrong.
  const std::optional<Error>& rejected() const { return rejected_; }

  // The sum over the results that have a norm; absent if none has one.
  const std::optional<double>& squared_norm() const { return squared_norm_; }
  // The name of the facts' nonfinite tensor; empty if there is none.
  const std::string& nonfinite_tensor() const { return nonfinite_tensor_; }

  struct TensorFacts {
    uint64_t divisor = 0;                // The divisor of its result; 0 without a result.
    std::optional<double> squared_norm;  // Absent without a result, and of integers.
  };
  TensorFacts FactsOf(TensorHandle tensor) const;
  // For all tensors, by handle.
  std::vector<TensorFacts> AllFacts() const;
  // For errors. Empty for handles that do not exist.
  std::string NameOf(TensorHandle tensor) const {
    return tensor < tensors_.size() ? tensors_[tensor].name : "";
  }
  // Whether the tensor has a result. False for handles that do not exist.
  bool Has(TensorHandle tensor) const { return FactsOf(tensor).divisor != 0; }
  // Copies the tensor's result, `size` bytes in C order and the tensor's dtype.
  // Failure: NOT_FOUND without a result, INVALID_ARGUMENT for another size; DATA_LOSS if the result
  // was in memory of the aggregator, which has used it again meanwhile: what was copied is not the
  // result then.
  absl::Status CopyTo(TensorHandle tensor, void* to, uint64_t size) const;
  struct Destination {
    TensorHandle tensor = 0;
    void* to = nullptr;
    uint64_t size = 0;
  };
  // Copies bytes [begin, begin + count) of the result, which has `size`. Failure: as CopyTo. The
  // timeline has copies in parts only if they are recorded.
  absl::Status CopyPart(TensorHandle tensor, uint64_t size, uint64_t begin, void* to,
                        uint64_t count) const;
  // Now, for RecordCopy, which puts a copy that began then into the timeline.
  absl::Time StartOfCopy() const;
  void RecordCopy(absl::Time began) const;
  // The same for many; stops at the first failure.
  absl::Status CopyTo(absl::Span<const Destination> destinations) const;
  // The same, except that what has no result stays as it is.
  absl::Status CopyPresentTo(absl::Span<const Destination> destinations) const;
  // The tensor where it was received, in pieces that follow each other; valid as long as this is.
  // None without a result.
  std::vector<std::string_view> Pieces(TensorHandle tensor) const;
  // The tensor that the job has at this index; nullopt if it was not registered here.
  std::optional<TensorHandle> HandleOf(TensorIndex index) const;

 private:
  // Without tensors.
  RoundResult(VerdictRecord record, std::optional<Error> rejected,
              std::optional<double> squared_norm, std::string nonfinite_tensor)
      : record_(std::move(record)),
        rejected_(std::move(rejected)),
        squared_norm_(squared_norm),
        nonfinite_tensor_(std::move(nonfinite_tensor)),
        lane_(0) {}
  static std::optional<double> SquaredNormOf(const RoundValue& value,
                                             const std::vector<TensorSpec>& layout);
  static std::string NonFiniteOf(const RoundValue& value, const std::vector<TensorSpec>& layout);
  TensorFacts FactsAt(const Tensor& tensor, uint64_t divisor) const;
  std::string WhyNoResult(TensorHandle tensor) const;

  const VerdictRecord record_;
  const std::optional<Error> rejected_;
  const std::vector<Tensor> tensors_;
  const std::optional<double> squared_norm_;
  const std::string nonfinite_tensor_;
  const std::shared_ptr<StagedRound> staged_;
  const LaneHandle lane_;
  const std::shared_ptr<Timeline> timeline_;
};

// A result, or why there is none: the typed error of proto/wire/status_detail.h.
using RoundOutcome = absl::StatusOr<std::shared_ptr<const RoundResult>>;

// A value that was broadcast.
class Blob {
 public:
  Blob(TensorSpec spec, WorkerId source, StagedTensor bytes)
      : spec_(std::move(spec)), source_(std::move(source)), bytes_(std::move(bytes)) {}

  const TensorSpec& spec() const { return spec_; }
  const WorkerId& source() const { return source_; }
  // Failure: INVALID_ARGUMENT for another size.
  absl::Status CopyTo(void* to, uint64_t size) const;

 private:
  const TensorSpec spec_;
  const WorkerId source_;
  const StagedTensor bytes_;
};

using BlobOutcome = absl::StatusOr<std::shared_ptr<const Blob>>;

// Where the worker stands in the job.
struct JobView {
  Membership membership;
  Role role = Role::kJoiner;
  std::optional<uint32_t> rank;  // The rank of a member.
  bool welcomed = false;         // By the aggregator.
  // The rank that this worker would have if it became a member now; see Client::expected.
  std::optional<ExpectedRank> expected;
  uint64_t joins = 0;             // How often this process became a member.
  std::optional<WorkerId> donor;  // Serves the state to the newest members; it may be this worker.
                                  // Absent: no member must load state.
  Generation donor_since;         // With which they joined: a version for their state.
  bool draining = false;          // It will not be among the next members.
  bool left = false;
  // Whether payloads pass through memory shared with the aggregator; absent before the first round.
  std::optional<bool> shares;
  // Whether the aggregator has read tensors of the last round in memory of their device.
  bool on_device = false;
  std::optional<Error> fatal;    // The process cannot go on with this job.
  std::optional<Error> refused;  // The last registration that the job did not accept.
  std::string held_up;           // The last sentence about a round that waits for late workers.
  std::string paused;            // Why the job is paused, as a sentence; empty when it is not.
  Error trouble;                 // Why it is not in session, or was not the last time.
  std::string stream_trouble;    // Why no data stream is open in its session, as a part of a
                                 // sentence; empty while one is open, or may still open.
  ShardId stream_shard = kCoordinatorShard;  // The one to which none is open.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_OUTCOME_H_
