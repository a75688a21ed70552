# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# Writes every target with its sources and the libraries on its link lines to link-graph.json in
# the build folder. The layering tests read it, because include lines alone would not show a library
# that is linked and used through a local declaration.

include_guard(GLOBAL)

function(basin_collect_targets directory out)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(children DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(child IN LISTS children)
    basin_collect_targets("${child}" child_targets)
    list(APPEND targets ${child_targets})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# A CMake list as a JSON array of strings.
function(basin_json_array out)
  set(items "")
  foreach(item IN LISTS ARGN)
    string(REPLACE "\\" "\\\\" item "${item}")
    string(REPLACE "\"" "\\\"" item "${item}")
    list(APPEND items "\"${item}\"")
  endforeach()
  list(JOIN items ", " joined)
  set(${out} "[${joined}]" PARENT_SCOPE)
endfunction()

function(basin_write_link_graph)
  basin_collect_targets("${PROJECT_SOURCE_DIR}" targets)
  set(entries "")
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(folder ${target} SOURCE_DIR)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}")
    set(links "")
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(value ${target} ${property})
      if(value)
        list(APPEND links ${value})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES links)
    get_target_property(sources ${target} SOURCES)
    if(NOT sources)
      set(sources "")
    endif()
    basin_json_array(links_json ${links})
    basin_json_array(sources_json ${sources})
    string(APPEND entries
      "  {\"target\": \"${target}\", \"type\": \"${type}\", \"folder\": \"${folder}\",\n"
      "   \"sources\": ${sources_json},\n   \"links\": ${links_json}},\n")
  endforeach()
  string(REGEX REPLACE ",\n$" "\n" entries "${entries}")
  file(WRITE "${PROJECT_BINARY_DIR}/link-graph.json" "[\n${entries}]\n")
endfunction()
