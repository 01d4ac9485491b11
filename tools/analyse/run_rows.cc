// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/run_rows.h"

namespace gradmon {

void each_kind(const Run& run, Problems& problems, const EachKind& each) {
  for (const RankDirectory& rank : run.ranks) {
    for (const auto& [kind, files] : kind_files_in(rank.path, problems)) each(rank.rank, kind, files);
  }
}

}  // namespace gradmon
