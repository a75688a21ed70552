// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes the starting corpora of the fuzz targets beside this file:
//
//   proto_make_corpus tests/proto/corpus
//
// One small valid input per kind of message, so that mutation starts inside every branch. Run it
// again when a kind is added; findings of fuzzing stay.

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "basin/v1/exchange.pb.h"
#include "basin/v1/session.pb.h"
#include "proto/wire/frame.h"
#include "proto/wire/session.h"
#include "tests/proto/admin_requests.h"
#include "tests/proto/random_frames.h"
#include "tests/proto/random_messages.h"

namespace basin::testing {
namespace {

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Write(const std::string& target, const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream(folder_ / target / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path folder_;
};

// The shortest encoding among some random messages of one kind.
template <typename Variant>
std::string SmallMessage(size_t index) {
  std::string best;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomMessages random(seed);
    const std::string bytes = *wire::Encode(random.MakeAlternative<Variant>(index));
    if (best.empty() || bytes.size() < best.size()) best = bytes;
  }
  return best;
}

void WriteMessages(Corpus& corpus) {
  for (size_t i = 0; i < std::variant_size_v<ToAggregator>; ++i) {
    corpus.Write("to_aggregator", "kind-" + std::to_string(i), SmallMessage<ToAggregator>(i));
  }
  for (size_t i = 0; i < std::variant_size_v<ToWorker>; ++i) {
    corpus.Write("to_worker", "kind-" + std::to_string(i), SmallMessage<ToWorker>(i));
  }
}

// Messages of a stream, each behind its length: whole, and cut in two or three.
void WriteStreams(Corpus& corpus) {
  const auto framed = [](const std::string& bytes) {
    std::string length(2, '\0');
    length[0] = static_cast<char>(bytes.size() & 0xff);
    length[1] = static_cast<char>(bytes.size() >> 8);
    return length + bytes;
  };
  for (size_t i = 0; i < std::variant_size_v<ToAggregator>; ++i) {
    const std::string whole = SmallMessage<ToAggregator>(i);
    std::string stream = framed(whole);
    const size_t pieces = std::min<size_t>(2 + i % 2, whole.size());
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = whole.size() * piece / pieces;
      const size_t end = whole.size() * (piece + 1) / pieces;
      v1::ToAggregator carrier;
      carrier.mutable_piece()->set_bytes(whole.substr(begin, end - begin));
      carrier.mutable_piece()->set_last(piece + 1 == pieces);
      stream += framed(carrier.SerializeAsString());
    }
    v1::ToAggregator carrier;
    carrier.mutable_batch()->add_messages(whole);
    carrier.mutable_batch()->add_frames()->set_frame("frame " + std::to_string(i));
    stream += framed(carrier.SerializeAsString());
    corpus.Write("session_stream", "kind-" + std::to_string(i), stream);
  }
}

void WriteFrames(Corpus& corpus) {
  for (size_t kind = 0; kind < std::variant_size_v<wire::FrameKind>; ++kind) {
    for (const char stride : {'\0', '\1', '\7'}) {
      RandomMessages random(100 + kind);
      const RandomFrame frame = MakeFrame(random, kind, true);
      const std::string name = "kind-" + std::to_string(kind);
      corpus.Write("frame", name + "-cut-" + std::to_string(stride), stride + frame.Encode());
      v1::Frame proto;
      static_cast<void>(proto.ParseFromString(frame.Encode()));
      corpus.Write("frame_header", name, proto.header());
      if (frame.header.chunk_digests.empty()) continue;
      RandomFrame shared{frame.sequence, frame.header, "", {{1, 64, frame.payload.size()}}};
      corpus.Write("frame", name + "-shared-" + std::to_string(stride), stride + shared.Encode());
    }
  }
}

// Frames whose payload is in several places, and one place with a part of a chunk.
void WritePlaces(Corpus& corpus) {
  int written = 0;
  for (uint64_t seed = 0; written < 6; ++seed) {
    RandomMessages random(seed);
    RandomFrame frame = MakeFrame(random, 3 + seed % 3, true);
    if (frame.header.chunk_digests.empty()) continue;
    frame.places = MakePlaces(random, frame);
    if (frame.places.size() < 2) continue;
    frame.payload.clear();
    const std::string name = "places-" + std::to_string(written++);
    corpus.Write("frame", name, static_cast<char>(seed % 8) + frame.Encode());
    v1::Frame proto;
    static_cast<void>(proto.ParseFromString(frame.Encode()));
    v1::SharedMemory& shared = *proto.mutable_shared_memory();
    shared.set_length(shared.length() + shared.more(0).length() - 1);
    shared.mutable_more(0)->set_length(1);
    const std::string covered = proto.header() + shared.SerializeAsString();
    proto.set_checksum(XXH3_64bits(covered.data(), covered.size()));
    corpus.Write("frame", name + "-part", '\0' + proto.SerializeAsString());
  }
}

void WriteAdminRequests(Corpus& corpus) {
  for (int i = 0; i < AdminRequests::kCount; ++i) {
    AdminRequests::VisitNumber(i, [&](auto request) {
      const std::string bytes = GoodRequest<decltype(request)>().SerializeAsString();
      corpus.Write("admin", std::string(request.GetDescriptor()->name()),
                   static_cast<char>(i) + bytes);
    });
  }
}

void WriteNames(Corpus& corpus) {
  int i = 0;
  for (const char* name : {"trainer-0", "team/bert", "f81d4fae-7dec-11d0", "layer3.weight",
                           "層.重み", "a\nb", "\xed\xa0\x80", "a\u202eb", "\xf0\x9d\x9b\x81"}) {
    corpus.Write("names", "name-" + std::to_string(i++), name);
  }
}

}  // namespace
}  // namespace basin::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <folder>\n", argv[0]);
    return 2;
  }
  basin::testing::Corpus corpus(argv[1]);
  basin::testing::WriteMessages(corpus);
  basin::testing::WriteStreams(corpus);
  basin::testing::WriteFrames(corpus);
  basin::testing::WritePlaces(corpus);
  basin::testing::WriteAdminRequests(corpus);
  basin::testing::WriteNames(corpus);
  return 0;
}
