// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradmon {

// Lines of a program's source files, each read once. One thread.
class SourceLines {
 public:
  // Without the blanks around it; "" where there is no such file or line.
  std::string line(const std::string& path, std::int64_t number);

 private:
  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace gradmon
