// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Any bytes on the socket over which segments are passed, as a hostile peer may send them.
//
// Thread contract: a pure function but for the system.

#ifndef BASIN_TESTS_RUNTIME_SHARED_MEMORY_SEND_RAW_H_
#define BASIN_TESTS_RUNTIME_SHARED_MEMORY_SEND_RAW_H_

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>

namespace basin::testing {

// Sends the bytes as one message, with a descriptor unless it is negative. Whether all were sent.
inline bool SendRaw(int socket, const std::string& bytes, int descriptor) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace basin::testing

#endif  // BASIN_TESTS_RUNTIME_SHARED_MEMORY_SEND_RAW_H_
