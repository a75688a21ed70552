// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The standard streams of a process that something else has started.
//
// Thread contract: any thread. Failure: none; a stream that cannot be opened stays closed.

#ifndef BASIN_RUNTIME_STANDARD_STREAMS_H_
#define BASIN_RUNTIME_STANDARD_STREAMS_H_

#include <string>

namespace basin {

// Opens /dev/null in the place of each of stdin, stdout and stderr that is closed. Otherwise the
// next socket gets its number, and what is printed goes to the peer.
void OpenMissingStreams();

// Writes to stderr. A reader that has gone does not end the process with SIGPIPE.
void WriteToStderr(const std::string& text);

}  // namespace basin

#endif  // BASIN_RUNTIME_STANDARD_STREAMS_H_
