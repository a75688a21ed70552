// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes the starting corpora of the fuzz targets beside this file:
//
//   basin_shard_make_corpus tests/aggregator/shard/corpus
//
// One small valid input per kind of message, so that mutation starts inside every branch. Run it
// again when a kind is added; findings of fuzzing stay.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "aggregator/shard/wire/codec.h"
#include "tests/aggregator/shard/random_shard.h"

namespace basin::aggregator {
namespace {

// The shortest among some random messages that `make(random)` makes.
template <typename Make>
std::string SmallMessage(Make&& make) {
  std::string best;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomShard random(seed);
    const std::string bytes = Encode(make(random))->front();
    if (best.empty() || bytes.size() < best.size()) best = bytes;
  }
  return best;
}

void Write(const std::filesystem::path& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

void WriteFromShard(const std::filesystem::path& folder) {
  Write(folder, "hello", SmallMessage([](RandomShard& random) {
          ShardHello hello;
          hello.name = random.Label();
          hello.endpoint = "host:4711";
          hello.memory = random.Positive();
          return FromShard(hello);
        }));
  for (size_t kind = 0; kind < std::variant_size_v<ShardEvent>; ++kind) {
    Write(folder, "event-" + std::to_string(kind), SmallMessage([kind](RandomShard& random) {
            return FromShard(std::vector<ShardEvent>{random.Event(kind)});
          }));
  }
}

void WriteToShard(const std::filesystem::path& folder) {
  Write(folder, "welcome", SmallMessage([](RandomShard& random) {
          return ToShard(ShardWelcome{1, random.Positive()});
        }));
  for (size_t kind = 0; kind < std::variant_size_v<ShardAction>; ++kind) {
    Write(
        folder, "action-" + std::to_string(kind), SmallMessage([kind](RandomShard& random) {
          return ToShard(std::vector<ShardStep>{{random.Positive(), {random.Action(kind)}, false}});
        }));
  }
}

}  // namespace
}  // namespace basin::aggregator

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <folder>\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  basin::aggregator::WriteFromShard(folder / "from_shard");
  basin::aggregator::WriteToShard(folder / "to_shard");
  return 0;
}
