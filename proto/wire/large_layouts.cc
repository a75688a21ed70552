// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/large_layouts.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/wire/session_stream.h"
#include "proto/wire/session_types.h"
#include "proto/wire/types.h"
#include "protocol/limits/limits.h"

namespace basin::wire {
namespace {

using google::protobuf::internal::WireFormatLite;

// Fewer are encoded for each receiver.
constexpr size_t kManyTensors = 1024;

uint32_t TagOf(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

void AppendVarint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

// A field of a message or of bytes, up to its content.
void BeginField(std::string& to, int field, uint64_t content) {
  AppendVarint(to, TagOf(field));
  AppendVarint(to, content);
}

std::string PieceOf(std::string bytes, bool last) {
  v1::ToWorker carrier;
  carrier.mutable_piece()->set_bytes(std::move(bytes));
  carrier.mutable_piece()->set_last(last);
  return Sealed(carrier.SerializeAsString());
}

}  // namespace

LargeLayouts::Entries::~Entries() { *held -= memory; }

bool LargeLayouts::AreIn(const ToWorker& message) {
  const auto large = [](const LaneLayout& layout) { return layout.tensors.size() >= kManyTensors; };
  if (const auto* one = std::get_if<LaneLayout>(&message)) return large(*one);
  const auto* welcome = std::get_if<Welcome>(&message);
  return welcome != nullptr && std::any_of(welcome->layouts.begin(), welcome->layouts.end(), large);
}

absl::StatusOr<std::shared_ptr<const LargeLayouts::Entries>> LargeLayouts::EntriesOf(
    const SharedList<TensorSpec>& tensors) {
  const std::pair key(static_cast<const void*>(tensors.shared().get()), tensors.size());
  if (const auto found = known_.find(key); found != known_.end()) {
    auto entries = found->second.entries.lock();
    if (entries != nullptr && found->second.tensors.lock() == tensors.shared()) return entries;
  }
  for (auto it = known_.begin(); it != known_.end();) {
    it = it->second.entries.expired() ? known_.erase(it) : std::next(it);
  }
  const auto entries = std::make_shared<Entries>();
  entries->held = held_;
  std::string bytes;
  v1::TensorSpec spec;
  const auto cut = [&] {
    entries->encoded += bytes.size();
    entries->pieces.push_back(PieceOf(std::exchange(bytes, {}), false));
    entries->memory += entries->pieces.back().capacity();
    *held_ += entries->pieces.back().capacity();
    bytes.reserve(kPieceBytes);
  };
  for (const TensorSpec& tensor : tensors) {
    spec.Clear();
    wire::Encode(tensor, &spec);
    const size_t size = spec.ByteSizeLong();
    if (bytes.size() + size + 16 > kPieceBytes) cut();
    BeginField(bytes, v1::LaneLayout::kTensorsFieldNumber, size);
    bytes += spec.SerializeAsString();
    if (*held_ > std::max<uint64_t>(most_bytes_, entries->memory)) {
      return absl::ResourceExhaustedError(
          "Descriptions of large layouts that other workers have not read yet leave no memory for "
          "this one. Try again later.");
    }
  }
  cut();
  known_[key] = {tensors.shared(), entries};
  return std::shared_ptr<const Entries>(entries);
}

absl::StatusOr<std::vector<LargeLayouts::Piece>> LargeLayouts::Encode(const ToWorker& message) {
  const auto* welcome = std::get_if<Welcome>(&message);
  const auto* one = std::get_if<LaneLayout>(&message);
  std::vector<LaneLayout> alone;
  if (one != nullptr) alone.push_back(*one);
  const std::vector<LaneLayout>& layouts = welcome == nullptr ? alone : welcome->layouts;

  // Each layout without its tensors, and the tensors.
  std::vector<std::string> heads;
  std::vector<std::shared_ptr<const Entries>> entries;
  uint64_t size = 0;
  const auto size_of = [&](size_t i) {
    return heads[i].size() + (entries[i] == nullptr ? 0 : entries[i]->encoded);
  };
  for (const LaneLayout& layout : layouts) {
    v1::LaneLayout head;
    if (layout.tensors.size() >= kManyTensors) {
      LaneLayout rest = layout;
      rest.tensors = {};
      wire::Encode(rest, &head);
      auto of_tensors = EntriesOf(layout.tensors);
      if (!of_tensors.ok()) return of_tensors.status();
      entries.push_back(*std::move(of_tensors));
    } else {
      wire::Encode(layout, &head);
      entries.push_back(nullptr);
    }
    heads.push_back(head.SerializeAsString());
    std::string begin;
    if (welcome != nullptr) {
      BeginField(begin, v1::Welcome::kLayoutsFieldNumber, size_of(heads.size() - 1));
    }
    size += begin.size() + size_of(heads.size() - 1);
  }
  std::string rest;
  if (welcome != nullptr) {
    Welcome without = *welcome;
    without.layouts.clear();
    v1::Welcome encoded;
    wire::Encode(without, &encoded);
    rest = encoded.SerializeAsString();
    size += rest.size();
  }
  if (size > kMaxAssembledBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("A message with layouts has ", size,
                                                     " bytes; the limit is ", kMaxAssembledBytes,
                                                     ". Register fewer tensors."));
  }

  std::vector<Piece> pieces;
  std::string own;
  const auto cut = [&](bool last) {
    for (size_t begin = 0; begin < own.size(); begin += kPieceBytes) {
      const bool end = begin + kPieceBytes >= own.size();
      pieces.push_back(std::make_shared<const std::string>(
          PieceOf(own.substr(begin, kPieceBytes), last && end)));
    }
    own.clear();
  };
  BeginField(
      own,
      welcome != nullptr ? v1::ToWorker::kWelcomeFieldNumber : v1::ToWorker::kLaneLayoutFieldNumber,
      size);
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (welcome != nullptr) BeginField(own, v1::Welcome::kLayoutsFieldNumber, size_of(i));
    const bool closes = welcome == nullptr;  // The fields of a message may come in any order.
    if (!closes) own += heads[i];
    if (entries[i] != nullptr) {
      cut(false);
      for (const std::string& piece : entries[i]->pieces) {
        pieces.push_back(Piece(entries[i], &piece));
      }
    }
    if (closes) own += heads[i];
  }
  own += rest;
  cut(true);
  return pieces;
}

}  // namespace basin::wire
