// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/contribution.h"

#include "absl/strings/str_cat.h"
#include "aggregator/core/spec.h"

namespace basin::aggregator {

bool Contribution::KnowsAny(const Layout& layout, TensorIndex tensor) const {
  for (const uint32_t flat : layout.Chunks(tensor)) {
    if (known_.Test(flat)) return true;
  }
  return false;
}

void Contribution::Grow(const Layout& layout, const ByShard& bytes) {
  missing_.Add(bytes);
  have_.Resize(layout.chunks());
  known_.Resize(layout.chunks());
  digests_.resize(layout.chunks());
  skipped_.Resize(layout.version());
}

void Contribution::Place(const Layout& layout, const Shares& shares) {
  missing_.Clear();
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (Skips(tensor)) continue;
    for (const uint32_t flat : layout.Chunks(tensor)) {
      if (!Has(flat)) missing_.Add(shares.Of(layout, flat), layout.SizeOf(flat));
    }
  }
}

void Contribution::OnBegin(const Begin& begin) {
  begin_ = begin;
  begin_.spec = AsBegun(begin.spec);
  begin_.optimizer_numbers.clear();  // The lane has them once, for all of its workers.
}

bool Contribution::OnSkip(const Layout& layout, const Shares& shares, TensorIndex tensor) {
  if (!skipped_.Set(tensor)) return false;
  shares.Split(layout, ChunkRange{tensor, 0, layout.TensorChunks(tensor)},
               [&](ShardId shard, const ChunkRange& part) {
                 missing_.Subtract(shard, layout.RangeBytes(part));
               });
  return true;
}

void Contribution::OnChunk(uint32_t flat, uint64_t size, Digest digest, ShardId shard) {
  have_.Set(flat);
  known_.Set(flat);
  digests_[flat] = digest;
  digest_ += digest;
  parked_.Add(shard, size);
  missing_.Subtract(shard, size);
}

std::string Contribution::WhatIsWrongWith(const Layout& layout, const Commit& commit) const {
  std::string wrong;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (Names(commit, tensor)) {
      chunks += layout.TensorChunks(tensor);
      bytes += layout.TensorSize(tensor);
      if (Skips(tensor)) wrong = "claims a tensor that it skipped";
    } else if (KnowsAny(layout, tensor)) {
      wrong = "leaves out a tensor that it pushed";
    }
  }
  if (!begun()) wrong = "comes without a begin";
  if (commit.layout_version > layout.version()) wrong = "names a layout that does not exist";
  if (chunks != commit.chunks || bytes != commit.bytes) {
    wrong = absl::StrCat("claims ", commit.chunks, " chunks and ", commit.bytes,
                         " bytes, but its tensors have ", chunks, " and ", bytes);
  }
  return wrong;
}

void Contribution::OnCommit(const Commit& commit) { commit_ = commit; }

bool Contribution::TakeBack(uint32_t flat, uint64_t size, ShardId shard, bool parked) {
  if (!have_.Clear(flat)) return false;
  digest_ -= digests_[flat];
  missing_.Add(shard, size);
  if (parked) parked_.Subtract(shard, size);
  return true;
}

bool Contribution::Apply(ContributionInput input) {
  if (!machine_.Apply(input)) return false;
  was_effective_ |= effective();
  if (counts()) return true;
  parked_.Clear();
  digest_ = 0;
  have_.ClearAll();
  return true;
}

}  // namespace basin::aggregator
