// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/console.h"

#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

int report_error(const std::string& text, const Console& console) {
  console.err << "gradmonctl: " << printable(text) << '\n';
  return kExitFailed;
}

}  // namespace gradmon
