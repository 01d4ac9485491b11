// SPDX-License-Identifier: Apache-2.0
// failpoint-write-back CONFIG OUTPUT_DIR look|write|on: reads the config file as the lead hub
// does, in a process that a test can stop or kill at any call. Ends after the first save
// that it reads; with `write` it prints "base MTIME_NS" and writes dynamic_on back first,
// with `on` it sets dynamic_on to true.
// If the file cannot be read it prints "problem WHY" and reads again. Exit code 3: the
// write-back was refused.
#include <iostream>
#include <optional>
#include <string_view>

#include "control/hub/config_service.h"

namespace gradmon {
namespace {

int look_and_write(const std::filesystem::path& config, const std::filesystem::path& output_dir,
                   std::string_view what) {
  bool write = what != "look";
  const auto mailbox = std::make_shared<Mailbox>();
  DiskThread disk;
  ConfigService config_service({config, output_dir, {"launch", "", "host"}}, disk, mailbox);
  std::optional<int> code;
  const auto on_content = [&](const ConfigService::Content& content, const std::string&) {
    if (!content) {
      std::cout << "problem " << content.error() << std::endl;
      return;
    }
    if (!write) code = 0;
    if (!std::exchange(write, false)) return;
    std::cout << "base " << content->identity.mtime_ns << std::endl;
    const auto done = [&](const ConfigService::Edited& edited) { code = edited ? 0 : 3; };
    if (what == "on") return config_service.edit({{"dynamic_on", "true"}}, done);
    config_service.write_back(content->identity, done);
  };
  config_service.watch({on_content, [](const auto&, const auto&) {}});
  while (!code) {
    mailbox->wait(std::chrono::milliseconds(100));
    for (const auto& note : mailbox->take()) note();
  }
  return *code;
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return gradmon::look_and_write(argv[1], argv[2], argv[3]);
}
