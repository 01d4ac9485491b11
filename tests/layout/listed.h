// SPDX-License-Identifier: Apache-2.0
// Every test that is written is built, and every test that is built is run.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// A test binary, as gradmon_test() made it.
struct TestBinary {
  enum class State { missing, built };

  std::string name;
  std::vector<std::string> sources;  // paths from the repository root
  State state = State::missing;
  std::vector<std::string> cases;  // as the binary lists them
};

// `*_test.cc` files below tests/ that are in no binary, and sources that do not exist.
std::vector<std::string> unbuilt_tests(const SourceTree& tree, const std::vector<TestBinary>& binaries);

// Test cases that ctest does not run, ctest entries (`BINARY: CASE`) that are
// no test case, and binaries that are not built. Entries of other names are
// not a binary's, and are let be.
std::vector<std::string> unlisted_cases(const std::vector<TestBinary>& binaries,
                                        const std::vector<std::string>& ctest_entries);

// Reads what tests/layout/CMakeLists.txt writes, one line for each binary:
// NAME;EXECUTABLE;SOURCE_DIRECTORY;SOURCE;SOURCE…, and asks each executable for
// its cases. Throws std::runtime_error where one cannot be run.
std::vector<TestBinary> read_binaries(const std::string& manifest, const std::string& source_root);

// The names of all tests that ctest would run in a build directory, of test binaries as
// `BINARY: CASE`. Throws std::runtime_error.
std::vector<std::string> read_ctest_entries(const std::string& ctest, const std::string& build_root);

}  // namespace gradmon
