// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Named places at which a test may end or stop a process. Released programs contain none of them:
// the macro is empty, and neither the names nor the function are in the programs. The files that
// have such places are compiled a second time for the tests, with BASIN_FAILPOINTS defined; the
// tests define the function (tests/integration/failpoint.cc), and describe the commands there.
//
// A header must not use the macro: its code would then differ between the files of one program.
//
// Thread contract: safe from any thread; the thread that reaches a place stops there.

#ifndef BASIN_RUNTIME_FAILPOINT_H_
#define BASIN_RUNTIME_FAILPOINT_H_

#ifdef BASIN_FAILPOINTS

namespace basin {

void ReachFailpoint(const char* name);

}  // namespace basin

#define BASIN_FAILPOINT(name) ::basin::ReachFailpoint(name)

#else

#define BASIN_FAILPOINT(name) static_cast<void>(0)

#endif

#endif  // BASIN_RUNTIME_FAILPOINT_H_
