// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/validate_command.h"

#include "tools/gradmonctl/config_text.h"
#include "tools/gradmonctl/printable.h"

namespace gradmon {

int validate_command(const ValidateRequest& request, const Console& console) {
  const auto text = valid_config_text(request.file, console);
  if (!text) return text.error();
  console.out << printable(request.file) << ": valid\n";
  return kExitDone;
}

}  // namespace gradmon
