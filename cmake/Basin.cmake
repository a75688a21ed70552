# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The functions with which every folder declares what it builds:
#
#   basin_library(<target> [SRCS a.cc...] [HDRS a.h...] [DEPS t...])
#   basin_executable(<target> SRCS a.cc... [DEPS t...])
#   basin_test(<target> SRCS a_test.cc... [DEPS t...] [ARGS ...] [LABELS ...] [TIMEOUT s]
#              [NO_GTEST_MAIN] [DISCOVER])
#   basin_python_test(<name> SCRIPT test_a.py [ARGS ...] [LABELS ...] [TIMEOUT s])
#   basin_benchmark(<target> SRCS a_bench.cc... [DEPS t...])
#   basin_fuzz_target(<target> SRCS a_fuzz.cc... [DEPS t...] CORPUS dir [SECONDS n])
#
# Labels. Each test has its area, which is the first folder below tests/, and the labels in LABELS.
# scripts/test.sh uses these labels:
#   tsan     runs under ThreadSanitizer too
#   long     runs in the release build only, not under sanitizers or coverage
#   nightly  runs only in the nightly run
#   model    runs the cores in a modelled world, where only values are computed: not under
#            AddressSanitizer, except in the nightly run
#   tree     checks the source tree, not the code: runs in the release build only
# For every label there is a build target `tests-<label>` that builds the tests with it.

include_guard(GLOBAL)

# Warnings for our own code. clang also checks the thread-safety annotations.
function(basin_set_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety>)
endfunction()

# A static library, or an interface library if there are only headers. Includes are relative to the
# repository root.
function(basin_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;HDRS;DEPS")
  basin_require_parsed(${target})
  if(arg_SRCS)
    add_library(${target} STATIC ${arg_SRCS} ${arg_HDRS})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${arg_DEPS})
    basin_set_warnings(${target})
    # What tests share is built for those that are built.
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests/")
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  else()
    add_library(${target} INTERFACE ${arg_HDRS})
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target} INTERFACE ${arg_DEPS})
  endif()
endfunction()

function(basin_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS")
  basin_require_parsed(${target})
  add_executable(${target} ${arg_SRCS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
  basin_set_warnings(${target})
endfunction()

# One test binary. By default ctest sees it as one test; with DISCOVER it sees each case. The tested
# code is optimised according to the build type, but the test's own sources are not, because they
# take most of the time of a build and little of a run. Expensive computations for a test belong in
# a library. With one of the labels in BASIN_LEAVE_OUT, the binary can be built by name, but is
# neither built by default nor run.
function(basin_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_GTEST_MAIN;DISCOVER" "TIMEOUT"
                        "SRCS;DEPS;ARGS;LABELS")
  basin_require_parsed(${target})
  basin_executable(${target} SRCS ${arg_SRCS} DEPS ${arg_DEPS})
  if(arg_NO_GTEST_MAIN)
    target_link_libraries(${target} PRIVATE GTest::gtest GTest::gmock)
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main GTest::gmock)
  endif()
  # The C library's checks in hardened builds would need some optimisation.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0;-U_FORTIFY_SOURCE>)
  # The checks for undefined behavior take a third of the time of such a compilation, and find
  # faults of the test alone.
  if(BASIN_SANITIZE MATCHES "undefined" AND NOT BASIN_SANITIZE_TESTS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
  endif()
  # gcc 12 warns that the unused inline storage of an absl::InlinedVector is read uninitialized.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  basin_test_properties("${arg_LABELS}" "${arg_TIMEOUT}")
  list(JOIN labels "|" labels_pattern)
  set(left_out ${BASIN_LEAVE_OUT})
  list(FILTER left_out INCLUDE REGEX "^(${labels_pattern})$")
  if(left_out)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()

  basin_build_with_labels(${target} ${labels})
  if(arg_DISCOVER)
    include(GoogleTest)
    # PRE_TEST: the cases are listed when ctest runs, so a build needs no test binary to work.
    gtest_discover_tests(${target} EXTRA_ARGS ${arg_ARGS} TEST_PREFIX "${target}."
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
    # gtest_discover_tests cannot pass a list as the value of a property.
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_labels.cmake")
    file(WRITE "${labels_file}"
      "if(${target}_TESTS)\n"
      "  set_tests_properties(\${${target}_TESTS} PROPERTIES LABELS \"${labels}\")\n"
      "endif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
  else()
    add_test(NAME ${target} COMMAND ${target} ${arg_ARGS})
    set_tests_properties(${target} PROPERTIES
      TIMEOUT ${timeout} COST ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77)
  endif()
endfunction()

# A test in Python, standard library only, run from the folder of its script.
function(basin_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SCRIPT;TIMEOUT" "ARGS;LABELS")
  basin_require_parsed(${name})
  basin_test_properties("${arg_LABELS}" "${arg_TIMEOUT}")
  add_test(NAME ${name}
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}" ${arg_ARGS}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout} COST ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77)
endfunction()

# A benchmark binary; the target `benchmarks` builds all of them. ctest never runs it, because its
# numbers are reported, not asserted.
function(basin_benchmark target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS")
  basin_require_parsed(${target})
  basin_executable(${target} SRCS ${arg_SRCS} DEPS ${arg_DEPS} benchmark::benchmark_main)
  set_target_properties(${target} PROPERTIES
    EXCLUDE_FROM_ALL ON RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/benchmarks")
  if(NOT TARGET benchmarks)
    add_custom_target(benchmarks)
  endif()
  add_dependencies(benchmarks ${target})
endfunction()

# Sources with LLVMFuzzerTestOneInput. With BASIN_FUZZ they become a libFuzzer binary that ctest
# runs for SECONDS (5, or BASIN_FUZZ_SECONDS for all) from the committed CORPUS; findings and new
# inputs stay in the build folder. In every other build they are linked with a main function that
# replays the corpus once, so that a corpus is a regression test everywhere.
function(basin_fuzz_target target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS;SECONDS" "SRCS;DEPS")
  basin_require_parsed(${target})
  file(GLOB corpus_files "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}/*")
  if(NOT corpus_files)
    message(FATAL_ERROR "Basin: fuzz target ${target} has no corpus in ${arg_CORPUS}")
  endif()
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}")

  if(NOT BASIN_FUZZ)
    set(replay_main "${PROJECT_SOURCE_DIR}/cmake/fuzz_replay_main.cc")
    basin_executable(${target} SRCS ${arg_SRCS} "${replay_main}" DEPS ${arg_DEPS})
    # It declares the fuzz function, which would be redundant after the target's own source.
    set_source_files_properties("${replay_main}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    basin_test_properties("fuzz" "60")
    basin_build_with_labels(${target} ${labels})
    add_test(NAME ${target} COMMAND ${target} "${corpus}")
    set_tests_properties(${target} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}")
    return()
  endif()

  basin_executable(${target} SRCS ${arg_SRCS} DEPS ${arg_DEPS})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  if(BASIN_FUZZ_SECONDS)
    set(seconds ${BASIN_FUZZ_SECONDS})
  elseif(arg_SECONDS)
    set(seconds ${arg_SECONDS})
  else()
    set(seconds 5)
  endif()
  set(scratch "${CMAKE_CURRENT_BINARY_DIR}/${target}.corpus")
  file(MAKE_DIRECTORY "${scratch}")
  math(EXPR limit "${seconds} + 120")
  basin_test_properties("fuzz" ${limit})
  basin_build_with_labels(${target} ${labels})
  # libFuzzer writes new inputs to the first folder; the committed corpus is only read.
  add_test(NAME ${target}
    COMMAND ${target} -max_total_time=${seconds} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
            "-artifact_prefix=${scratch}/finding-" "${scratch}" "${corpus}")
  set_tests_properties(${target} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}")
endfunction()

# ---- Parts of the above -------------------------------------------------------------------------

# Fails at configure time if the calling function was given unknown arguments.
macro(basin_require_parsed target)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "Basin: ${target}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
endmacro()

# Sets `labels` (area first) and `timeout` (seconds, 300 unless given) in the caller. Tests that may
# take longest start first (COST), so that none of them is left alone at the end.
function(basin_test_properties extra_labels timeout)
  if(timeout STREQUAL "")
    set(timeout 300)
  endif()
  file(RELATIVE_PATH area "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX REPLACE "/.*" "" area "${area}")
  set(labels ${area} ${extra_labels})
  list(REMOVE_DUPLICATES labels)
  set(labels "${labels}" PARENT_SCOPE)
  set(timeout "${timeout}" PARENT_SCOPE)
endfunction()

# Makes `tests-<label>` build `target`, for each label.
function(basin_build_with_labels target)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET tests-${label})
      add_custom_target(tests-${label})
    endif()
    add_dependencies(tests-${label} ${target})
  endforeach()
endfunction()
