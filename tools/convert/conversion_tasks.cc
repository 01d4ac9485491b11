// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_tasks.h"

#include <sys/stat.h>

#include <utility>

namespace gradmon {

std::vector<InputFile> ConversionTask::files(Problems& problems) const {
  return std::move(chosen_files(*rank, {kind}, problems)[kind]);
}

ConversionTasks conversion_tasks(const std::vector<RankInput>& ranks, const std::vector<Kind>& kinds,
                                 Problems& problems) {
  ConversionTasks all;
  for (const RankInput& rank : ranks) {
    for (const auto& [kind, files] : chosen_files(rank, kinds, problems)) {
      all.tasks.push_back({&rank, kind});
      for (const InputFile& file : files) {
        struct stat status {};
        if (::stat(file.file.path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
          all.bytes += static_cast<std::uint64_t>(status.st_size);
      }
    }
  }
  return all;
}

}  // namespace gradmon
