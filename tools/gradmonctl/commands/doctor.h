// SPDX-License-Identifier: Apache-2.0
// The checks of `gradmonctl doctor`: this host, the hub and the keys. `python3 -m gradmon.doctor` checks
// torch and the frameworks, and prints these findings, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/aliases.h"
#include "control/host/environment.h"
#include "control/link/hub_connection.h"

namespace gradmon {

struct CheckResult {
  enum class Level : std::uint8_t { ok, warn, fail };
  Level level = Level::ok;
  std::string check;        // the name of the check: "config watch"
  std::string text;         // the finding
  std::string remedy = {};  // the user's remedy; "": none
};

using CheckResults = std::vector<CheckResult>;

CheckResult::Level worst(const CheckResults& findings);
// Readable UTF-8 text: the lines of each finding, with its remedy below.
std::string findings_text(const CheckResults& findings);
// One JSON object that follows json_rule.h.
std::string findings_json(const CheckResults& findings);

// The source of the config file's path.
enum class ConfigNamed : std::uint8_t { by_option, by_job_or_default };

// Checks that the config file can be read and is valid. An invalid file is a failure. An
// unreadable file is a failure only if --config names it: the job's file may be on
// another host.
CheckResult examine_config_file(const std::string& file, ConfigNamed named);

// The type of a path's file system as /proc/self/mounts names it: "ext4", "nfs4". The error: of the path.
tl::expected<std::string, std::error_code> file_system_type(const fs::path& path);
// True if changes made on another host raise no inotify events on this host.
bool is_network_file_system(const std::string& type);

// The operations that a directory supports, tested with temporary files in it.
struct DirectoryCapabilities {
  bool watch = false;     // a rename raises an event within a second
  bool exchange = false;  // renameat2(RENAME_EXCHANGE)
};

// Runs the tests in a directory of its own there, and removes it. The error, one readable line: nothing can
// be created in the directory.
Result<DirectoryCapabilities> probe_directory(const fs::path& directory);

// Checks the directory of the config file: its file system, events on saves, and the exchange of files by
// write-back, so that no save is lost. Creates temporary files there and removes them.
CheckResults examine_config_directory(const fs::path& directory);
// Checks the output directory, which need not exist yet: its file system, the creation of files, and the
// users who may write to it.
CheckResults examine_output_directory(const fs::path& directory);
// Checks a directory of keys (curve_keys.h).
CheckResult examine_keys(const fs::path& directory);

// Checks that this user can have an inotify instance and a watch.
CheckResult examine_inotify();

// The limits and the number of open file descriptors of one process.
struct DescriptorUse {
  std::int64_t soft = 0;
  std::int64_t hard = 0;
  std::int64_t open = 0;
};
std::optional<DescriptorUse> descriptor_use(std::int64_t pid);  // nullopt: unreadable
CheckResult examine_descriptors(const std::string& whose, const DescriptorUse& use);

// Checks that a private job directory can be created, that its file system has room,
// and that gradmon-hub is found, starts and answers. Creates a temporary job directory
// and hub, and removes both. gradmon-hub is searched beside the file `object`; a
// training process searches beside its own library.
CheckResults examine_hub(const EnvironmentLookup& environment = process_environment,
                         const fs::path& object = own_object());

// The free space of a file system.
struct FreeSpace {
  std::uint64_t free_bytes = 0;
  bool files = true;  // more files can be created
};
CheckResult check_free_space(const fs::path& base, const FreeSpace& room);

}  // namespace gradmon
