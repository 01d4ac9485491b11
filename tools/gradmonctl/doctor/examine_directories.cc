// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_directories.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "control/client/access_denial.h"
#include "control/hub/keys/curve_keys.h"
#include "tools/gradmonctl/doctor/directory_capabilities.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

Finding examine_watch(bool works, bool network) {
  if (!works) {
    return {Level::warn, "config watch", "a save raises no event: the file is polled once a second",
            "nothing is lost; for an immediate reaction put the config file on a local disk"};
  }
  if (network) {
    return {Level::warn, "config watch",
            "saves made on this host are seen at once, those of other hosts are polled",
            "nothing is lost; for an immediate reaction save on the host of rank 0, or use gradmonctl set"};
  }
  return {Level::ok, "config watch", "a save is seen at once", ""};
}

Finding examine_exchange(bool works) {
  if (works) return {Level::ok, "config write-back", "files can be exchanged: no save is lost", ""};
  return {Level::warn, "config write-back",
          "files cannot be exchanged: a save during a write-back can be lost",
          "\"write_back\": false leaves the file alone; or put it on a file system with RENAME_EXCHANGE"};
}

std::string mode_text(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0%o", static_cast<unsigned>(mode & 07777U));
  return text.data();
}

// Users who can write to the directory can remove or replace the job's output.
Finding examine_output_mode(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return {Level::warn, "output mode", std::strerror(errno), ""};
  Finding finding{Level::ok, "output mode", mode_text(status.st_mode), ""};
  if ((status.st_mode & S_IWOTH) != 0) {
    finding.level = Level::warn;
    finding.text += ": everybody can write there, and remove or replace the job's output";
    finding.remedy = "chmod o-w " + directory.string();
  } else if (status.st_uid != geteuid() && status.st_uid != 0) {
    finding.level = Level::warn;
    finding.text += ": it is another user's";
    finding.remedy = "choose one of your own with MONITOR_OUTPUT_DIR";
  }
  return finding;
}

}  // namespace

Findings examine_config_directory(const fs::path& directory) {
  const std::string kind = file_system_of(directory);
  if (kind.empty()) {
    const std::string why = std::strerror(errno);
    if (std::string denial = access_denial(directory, Access::read); !denial.empty())
      return {{Level::fail, "config directory", std::move(denial), ""}};
    return {{Level::fail, "config directory", directory.string() + ": " + why,
             "make it, or name the config file with --config"}};
  }
  Findings findings{{Level::ok, "config directory", directory.string() + " on " + kind, ""}};
  const auto trial = probe_directory(directory);
  if (!trial) {
    findings.push_back({Level::warn, "config write-back", trial.error(),
                        "gradmon cannot update the file; see gradmonctl status instead"});
    return findings;
  }
  findings.push_back(examine_watch(trial->watch, is_network_file_system(kind)));
  findings.push_back(examine_exchange(trial->exchange));
  return findings;
}

Findings examine_output_directory(const fs::path& directory) {
  const std::string kind = file_system_of(directory);
  if (kind.empty() && errno == ENOENT)
    return {
        {Level::ok, "output directory", directory.string() + " does not exist yet; the job creates it", ""}};
  if (kind.empty()) {
    const std::string why = std::strerror(errno);
    const std::string denial = access_denial(directory, Access::read);
    return {{Level::fail, "output directory", denial.empty() ? directory.string() + ": " + why : denial,
             "choose another one with MONITOR_OUTPUT_DIR"}};
  }
  Findings findings{{Level::ok, "output directory", directory.string() + " on " + kind, ""},
                    examine_output_mode(directory)};
  const auto trial = probe_directory(directory);
  if (!trial) {
    findings.push_back(
        {Level::fail, "output files", trial.error(), "choose another one with MONITOR_OUTPUT_DIR"});
  }
  return findings;
}

Finding examine_keys(const fs::path& directory) {
  const auto client = read_operator_keys(directory);
  if (!client) return {Level::fail, "keys", client.error(), ""};
  std::error_code error;
  if (!fs::exists(directory / "server.secret", error))
    return {Level::ok, "keys", directory.string() + ": client keys are valid", ""};
  const auto server = read_server_keys(directory);
  if (!server) return {Level::fail, "keys", server.error(), ""};
  return {Level::ok, "keys", directory.string() + ": server and client keys are valid", ""};
}

}  // namespace gradmon
