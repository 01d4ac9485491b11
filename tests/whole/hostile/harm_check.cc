// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hostile/harm_check.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

#ifdef __SANITIZE_ADDRESS__
constexpr double kMostHubMib = 1e6;  // AddressSanitizer keeps freed memory
constexpr double kMostGrowthMib = 1e6;
#else
constexpr double kMostHubMib = 64;
constexpr double kMostGrowthMib = 4;  // training itself grows in its first steps
#endif

// The shortest of several times in which an honest client gets its answer: other
// work on this machine may delay any single answer.
milliseconds best_reply_time(const std::function<Status()>& ask) {
  milliseconds best{60'000};
  for (int i = 0; i < 8 && best > milliseconds(1000); ++i) {
    const auto asked = Clock::now();
    if (!ask().ranks.empty()) best = std::min(best, std::chrono::ceil<milliseconds>(Clock::now() - asked));
  }
  return best;
}

}  // namespace

HarmCheck::HarmCheck(const KeyedJob& job) : job_(job), rank0_(of(job.rank0())), hub_(job.hub()) {}

HarmCheck::Figures HarmCheck::of(pid_t process) {
  return {gradmon::resident_mib(process), descriptors_of(process), threads_of(process)};
}

void HarmCheck::check_training(const char* what) const {
  const Figures now = of(job_.rank0());
  WARN(what << ": rank 0 has " << now.resident_mib << " MiB, " << now.resident_mib - rank0_.resident_mib
            << " more than before");
  CHECK(now.resident_mib - rank0_.resident_mib <= kMostGrowthMib);
  CHECK(now.descriptors == rank0_.descriptors);
  CHECK(now.threads == rank0_.threads);
  const auto step = [&] {
    const Status status = job_.local_status();
    return status.ranks.empty() ? -1 : status.ranks.front().step;
  };
  const std::int64_t seen = step();
  CHECK(eventually([&] { return step() > seen; }));
}

void HarmCheck::check(const char* what) const {
  const milliseconds by_tcp = best_reply_time([&] { return job_.status(); });
  const milliseconds locally = best_reply_time([&] { return job_.local_status(); });
  const double resident = gradmon::resident_mib(hub_);
  WARN(what << ": honest clients are served within " << by_tcp.count() << " ms by TCP, " << locally.count()
            << " ms by the Unix socket; the hub has " << resident << " MiB, " << descriptors_of(hub_)
            << " descriptors");
  CHECK(by_tcp <= milliseconds(1000));
  CHECK(locally <= milliseconds(1000));
  CHECK(resident > 0);
  CHECK(resident <= kMostHubMib);
  CHECK(job_.hub() == hub_);
  check_training(what);
}

}  // namespace gradmon
