// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSpareDescriptors = 16;  // for the connection to the hub and the output files

std::int64_t number_in(const fs::path& file) {
  std::int64_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

std::int64_t watches_of(const fs::path& fdinfo) {
  std::int64_t watches = 0;
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);) watches += line.rfind("inotify ", 0) == 0 ? 1 : 0;
  return watches;
}

void add_process(const fs::path& process, InotifyUse& use) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(fd->path(), gone) != "anon_inode:inotify") continue;
    use.instances += 1;
    use.watches += watches_of(process / "fdinfo" / fd->path().filename());
  }
}

std::string of(std::int64_t used, std::int64_t most) {
  return std::to_string(used) + " of " + std::to_string(most);
}

}  // namespace

InotifyUse inotify_use() {
  InotifyUse use;
  use.most_instances = number_in("/proc/sys/fs/inotify/max_user_instances");
  use.most_watches = number_in("/proc/sys/fs/inotify/max_user_watches");
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string name = process->path().filename();
    struct stat status {};
    const bool ours = name.find_first_not_of("0123456789") == std::string::npos &&
                      stat(process->path().c_str(), &status) == 0 && status.st_uid == geteuid();
    if (ours) add_process(process->path(), use);
  }
  return use;
}

Finding examine_inotify(const InotifyUse& use) {
  Finding finding{Finding::Level::ok, "inotify",
                  of(use.instances, use.most_instances) + " instances and " +
                      of(use.watches, use.most_watches) + " watches are in use by this user",
                  ""};
  if (use.instances < use.most_instances && use.watches + 8 <= use.most_watches) return finding;
  finding.level = Finding::Level::warn;
  finding.remedy =
      "the file is polled once a second instead; root can raise fs.inotify.max_user_instances and "
      "fs.inotify.max_user_watches with sysctl";
  return finding;
}

std::optional<DescriptorUse> descriptor_use(std::int64_t pid) {
  const fs::path process = fs::path("/proc") / std::to_string(pid);
  DescriptorUse use;
  std::ifstream limits(process / "limits");
  for (std::string line; std::getline(limits, line);) {
    constexpr const char* name = "Max open files";
    if (line.rfind(name, 0) == 0)
      std::istringstream(line.substr(std::char_traits<char>::length(name))) >> use.soft >> use.hard;
  }
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error))
    use.open += 1;
  return error || use.soft == 0 ? std::nullopt : std::optional<DescriptorUse>(use);
}

Finding examine_descriptors(const std::string& whose, const DescriptorUse& use) {
  Finding finding{Finding::Level::ok, "descriptors of " + whose,
                  of(use.open, use.soft) + " are open (hard limit " + std::to_string(use.hard) + ")", ""};
  if (use.soft - use.open >= kSpareDescriptors) return finding;
  finding.level = Finding::Level::warn;
  finding.remedy =
      "with fewer than " + std::to_string(kSpareDescriptors) +
      " free descriptors gradmon may not reach its hub and then stays off; raise the limit with ulimit -n";
  return finding;
}

}  // namespace gradmon
