// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A list of records of equal size, in a temporary file without a name: written in order, read in
// order or by index. It saves memory for what a search must keep and rarely reads.
//
// Thread contract: one thread. Failures: a full disk makes ok() false, and later reads are invalid.

#ifndef BASIN_TESTS_EXPLORE_SPOOL_H_
#define BASIN_TESTS_EXPLORE_SPOOL_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <type_traits>
#include <utility>

namespace basin::explore {

template <typename T>
class Spool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Spool() : file_(std::tmpfile()) { ok_ = file_ != nullptr; }

  void Add(const T& record) {
    ok_ = ok_ && std::fwrite(&record, sizeof(T), 1, file_.get()) == 1;
    ++size_;
  }
  // From now on, Next reads from the first record on, and Add may not be called.
  void Rewind() { ok_ = ok_ && std::fseek(file_.get(), 0, SEEK_SET) == 0; }
  bool Next(T& record) {
    if (!ok_ || read_ == size_) return false;
    ok_ = std::fread(&record, sizeof(T), 1, file_.get()) == 1;
    ++read_;
    return ok_;
  }
  // Add may follow.
  T At(uint64_t index) {
    T record{};
    ok_ = ok_ && std::fseek(file_.get(), static_cast<long>(index * sizeof(T)), SEEK_SET) == 0 &&
          std::fread(&record, sizeof(T), 1, file_.get()) == 1 &&
          std::fseek(file_.get(), 0, SEEK_END) == 0;
    return record;
  }

  uint64_t size() const { return size_; }
  bool ok() const { return ok_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t size_ = 0;
  uint64_t read_ = 0;
  bool ok_ = true;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SPOOL_H_
