// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/keygen_command.h"

#include <filesystem>

#include "control/hub/keys/keygen.h"
#include "tools/gradmonctl/printable.h"

namespace gradmon {

int keygen_command(const KeygenRequest& request, const Console& console) {
  const std::filesystem::path directory = std::filesystem::absolute(request.directory).lexically_normal();
  const auto made =
      request.client.empty()
          ? make_key_directory(directory)
          : add_client(directory, {request.client, request.role == "control" ? Role::control : Role::read});
  if (!made) {
    console.err << "gradmonctl: " << printable(made.error()) << '\n';
    return kExitFailed;
  }
  console.out << *made;
  return kExitDone;
}

}  // namespace gradmon
