// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "control/hub/transport/curve_keys.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
namespace {

// A request for a new directory of keys; or for one more client in it if `client` is not "".
struct KeygenRequest {
  std::string directory;
  std::string client;
  std::string role;  // "read" or "control"
};

}  // namespace

Subcommand keygen_subcommand() {
  const auto request = std::make_shared<KeygenRequest>();
  Argument directory{"DIR", &request->directory, "the directory; it must not exist yet, or be empty"};
  directory.required = true;
  Argument role{"--role", &request->role, "the client's permission: read, or control (commands, too)",
                "ROLE"};
  role.choices = {"read", "control"};
  role.needs = "--client";
  return {request,
          "keygen DIR [--client NAME --role ROLE]",
          "Make a directory of keys for a job that listens on TCP",
          {directory,
           {"--client", &request->client, "add a key for one more client to an existing DIR", "NAME"},
           role},
          [request](const Console& console) {  // Prints no key.
            const auto path = fs::absolute(request->directory).lexically_normal();
            const Role may = request->role == "control" ? Role::control : Role::read;
            const auto made =
                request->client.empty() ? make_key_directory(path) : add_client(path, {request->client, may});
            if (!made) return report_error(made.error(), console);
            console.out << *made;
            return kExitDone;
          },
          [request] {
            const bool lacks_role = !request->client.empty() && request->role.empty();
            return std::string(lacks_role ? "--client needs --role read or --role control" : "");
          }};
}

}  // namespace gradmon
