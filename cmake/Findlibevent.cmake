# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# Finds libevent, which Debian installs without a CMake package, and defines libevent::core,
# libevent::extra (HTTP) and libevent::openssl.

find_path(libevent_INCLUDE_DIR NAMES event2/bufferevent_ssl.h)
foreach(part core extra openssl)
  find_library(libevent_${part}_LIBRARY NAMES event_${part})
  mark_as_advanced(libevent_${part}_LIBRARY)
endforeach()
mark_as_advanced(libevent_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(libevent REQUIRED_VARS
  libevent_core_LIBRARY libevent_extra_LIBRARY libevent_openssl_LIBRARY libevent_INCLUDE_DIR)

if(libevent_FOUND AND NOT TARGET libevent::core)
  foreach(part core extra openssl)
    add_library(libevent::${part} UNKNOWN IMPORTED)
    set_target_properties(libevent::${part} PROPERTIES
      IMPORTED_LOCATION "${libevent_${part}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${libevent_INCLUDE_DIR}")
  endforeach()
endif()
