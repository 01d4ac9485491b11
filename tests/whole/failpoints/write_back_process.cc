// SPDX-License-Identifier: Apache-2.0
// failpoint-write-back CONFIG OUTPUT_DIR look|write: what the lead hub does with its
// config file, in a process that may be stopped and killed at any call. Looks at
// the first save; with `write` it says "base MTIME_NS" and writes dynamic_on back.
// Where there is none it says "problem WHY" and goes on looking.
#include <iostream>
#include <optional>
#include <string_view>

#include "control/hub/service/config_service.h"

namespace gradmon {
namespace {

int look_and_write(const std::filesystem::path& config, const std::filesystem::path& output_dir, bool write) {
  const auto mailbox = std::make_shared<Mailbox>();
  DiskThread disk;
  ConfigService desk({config, output_dir, {"launch", "", "host"}}, disk, mailbox);
  std::optional<int> code;
  const auto on_content = [&](const ConfigService::Content& content, const std::string&) {
    if (!content) {
      std::cout << "problem " << content.error() << std::endl;
      return;
    }
    if (!write) code = 0;
    if (!std::exchange(write, false)) return;
    std::cout << "base " << content->identity.mtime_ns << std::endl;
    desk.write_back(content->identity, [&](const ConfigService::Edited& edited) { code = edited ? 0 : 3; });
  };
  desk.watch({on_content, [](const std::vector<std::string>&) {}});
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
  return gradmon::look_and_write(argv[1], argv[2], std::string_view(argv[3]) == "write");
}
