// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
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

class KeygenSubcommand : public SubcommandFor<KeygenRequest> {
 public:
  std::string usage() const override { return "keygen DIR [--client NAME --role ROLE]"; }
  std::string summary() const override { return "Make a directory of keys for a job that listens on TCP"; }
  Arguments arguments() override {
    Argument directory{"DIR", &request().directory, "the directory; it must not exist yet, or be empty"};
    directory.required = true;
    Argument role{"--role", &request().role, "the client's permission: read, or control (commands, too)",
                  "ROLE"};
    role.choices = {"read", "control"};
    role.needs = "--client";
    return {directory,
            {"--client", &request().client, "add a key for one more client to an existing DIR", "NAME"},
            role};
  }
  std::string complete() override {
    const bool lacks_role = !request().client.empty() && request().role.empty();
    return lacks_role ? "--client needs --role read or --role control" : "";
  }
  // Prints no key.
  int perform(const Console& console) override {
    const std::filesystem::path directory = std::filesystem::absolute(request().directory).lexically_normal();
    const Role role = request().role == "control" ? Role::control : Role::read;
    const auto made = request().client.empty() ? make_key_directory(directory)
                                               : add_client(directory, {request().client, role});
    if (!made) return report_error(made.error(), console);
    console.out << *made;
    return kExitDone;
  }
};

}  // namespace

std::unique_ptr<Subcommand> keygen_subcommand() { return std::make_unique<KeygenSubcommand>(); }

}  // namespace gradmon
