// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/expansion.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "basin/v1/shard.pb.h"
#include "google/protobuf/message.h"
#include "proto/wire/checker.h"
#include "proto/wire/slice_reader.h"
#include "protocol/limits/limits.h"

namespace basin::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// ---- memory of objects, with the overhead of malloc and of growing lists

// The memory of an entry of a list of numbers, or of one of strings and messages besides
// themselves.
constexpr uint64_t kEntryBytes = 32;

// A string, and its copy in the plain type, besides their characters.
constexpr uint64_t kStringBytes = 112;

// A field that this version does not know, and which protobuf keeps.
constexpr uint64_t kUnknownBytes = 128;

// A message, and the plain struct that it becomes, which contains its parts.
uint64_t BytesOf(const Descriptor& type) {
  const google::protobuf::Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  return 3 * prototype->SpaceUsedLong() + 64;
}

// ---- messages as they may be, made from their descriptors once

struct Shape;

struct FieldShape {
  enum class What : uint8_t { kUnknown, kNumber, kString, kMessage };
  What what = What::kUnknown;
  bool list = false;
  uint32_t most = 1;               // Entries.
  uint32_t type = 0;               // On the wire, of one entry.
  const Shape* message = nullptr;  // For a message.
  std::string name;
};

struct Shape {
  uint64_t bytes = 0;
  std::vector<FieldShape> fields;  // By number.
};

uint32_t WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
    case FieldDescriptor::TYPE_DOUBLE:
      return SliceReader::kFixed64;
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_FLOAT:
      return SliceReader::kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return SliceReader::kBytes;
    default:
      return SliceReader::kVarint;
  }
}

class Shapes {
 public:
  Shapes() {
    Add(*v1::ToAggregator::descriptor());
    Add(*v1::ToWorker::descriptor());
    Add(*v1::FromShard::descriptor());
    Add(*v1::ToShard::descriptor());
  }

  const Shape& Of(const Descriptor& type) const { return *shapes_.at(&type); }

 private:
  const Shape* Add(const Descriptor& type) {
    std::unique_ptr<Shape>& made = shapes_[&type];
    if (made != nullptr) return made.get();
    made = std::make_unique<Shape>();
    Shape* const shape = made.get();
    shape->bytes = BytesOf(type);
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const auto number = static_cast<size_t>(field.number());
      if (shape->fields.size() <= number) shape->fields.resize(number + 1);
      FieldShape& entry = shape->fields[number];
      entry.list = field.is_repeated();
      if (entry.list) entry.most = MostEntries(field);
      entry.type = WireTypeOf(field);
      entry.name = std::string(field.name());
      if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
        entry.what = FieldShape::What::kMessage;
        entry.message = Add(*field.message_type());
      } else if (entry.type == SliceReader::kBytes) {
        entry.what = FieldShape::What::kString;
      } else {
        entry.what = FieldShape::What::kNumber;
      }
    }
    return shape;
  }

  std::map<const Descriptor*, std::unique_ptr<Shape>> shapes_;
};

const Shape& ShapeOf(const Descriptor& type) {
  static const Shapes* const shapes = new Shapes();
  return shapes->Of(type);
}

// ---- a message as it is

// Entries of a packed list of numbers.
uint64_t CountPacked(std::string_view bytes, uint32_t type) {
  if (type == SliceReader::kFixed64) return bytes.size() / 8;
  if (type == SliceReader::kFixed32) return bytes.size() / 4;
  return static_cast<uint64_t>(std::count_if(
      bytes.begin(), bytes.end(), [](char byte) { return static_cast<uint8_t>(byte) < 0x80; }));
}

class Scale {
 public:
  uint64_t total() const { return total_; }
  const Checker& checker() const { return checker_; }

  // False when the bytes are no message.
  bool Add(std::string_view bytes, const Shape& shape) {
    total_ += shape.bytes;
    SliceReader reader(absl::MakeConstSpan(&bytes, 1));
    absl::InlinedVector<uint32_t, 32> seen(shape.fields.size());
    while (reader.left() > 0) {
      if (!checker_.ok() || total_ > kMaxExpandedBytes) return true;
      SliceReader::Tag tag;
      if (!reader.ReadTag(&tag)) return false;
      static const FieldShape kUnknown;
      const FieldShape& field =
          tag.field < shape.fields.size() ? shape.fields[tag.field] : kUnknown;
      const bool packed =
          field.what == FieldShape::What::kNumber && field.list && tag.type == SliceReader::kBytes;
      if (field.what == FieldShape::What::kUnknown || (tag.type != field.type && !packed)) {
        const size_t before = reader.left();
        if (!reader.Skip(tag.type)) return false;
        total_ += kUnknownBytes + before - reader.left();
        continue;
      }
      std::string_view content;
      if (tag.type == SliceReader::kBytes) {
        Slices slices;
        if (!reader.ReadBytes(&slices)) return false;
        if (!slices.empty()) content = slices.front();
      } else if (!reader.Skip(tag.type)) {
        return false;
      }
      if (!AddField(content, field, packed, seen[tag.field])) return false;
    }
    return true;
  }

 private:
  bool AddField(std::string_view content, const FieldShape& field, bool packed, uint32_t& seen) {
    const uint64_t more = packed ? CountPacked(content, field.type) : 1;
    // Numbers and strings that stand twice replace each other.
    if (field.list ? more > field.most - seen
                   : seen > 0 && field.what == FieldShape::What::kMessage) {
      field.list ? checker_.FailEntries(field.name.c_str(), field.most)
                 : checker_.Fail(field.name.c_str(), "appears twice");
      return true;
    }
    const Checker::Scope scope(checker_, field.name.c_str(), field.list ? ptrdiff_t{seen} : -1);
    seen += static_cast<uint32_t>(more);
    if (field.list) total_ += more * kEntryBytes;
    if (field.what == FieldShape::What::kString) total_ += kStringBytes + 2 * content.size();
    return field.what != FieldShape::What::kMessage || Add(content, *field.message);
  }

  Checker checker_;
  uint64_t total_ = 0;
};

}  // namespace

absl::StatusOr<uint64_t> ExpandedBytes(std::string_view bytes, const Descriptor& type) {
  Scale scale;
  if (!scale.Add(bytes, ShapeOf(type))) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", type.full_name()));
  }
  if (!scale.checker().ok()) return scale.checker().status();
  return scale.total();
}

uint32_t MostEntries(const FieldDescriptor& list) {
  static const auto* const most = new std::map<std::string_view, uint32_t>{
      {"basin.v1.Membership.members", kMaxWorkers},
      {"basin.v1.Membership.ranks", kMaxWorkers},
      {"basin.v1.TensorSpec.shape", kMaxRank},
      {"basin.v1.Contributor.reduced_with", kMaxRanks - 1},
      {"basin.v1.RoundFacts.tensor_squared_norms", kMaxTensors},
      {"basin.v1.RoundValue.contributors", kMaxWorkers},
      {"basin.v1.RoundValue.dropped", kMaxWorkers},
      {"basin.v1.RoundValue.late", kMaxWorkers},
      {"basin.v1.RoundValue.tensor_divisors", kMaxTensors},
      {"basin.v1.RoundSamples.ranges", kMaxLedgerRanges},
      {"basin.v1.RoundSamples.resumed", kMaxLedgerRanges},
      {"basin.v1.SampleProgress.ranges", kMaxLedgerRanges},
      {"basin.v1.LaneHistory.resumed", kMaxLedgerRanges},
      {"basin.v1.LeaseSamples.resumed", kMaxLedgerRanges},
      {"basin.v1.ReturnSamples.ranges", kMaxSampleRanges},
      {"basin.v1.SamplesLeased.ranges", kMaxSampleRanges},
      {"basin.v1.SamplesLeased.resumed", kMaxLedgerRanges},
      {"basin.v1.LaneHistory.layout", kMaxTensors},
      {"basin.v1.LaneHistory.verdicts", kMaxRememberedVerdicts},
      {"basin.v1.LaneHistory.held", kMaxRanges},
      {"basin.v1.Hello.lanes", kMaxLanes},
      {"basin.v1.Heartbeat.waits", kMaxLanes},
      {"basin.v1.Register.tensors", kMaxTensors},
      {"basin.v1.Begin.reduced_with", kMaxRanks - 1},
      {"basin.v1.Begin.samples", kMaxSampleRanges},
      {"basin.v1.Begin.optimizer_numbers", kMaxOptimizerLines},
      {"basin.v1.Skip.tensors", kMaxTensors},
      {"basin.v1.ResultAck.ranges", kMaxRanges},
      {"basin.v1.Need.ranges", kMaxRanges},
      {"basin.v1.OpenRound.have", kMaxRanges},
      {"basin.v1.LaneLayout.tensors", kMaxTensors},
      {"basin.v1.LastVerdicts.verdicts", kMaxRememberedVerdicts},
      {"basin.v1.Welcome.layouts", kMaxLanes},
      {"basin.v1.Welcome.open", kMaxLanes},
      {"basin.v1.Welcome.verdicts", kMaxLanes},
      {"basin.v1.Welcome.placement", kMaxLanes},
      {"basin.v1.Placement.shards", kMaxShards},
      {"basin.v1.Placement.lost", kMaxShards},
      {"basin.v1.MembershipChanged.start", kMaxLanes},
      {"basin.v1.Credit.acked", kMaxRanges},
      {"basin.v1.Credit.refused", kMaxRanges},
      {"basin.v1.Pull.wanted", kMaxRanges},
      {"basin.v1.Pull.discarded", kMaxRanges},
      {"basin.v1.AttemptRestarted.redo", kMaxRanges},
      {"basin.v1.Prepared.shard_digests", kMaxLanes},
      {"basin.v1.Supply.ranges", kMaxRanges},
      {"basin.v1.Batch.messages", kMaxBatchMessages},
      {"basin.v1.Batch.frames", kMaxBatchFrames},
      {"basin.v1.ShardEvents.events", kMaxShardEntries},
      {"basin.v1.ShardFrameReceived.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardFrameReceived.digests", kMaxChunksInRuns},
      {"basin.v1.ShardReduceDone.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardReduceDone.digests", kMaxChunksInRuns},
      {"basin.v1.ShardReduceDone.squared_norms", 2 * kMaxChunksInRuns},
      {"basin.v1.ShardSteps.steps", kMaxShardEntries},
      {"basin.v1.ShardStep.actions", kMaxStepActions},
      {"basin.v1.ShardNameTensors.tensors", kMaxTensors},
      {"basin.v1.ShardKeepChunks.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardDiscardChunks.ranges", kMaxRanges},
      {"basin.v1.ShardStartAttempt.contributors", kMaxWorkers},
      {"basin.v1.ShardReduce.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardReduce.skipped", kMaxWorkers},
      {"basin.v1.ShardRoute.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardRoute.streams", kMaxWorkers},
      {"basin.v1.ShardPublish.routes", kMaxRanges},
      {"basin.v1.ShardRelayResult.ranges", kMaxRunsPerFrame},
      {"basin.v1.ShardForgetFrames.frames", kMaxRanges},
  };
  const auto found = most->find(list.full_name());
  return found == most->end() ? 0 : found->second;
}

}  // namespace basin::wire
