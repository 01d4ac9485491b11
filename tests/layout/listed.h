// SPDX-License-Identifier: Apache-2.0
// Checks that every test file is built, and that every test case that is built is run.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// A test binary that gradmon_test() has made.
struct TestBinary {
  enum class State { missing, built };

  std::string name;
  std::vector<std::string> sources;  // paths from the repository root
  State state = State::missing;
  std::vector<std::string> cases;  // as the binary lists them
  std::string executable;
};

// `*_test.cc` files below tests/ that are in no binary, and sources that do not exist.
std::vector<std::string> unbuilt_tests(const SourceTree& tree, const std::vector<TestBinary>& binaries);

// Test cases that ctest does not run or that are defined twice, ctest entries (`BINARY: CASE`)
// that are no test case, and binaries that are not built or have no test case. Ignores ctest
// entries that name no binary.
std::vector<std::string> unlisted_cases(const std::vector<TestBinary>& binaries,
                                        const std::vector<std::string>& ctest_entries);

// Reads the manifest that tests/layout/CMakeLists.txt writes, one line for each binary:
// NAME;EXECUTABLE;SOURCE_DIRECTORY;SOURCE;SOURCE… The cases stay empty.
std::vector<TestBinary> read_binaries(const std::string& manifest, const std::string& source_root);

// The same, with the cases that each executable lists when it is run. Throws std::runtime_error if
// one cannot be run.
std::vector<TestBinary> with_cases(std::vector<TestBinary> binaries);

// The names of all tests that ctest would run in a build directory; a case of a test binary is
// `BINARY: CASE`. Throws std::runtime_error if ctest fails.
std::vector<std::string> read_ctest_entries(const std::string& ctest, const std::string& build_root);

}  // namespace gradmon
