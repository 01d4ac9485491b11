// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/line_prefixer.h"

#include <algorithm>

namespace gradmon {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t here =
        std::min(end == std::string_view::npos ? bytes.size() : end, kLongestLine - pending_.size());
    pending_.append(bytes.substr(0, here));
    bytes.remove_prefix(here);
    const bool whole = !bytes.empty() && bytes.front() == '\n';
    if (whole) bytes.remove_prefix(1);
    if (whole || pending_.size() == kLongestLine) {
      lines += prefix_ + pending_ + '\n';
      pending_.clear();
    }
  }
  return lines;
}

std::string LinePrefixer::finish() { return pending_.empty() ? std::string() : feed("\n"); }

}  // namespace gradmon
