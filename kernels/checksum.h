// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checksums of frames and digests of results, both with XXH3.
//
// A CHECKSUM is XXH3_64bits of a sequence of bytes: for example of a frame. It is fed in any
// pieces.
//
// A DIGEST names the content of a set of tensors. It is the sum modulo 2^128 of one term per block,
// where a block is 256 KiB of one tensor (the last one of a tensor may be shorter; a tensor without
// bytes is one block without bytes):
//
//   term = XXH3_128bits(name.low, name.high, block index, content.low, content.high)
//          five 64-bit little-endian words;
//          name = XXH3_128bits(the tensor's name), content = XXH3_128bits(the block's bytes)
//
// A sum has no order, so the digest depends neither on the indices that tensors have in a layout,
// nor on their division into frames, nor on the order of arrival, and the digests of ranges are
// added. Because of the key in every term, equal blocks that change places change the sum. A tensor
// that has no result adds nothing, and so differs from one without bytes.
//
// Purpose. The digest stands for the bytes: a worker that has a result with the right digest does
// not fetch it. 128 bits cost no more than 64, because XXH3 mixes long inputs in the same
// accumulators; an accidental change (a bit flip, a lost, stale or misplaced block) then goes
// unseen with probability 2^-128, and among 10^12 rounds two differing ones share a digest with
// probability 10^-15. XXH3 is no cryptographic hash and sums of hashes are weaker still: they do
// not protect against bytes that are chosen to collide. Only a worker of the job could send such
// bytes, and it can send any gradient anyway; TLS keeps others out.
//
// Thread contract: plain values, and objects for one thread at a time.
// Failure: none; out of memory ends the process.

#ifndef BASIN_KERNELS_CHECKSUM_H_
#define BASIN_KERNELS_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

struct XXH3_state_s;

namespace basin::kernels {

constexpr size_t kDigestBlockBytes = size_t{256} << 10;

// XXH3_64bits of `size` bytes.
uint64_t ChecksumOf(const void* data, size_t size);

// The state of one XXH3 hash in progress, 64 or 128 bits wide.
class Xxh3State {
 public:
  Xxh3State();
  void Reset();

 protected:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// XXH3_64bits of bytes that come in pieces: Update(a), Update(b) is the checksum of a and b in one.
class Checksum : public Xxh3State {
 public:
  void Update(const void* data, size_t size);
  uint64_t value() const;  // For all bytes since the construction or the last Reset().
};

// A 128-bit value; see above. Zero is the digest of nothing.
struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;

  Digest& operator+=(Digest other);
  Digest& operator-=(Digest other);  // Takes back a range, when it is reduced again.
};

inline bool operator==(const Digest& a, const Digest& b) {
  return a.low == b.low && a.high == b.high;
}
inline bool operator!=(const Digest& a, const Digest& b) { return !(a == b); }

// A tensor's name as it enters the digest. Cheap to copy; hash the name once per layout.
class TensorKey {
 public:
  explicit TensorKey(std::string_view name);

 private:
  friend class RangeDigest;
  friend Digest TermOf(const TensorKey& tensor, uint64_t block, const Digest& content);
  Digest name_;
};

// The content of one block, for code that has the bytes before their tensor is known. Fed in any
// pieces.
class ContentDigest : private Xxh3State {
 public:
  void Update(const void* data, size_t size);
  Digest Finish();  // Also begins the next block.
};

// The term of block `block` of the tensor in a digest, if its bytes have this content.
Digest TermOf(const TensorKey& tensor, uint64_t block, const Digest& content);

// The digest of one contiguous range of a tensor's blocks, fed in order in any pieces; a block may
// be split between pieces anywhere. The digest of a tensor is the sum over its ranges.
// REQUIRES: the range ends at a block's end or at the tensor's; only a tensor without bytes has a
// range without bytes.
class RangeDigest : private Xxh3State {
 public:
  RangeDigest(const TensorKey& tensor, uint64_t first_block);

  // Begins another range. Cheaper than a new object, which allocates.
  void Restart(const TensorKey& tensor, uint64_t first_block);

  void Update(const void* data, size_t size);

  // Ends the range. REQUIRES: Restart() before the next Update().
  Digest Finish();

 private:
  void EndBlock();

  TensorKey tensor_;
  uint64_t block_;     // Index of the block in progress ...
  size_t filled_ = 0;  // ... and how many of its bytes were fed.
  bool empty_ = true;  // No byte was fed yet.
  Digest sum_;
};

// Copies `size` bytes and feeds the copy to `hash`, in one pass over memory: the stored bytes are
// hashed, so that a source that changes meanwhile is detected. REQUIRES: the buffers do not
// overlap.
void CopyAndHash(void* destination, const void* source, size_t size, Checksum* hash);
void CopyAndHash(void* destination, const void* source, size_t size, RangeDigest* hash);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_CHECKSUM_H_
