// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks a backend against the golden vectors in tests/golden, whose README describes the format.
// Needs only the standard library, like contract.h.

#ifndef BASIN_TESTS_KERNELS_GOLDEN_H_
#define BASIN_TESTS_KERNELS_GOLDEN_H_

#include <string>

#include "kernels/reducer.h"
#include "tests/kernels/contract.h"

namespace basin::kernels::contract {

// Runs every case of a reduce file, or of rejected.txt, on `reducer`: the outcome, divisor, values,
// norm and facts must be those of the file. A file that cannot be read is a failure.
Report CheckGolden(const Reducer& reducer, const std::string& path);

// The reduce files and rejected.txt, by name.
std::vector<std::string> GoldenFiles();

}  // namespace basin::kernels::contract

#endif  // BASIN_TESTS_KERNELS_GOLDEN_H_
