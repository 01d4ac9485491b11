// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradmon {

// The lines of the program's source files. Each file is read once. One thread.
class SourceLines {
 public:
  // The line (from 1) without leading and trailing white space; "" if the file or the line does not exist.
  std::string line(const std::string& path, std::int64_t number);

 private:
  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace gradmon
