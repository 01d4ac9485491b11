# SPDX-License-Identifier: Apache-2.0
# gradmon_test(name SOURCES a_test.cc ... LINK target ... [LABELS label ...] [TIMEOUT seconds] [SERIAL] [TOGETHER] [DISABLED])
# builds one test binary and registers each of its test cases with ctest; TOGETHER: all of them as one test, because
# each process takes a second to load torch, and the cases take milliseconds. SERIAL: they start many processes, so only
# one such test case of the build runs at a time, beside tests that are not SERIAL. They begin first (COST): together
# they take as long as all others.
find_package(Catch2 REQUIRED)
include(Catch)
if(Catch2_VERSION VERSION_LESS 3)
  set(GRADMON_CATCH_ARGS --warn NoTests)  # Catch2 3 fails by itself where no test ran
endif()

# Catch2's main takes most of a minute to compile with optimisation or
# sanitizers, and none of its own code is under test: -O0 and no sanitizer.
add_library(gradmon_catch_main OBJECT tests/support/catch_main.cc)
target_include_directories(gradmon_catch_main PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(gradmon_catch_main PROPERTIES COMPILE_OPTIONS "-O0;-g0")
target_link_libraries(gradmon_catch_main PUBLIC Catch2::Catch2)

function(gradmon_test name)
  cmake_parse_arguments(ARG "SERIAL;TOGETHER;DISABLED" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  if(ARG_SERIAL)
    set(lock RESOURCE_LOCK many_processes COST 1000)
  endif()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:gradmon_catch_main>)
  target_link_libraries(${name} PRIVATE gradmon_options Catch2::Catch2 ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY GRADMON_TEST_BINARIES ${name})
  if(ARG_TOGETHER)
    add_test(NAME "${name}: all cases" COMMAND ${name} ${GRADMON_CATCH_ARGS})
    set_tests_properties("${name}: all cases" PROPERTIES LABELS "${name};${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      DISABLED "${ARG_DISABLED}")
    return()
  endif()
  catch_discover_tests(${name} TEST_PREFIX "${name}: " EXTRA_ARGS ${GRADMON_CATCH_ARGS}
    TEST_LIST ${name}_cases
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${lock} DISABLED "${ARG_DISABLED}"
    DISCOVERY_MODE PRE_TEST)
  # Not among PROPERTIES above: there a list is flattened, and its second label would be read as a property.
  set(labels ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels} "if(${name}_cases)
  set_tests_properties(\${${name}_cases} PROPERTIES LABELS \"${name};${ARG_LABELS}\")
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
endfunction()
