// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Every bound of the protocol, in one place, each with its reason. A bound here is the largest
// value that basin/v1 allows: both ends refuse more before they allocate memory for it. An operator
// may configure less, never more.
//
// Thread contract: constants.

#ifndef BASIN_PROTOCOL_LIMITS_LIMITS_H_
#define BASIN_PROTOCOL_LIMITS_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "protocol/round.h"
#include "protocol/tensor.h"

namespace basin {

// ---------------------------------------------------------------------------------- messages

// "BASN": a message of zeros, or one for another service, does not begin with it.
inline constexpr uint32_t kMagic = 0x4e534142;

// The largest gRPC message: gRPC's own default, so that proxies need no configuration.
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;

// The largest session message; it is sent in pieces if it is larger than a gRPC message. Large ones
// are Hello and Welcome, which describe every lane of a job: room for one lane of the most tensors
// with the longest names and shapes, for 13 lanes of the most workers, or for 64 lanes of 2000
// workers. The aggregator refuses registrations that would exceed it (Config::max_history_bytes).
inline constexpr size_t kMaxAssembledBytes = size_t{64} << 20;

// A piece. Small against a connection's window, so that a session is not one long write.
inline constexpr size_t kPieceBytes = size_t{1} << 20;

// A batch: more entries than a trainer's thread and the loop have for each other at one moment.
inline constexpr uint32_t kMaxBatchMessages = 64;
inline constexpr uint32_t kMaxBatchFrames = 64;

// A frame that travels with the session. It is copied on its way, which costs less than a message
// of its own up to about this size.
inline constexpr size_t kMaxBatchedFrameBytes = size_t{64} << 10;

// All incomplete messages that a server holds, from all peers: four of the largest.
inline constexpr size_t kMaxAssemblingBytes = 4 * kMaxAssembledBytes;

// Whole chunks in a frame's payload. One less than fits kMaxMessageBytes, so that the header fits
// as well. Frames of 1 MiB are the fastest; other networks may need larger ones.
inline constexpr uint32_t kMaxChunksPerFrame = 15;
inline constexpr size_t kMaxPayloadBytes = kMaxChunksPerFrame * kChunkBytes;
inline constexpr size_t kDefaultFrameBytes = 4 * kChunkBytes;

// Tensors in one frame. A frame of the usual size is full with tensors of 1 KiB each.
inline constexpr uint32_t kMaxRunsPerFrame = 1024;
// Chunks in one frame of several tensors: the last chunk of each, and the whole ones before.
inline constexpr uint32_t kMaxChunksInRuns = kMaxRunsPerFrame + kMaxChunksPerFrame;
// Places in shared memory of one payload: each has at least a chunk.
inline constexpr uint32_t kMaxPlacesPerFrame = kMaxChunksInRuns;

// Holds a list of tensors, two names, a digest per chunk, codec parameters and a bitmap over the
// ranks.
inline constexpr size_t kMaxFrameHeaderBytes = size_t{40} << 10;

// Field tags, lengths, sequence number and checksum around header and payload.
inline constexpr size_t kMaxFrameOverheadBytes = 64;

// Data streams of one worker. Two to four are useful; a name in a log needs no more.
inline constexpr uint32_t kMaxStreams = 64;

// The metadata of one call, which has a token and trace context: gRPC's own default.
inline constexpr size_t kMaxMetadataBytes = 8 * 1024;

inline constexpr size_t kMaxCodecParameterBytes = 256;

// ------------------------------------------------------------------------------------- names

// A DNS label's length, so that a pod's name is a worker id and a namespace fits before a job.
inline constexpr size_t kMaxLabelBytes = 63;
inline constexpr size_t kMaxJobNameBytes = 2 * kMaxLabelBytes + 1;
inline constexpr size_t kMaxWorkerIdBytes = kMaxLabelBytes;

// A UUID, or a scheduler's path of ids.
inline constexpr size_t kMaxRunIdBytes = 128;

// Lane and tensor names: a parameter's path in a deep model.
inline constexpr size_t kMaxNameBytes = 256;

// Reasons, for people.
inline constexpr size_t kMaxTextBytes = 2048;
inline constexpr size_t kMaxSoftwareBytes = 256;  // The versions in a hello.

// The numbers of an optimizer, for people: those of an optimizer with a group for each of some
// forty layers. A schedule sends them in each round.
inline constexpr uint32_t kMaxOptimizerLines = 128;
inline constexpr size_t kMaxOptimizerBytes = 4096;

// host:port.
inline constexpr size_t kMaxEndpointBytes = 300;

// ------------------------------------------------------------------------------------ counts

inline constexpr uint32_t kMaxWorkers = 10000;  // Per job.
inline constexpr uint32_t kMaxTrainers = kMaxWorkers * kMaxRanks;
inline constexpr uint32_t kMaxShards = 1024;  // With the coordinator.
inline constexpr uint32_t kMaxLanes = 4096;   // Per job, at one time.
// An index is given once, so a job may use so many names one after another.
inline constexpr uint32_t kMaxLaneIndexes = uint32_t{1} << 30;
inline constexpr uint32_t kMaxTensors = 65536;  // Per lane.
inline constexpr uint32_t kMaxRank = 16;        // Dimensions: no framework has more.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 40;
inline constexpr uint32_t kMaxChunksPerTensor = kMaxTensorBytes / kChunkBytes;
inline constexpr uint32_t kMaxRanges = 65536;  // Chunk ranges in one message.
// Bounds one contribution, what one worker holds, and one answer. Batches that were leased at
// different times are seldom neighbours.
inline constexpr uint32_t kMaxSampleRanges = 4096;
// Bounds what is committed in a lane: a hole for each worker that is behind, and some more.
inline constexpr uint32_t kMaxLedgerRanges = 16384;
// Between a coordinator and a shard: events or steps of one message, and actions of one step. More
// than come of what one turn of a loop handles.
inline constexpr uint32_t kMaxShardEntries = 4096;
inline constexpr uint32_t kMaxStepActions = 65536;
// The most positions that one worker holds: many batches ahead.
inline constexpr uint64_t kMaxLeasedSamples = uint64_t{1} << 24;
inline constexpr uint32_t kMaxRememberedVerdicts = 2;  // Per lane, by each worker.
inline constexpr uint32_t kMaxPastRounds = 1000;       // In one answer to an operator.

// Samples, tokens or micro-batches of all contributors of a round; kMaxCount is the bound for one.
inline constexpr uint64_t kMaxTotalCount = kMaxWorkers * kMaxCount;

// The power of two by which a payload is scaled before a cast: F32's normal range.
inline constexpr int32_t kMaxWireExponent = 126;

// --------------------------------------------------------------------- how they fit together

static_assert(kMaxPayloadBytes + kMaxFrameHeaderBytes + kMaxFrameOverheadBytes <= kMaxMessageBytes,
              "the largest frame is a message");
static_assert(kMaxPayloadBytes + kChunkBytes >= kMaxMessageBytes,
              "the largest frame leaves less than a chunk unused");
static_assert(kDefaultFrameBytes <= kMaxPayloadBytes, "the default frame is allowed");
static_assert(kMaxRunsPerFrame * (2 + 4 + 5 + 3 + 5) + kMaxChunksInRuns * 8 +
                      2 * (kMaxNameBytes + 8) + kMaxCodecParameterBytes + kMaxWorkers / 8 + 256 <=
                  kMaxFrameHeaderBytes,
              "every header fits");
static_assert(kMaxTensorBytes % kChunkBytes == 0 &&
                  kMaxTensorBytes / kChunkBytes <= std::numeric_limits<uint32_t>::max() / 2,
              "first + count of a chunk range does not overflow");
static_assert(kMaxTensorBytes <= std::numeric_limits<int64_t>::max() / kMaxTensors,
              "the bytes of a lane do not overflow");
static_assert(kMaxTotalCount / kMaxWorkers == kMaxCount &&
                  kMaxTotalCount <= std::numeric_limits<int64_t>::max(),
              "the counts and weights of all workers do not overflow, nor in basin.h");
// A verdict names each contributor (id, incarnation, weight, ranks, how it was reduced), or the
// worker that is reduced with one, and each next member with its ranks, and may give a divisor per
// tensor and positions; all numbers at their longest. Its positions, with those that were resumed,
// are bounded as what is committed is.
static_assert(kMaxWorkers * (2 * (kMaxWorkerIdBytes + 3) + 26 + 11 + 3 + 2 + 2) + kMaxTensors * 19 +
                      kMaxLedgerRanges * 22 + (size_t{64} << 10) <=
                  kMaxMessageBytes,
              "the largest verdict is a message");
static_assert(2 * kMaxRanges * 22 + (size_t{64} << 10) <= kMaxMessageBytes,
              "two lists of ranges, the longest, are a message");
static_assert(kMaxWorkers * (kMaxWorkerIdBytes + 3) + kMaxLanes * (kMaxNameBytes + 32) +
                      (size_t{64} << 10) <=
                  kMaxMessageBytes,
              "a membership with where each lane starts is a message");
static_assert(kPieceBytes + 64 <= kMaxMessageBytes, "a piece is a message");
// A lane's history: its layout, two verdicts and a staged value, and the ranges that are held.
static_assert(kMaxTensors * (kMaxNameBytes + 10 * kMaxRank + 16) +
                      (kMaxRememberedVerdicts + 1) * kMaxMessageBytes + kMaxRanges * 22 +
                      (2 * kMaxLedgerRanges + kMaxSampleRanges) * 22 +
                      kMaxWorkers * (kMaxWorkerIdBytes + 3) + (size_t{64} << 10) <=
                  kMaxAssembledBytes,
              "a job with one lane, the largest there can be, can say hello");

}  // namespace basin

#endif  // BASIN_PROTOCOL_LIMITS_LIMITS_H_
