# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The component `client` has what a trainer's build needs: libbasin.so, its headers for C and C++,
# and the files by which CMake (find_package(basin), targets basin::c and basin::cpp) and pkg-config
# (basin) find them.
#
#   cmake --install build/release --component client --prefix /usr/local
#
# The component `server` has the programs basind and basinctl, and their manual pages.

include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(basin_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/basin")

set_target_properties(basin_c PROPERTIES EXPORT_NAME c)
set_target_properties(basin_cpp PROPERTIES EXPORT_NAME cpp)
install(TARGETS basin_c basin_cpp EXPORT basin-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT client NAMELINK_COMPONENT client)
install(DIRECTORY client/c/include/ client/cpp/include/
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT client FILES_MATCHING PATTERN "*.h")
install(EXPORT basin-targets
  NAMESPACE basin:: DESTINATION "${basin_package_folder}" COMPONENT client)

# Below 1.0, a minor version may change the interface.
configure_package_config_file(cmake/basin-config.cmake.in "${PROJECT_BINARY_DIR}/basin-config.cmake"
  INSTALL_DESTINATION "${basin_package_folder}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/basin-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/basin-config.cmake" "${PROJECT_BINARY_DIR}/basin-config-version.cmake"
  DESTINATION "${basin_package_folder}" COMPONENT client)

# Derives the prefix from its own location, so that the installation can be moved.
set(basin_pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH basin_pc_prefix "/${basin_pc_folder}" "/")
configure_file(cmake/basin.pc.in "${PROJECT_BINARY_DIR}/basin.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/basin.pc"
  DESTINATION "${basin_pc_folder}" COMPONENT client)

if(TARGET basind)
  install(TARGETS basind basinctl RUNTIME COMPONENT server)
  install(FILES docs/man/basind.8 DESTINATION "${CMAKE_INSTALL_MANDIR}/man8" COMPONENT server)
  install(FILES docs/man/basinctl.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT server)
endif()
