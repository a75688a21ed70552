// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker that makes every call on rows through the C++ interface, and prints what it gets.
//
// usage: rows_worker_cpp [shared | lost]   shared: only the calls that a worker in Python makes too
//                                          lost: an allgather that loses a worker

#include <basin/client.h>
#include <basin/rows.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::chrono::minutes kPatience(2);

void Check(const basin::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", basin::CodeName(status.code()), status.message().c_str());
  std::exit(1);
}

template <typename T>
T Take(basin::Result<T> result) {
  Check(result.status());
  return *std::move(result);
}

template <typename T>
void Print(const char* what, const std::vector<char>& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  std::string line = what;
  for (const T number : numbers) line += " " + std::to_string(static_cast<int64_t>(number));
  std::printf("%s\n", line.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  basin::Worker worker = Take(basin::Worker::Connect(basin::Options()));
  Check(worker.Ready());
  Check(worker.AwaitMember(kPatience));
  const basin::Place place = Take(worker.place());
  basin::RowCalls calls(worker);

  const int64_t base = 10 * static_cast<int64_t>(place.rank);
  const std::vector<int64_t> sent{base, base + 1, base + 2};
  const basin::Rows three{basin::DType::kI64, {}, sent.data(), 3};
  const auto leave = [&] {
    Check(worker.Barrier("end", kPatience));
    Check(worker.Finished());
    Check(worker.Leave());
    return 0;
  };
  const auto print = [](const basin::Status& status) {
    std::printf("%s %s\n", basin::CodeName(status.code()), status.message().c_str());
  };
  if (argc > 1 && std::string(argv[1]) == "lost") {
    print(calls.Allgather("lost", three, kPatience).status());
    return leave();
  }
  const std::vector<float> mine(2 * place.rank, static_cast<float>(place.rank));
  const basin::Rows rows{basin::DType::kF32, {2}, mine.data(), place.rank};
  for (const auto& bytes : Take(calls.Allgather("rows", rows, kPatience))) {
    Print<float>("allgather", bytes);
  }
  std::vector<std::size_t> splits(place.world_size, 1);
  splits.back() = sent.size() + 1 - splits.size();
  for (const auto& bytes : Take(calls.AllToAll("sent", three, splits, kPatience))) {
    Print<int64_t>("alltoall", bytes);
  }
  Print<int64_t>("reducescatter", Take(calls.ReduceScatter("sum", basin::RoundSpec(basin::Op::kSum),
                                                           three, kPatience)));
  std::vector<char> said(sizeof(int64_t) * 3);
  Check(calls.Broadcast("said", 1, three, said.data(), kPatience));
  Print<int64_t>("broadcast", said);
  if (argc > 1) return leave();
  // Another dtype on each worker.
  const basin::Rows other{
      place.rank == 0 ? basin::DType::kI64 : basin::DType::kF64, {}, sent.data(), 3};
  print(calls.Allgather("other", other, kPatience).status());
  const auto few = calls.AllToAll("splits", three, {1}, kPatience);
  std::printf("%s\n", basin::CodeName(few.status().code()));
  return leave();
}
