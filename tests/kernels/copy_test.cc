// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/copy.h"

#include <cstddef>
#include <vector>

#include "gtest/gtest.h"

namespace basin::kernels {
namespace {

TEST(CopyPastCache, CopiesEachSizeFromAndToEachAddressAndNothingBeside) {
  constexpr unsigned char kUntouched = 0xa5;
  std::vector<unsigned char> source(4096);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + 7);
  for (const size_t size : {0, 1, 15, 63, 64, 65, 127, 128, 129, 1000, 3000}) {
    for (const size_t from : {0, 1, 8, 63}) {
      for (size_t to = 0; to < 80; to += 1) {
        std::vector<unsigned char> copy(4096, kUntouched);
        CopyPastCache(copy.data() + to, source.data() + from, size);
        std::vector<unsigned char> expected(4096, kUntouched);
        for (size_t i = 0; i < size; ++i) expected[to + i] = source[from + i];
        ASSERT_EQ(copy, expected) << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace basin::kernels
