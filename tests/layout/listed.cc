// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/listed.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "control/debian_version.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

Lines split(const std::string& text, char separator) {
  Lines parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

enum class Exit { zero, any };

std::string output_of(const std::string& command, Exit expected) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string text;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  if (expected == Exit::zero && status != 0) throw std::runtime_error(command + " failed: " + text);
  return text;
}

// CMake 3.25 drops the space after `BINARY:`; later versions keep it.
std::string spaced(std::string entry) {
  const auto colon = entry.find(':');
  if (colon != std::string::npos && entry.compare(colon, 2, ": ") != 0) entry.insert(colon + 1, " ");
  return entry;
}

// Catch2 2 exits with the number of names, and quotes a name that begins with #.
Lines cases_of(const std::string& executable) {
  const std::string list =
      GRADMON_CATCH2_MAJOR == 2 ? " --list-test-names-only" : " --list-tests --verbosity quiet";
  Lines cases;
  for (auto& name : split(output_of("'" + executable + "'" + list, Exit::any), '\n')) {
    if (name.size() > 1 && name[0] == '"') name = name.substr(1, name.size() - 2);
    if (!name.empty()) cases.push_back(name);
  }
  return cases;
}

}  // namespace

Lines unbuilt_tests(const SourceTree& tree, const std::vector<TestBinary>& binaries) {
  Lines found;
  std::set<std::string> built;
  for (const auto& binary : binaries) {
    for (const auto& source : binary.sources) {
      built.insert(source);
      if (tree.count(source) == 0) found.push_back(source + ": source of " + binary.name + ", missing");
    }
  }
  for (const auto& [path, text] : tree) {
    if (lies_in(path, "tests") && ends_with(path, "_test.cc") && built.count(path) == 0) {
      found.push_back(path + ": is in no gradmon_test()");
    }
  }
  return found;
}

Lines unlisted_cases(const std::vector<TestBinary>& binaries, const Lines& ctest_entries) {
  Lines found;
  const std::set<std::string> entries(ctest_entries.begin(), ctest_entries.end());
  std::set<std::string> cases;
  for (const auto& binary : binaries) {
    if (binary.state == TestBinary::State::missing) {
      found.push_back(binary.name + ": is not built");
    } else if (binary.cases.empty()) {
      found.push_back(binary.name + ": has no test case");
    }
    const auto together = binary.name + ": all cases";  // gradmon_test(... TOGETHER)
    cases.insert(together);
    for (const auto& name : binary.cases) {
      const auto entry = binary.name + ": " + name;
      if (!cases.insert(entry).second) found.push_back(entry + ": is defined twice");
      if (entries.count(entry) + entries.count(together) == 0)
        found.push_back(entry + ": is not run by ctest");
    }
  }
  for (const auto& entry : entries) {
    const auto owner = entry.substr(0, entry.find(": "));
    const bool ours = std::any_of(binaries.begin(), binaries.end(), [&](const TestBinary& binary) {
      return binary.name == owner && binary.state == TestBinary::State::built;
    });
    if (ours && cases.count(entry) == 0) found.push_back(entry + ": ctest runs it, but it is no test case");
  }
  return found;
}

std::vector<TestBinary> read_binaries(const std::string& manifest, const std::string& source_root) {
  std::vector<TestBinary> binaries;
  for (const auto& line : split(manifest, '\n')) {
    const auto parts = split(line, ';');
    if (parts.size() < 3) throw std::runtime_error("not a line of the manifest: " + line);
    TestBinary binary;
    binary.name = parts[0];
    for (auto source = parts.begin() + 3; source != parts.end(); ++source) {
      const auto path = (std::filesystem::path(parts[2]) / *source).lexically_normal();
      if (path.extension() == ".cc") binary.sources.push_back(path.lexically_relative(source_root));
    }
    binary.executable = parts[1];
    if (std::filesystem::exists(parts[1])) binary.state = TestBinary::State::built;
    binaries.push_back(std::move(binary));
  }
  return binaries;
}

std::vector<TestBinary> with_cases(std::vector<TestBinary> binaries) {
  for (auto& binary : binaries) {
    if (binary.state == TestBinary::State::built) binary.cases = cases_of(binary.executable);
  }
  return binaries;
}

Lines read_ctest_entries(const std::string& ctest, const std::string& build_root) {
  const auto text =
      output_of("'" + ctest + "' --test-dir '" + build_root + "' --show-only=json-v1", Exit::zero);
  const auto listing = nlohmann::json::parse(text);
  Lines names;
  for (const auto& test : listing.at("tests")) names.push_back(spaced(test.at("name")));
  return names;
}

}  // namespace gradmon
