// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/blob_calls.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/source.h"
#include "kernels/checksum.h"
#include "proto/wire/status_detail.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::client {
namespace {

// The digest of each chunk of a value, in order; none if it has no bytes.
std::vector<Digest> DigestChunks(const std::string& tensor, const char* data, uint64_t size) {
  const kernels::TensorKey key(tensor);
  kernels::ContentDigest content;
  std::vector<Digest> digests;
  for (uint64_t at = 0; at < size; at += kChunkBytes) {
    content.Update(data + at, std::min(kChunkBytes, size - at));
    digests.push_back(DigestOf(key, digests.size(), content.Finish()));
  }
  return digests;
}

}  // namespace

absl::Status BlobCalls::Announce(const BlobKey& key, const TensorSpec& spec, const void* data,
                                 uint64_t bytes, Hold hold) {
  const std::optional<uint64_t> needed = TensorBytes(spec);
  if (!needed.has_value()) {
    return wire::ToStatus(
        {ErrorCode::kInvalidArgument, absl::StrCat("Cannot announce tensor ", key.tensor, ": ",
                                                   DescribeSpec(spec), " has no usable size.")});
  }
  absl::Status status = CheckCall(basin::Announce{key, spec, 0});
  if (status.ok()) status = CheckData(spec, *needed, data, bytes);
  if (!status.ok()) return status;
  ServedBlob value;
  value.bytes = bytes;
  const char* const begin = static_cast<const char*>(data);
  value.digests = DigestChunks(key.tensor, begin, bytes);
  if (hold == Hold::kInPlace) {
    value.data = begin;
  } else {
    value.own = std::make_shared<OwnPayload>(std::string(begin, bytes));
  }
  return calls_.Do([&](Runner& runner, absl::Time now) {
    return runner.Announce(key, spec, std::move(value), now);
  });
}

absl::Status BlobCalls::StopServing(const std::string& lane, const std::string& tensor) {
  return calls_.Do([&](Runner& runner, absl::Time now) {
    runner.StopServing(lane, tensor, now);
    return absl::OkStatus();
  });
}

void BlobCalls::EndStep() {
  gate_.Open();
  calls_.Post([](Runner& runner, absl::Time now) { runner.GateOpened(now); }).IgnoreError();
}

BlobOutcome BlobCalls::Get(const BlobKey& key, const std::optional<TensorSpec>& expected,
                           const std::optional<WorkerId>& source, absl::Duration timeout) {
  const basin::Get message{key, expected, source, 0, 0, absl::Seconds(1)};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return calls_.Ask<BlobOutcome>([&](Runner& runner, absl::Time now, Runner::BlobDone done) {
    runner.Get(GetBlob{key, expected, source, now + timeout}, std::move(done), now);
  });
}

}  // namespace basin::client
