// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tools/convert/input_choice.h"

namespace gradmon {

// The rows that one thread converts: the rows of one rank and kind. The task lists the files again when it
// begins, so that the lists of a large job are not in memory at the same time.
struct ConversionTask {
  const RankInput* rank = nullptr;
  Kind kind = Kind::other;

  std::vector<InputFile> files(Problems& problems) const;
};

struct ConversionTasks {
  std::vector<ConversionTask> tasks;  // rank by rank, kinds in their order
  std::uint64_t bytes = 0;            // of all files
};

// `ranks` must outlive the tasks. Directories that cannot be read are problems.
ConversionTasks conversion_tasks(const std::vector<RankInput>& ranks, const std::vector<Kind>& kinds,
                                 Problems& problems);

}  // namespace gradmon
