// SPDX-License-Identifier: Apache-2.0
// All commands of gradmonctl count the targets of a real job alike.
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

class GradmonctlRunner {
 public:
  explicit GradmonctlRunner(RealJob& job) : job_(job) {}

  // Runs gradmonctl with `words`. Returns its output.
  std::string operator()(std::vector<std::string> words) {
    const auto log = job_.directory() / ("ctl" + std::to_string(++number_));
    words.insert(words.begin(), program("gradmonctl"));
    words.insert(words.end(), {"--output-dir", job_.output_dir.string()});
    run_program(words, log, {{"XDG_RUNTIME_DIR", job_.directory().string()}});
    return read_text(log);
  }

 private:
  RealJob& job_;
  int number_ = 0;
};

// For each rank of a small job the number before `what` in its line. For " targets match": {'0', "12"} and
// {'1', "12"} in "ranks 0, 1: 12 targets match, 24 series".
std::map<char, std::string> counts_of(const std::string& what, const std::string& text) {
  std::map<char, std::string> counts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find(what);
    if (line.rfind("rank", 0) != 0 || end == std::string::npos) continue;
    const std::size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
    for (const char c : line.substr(0, line.find(':'))) {
      if (c >= '0' && c <= '9') counts[c] = line.substr(begin, end - begin);
    }
  }
  return counts;
}

TEST_CASE("targets and status and the dry runs of set and targets count alike") {
  const auto [kinds, targets] = GENERATE(table<std::string, std::string>({
      {R"("wg_distribution": true, "param_distribution": true)", R"({"blocks.0": {}, "nothing": {}})"},
      {R"("xy_distribution": true)", R"({"blocks.0": {}})"},
      {R"("xy_distribution": true, "all_xy": true)", R"({"nothing": {}})"},
  }));
  RealJob::Options options;
  options.config =
      R"({"dynamic_on": true, "collect_times": 1000000, "targets": )" + targets + ", " + kinds + "}";
  options.train = {"--steps 1000000"};
  RealJob job(options);
  REQUIRE(job.wait_for_changes(1));
  GradmonctlRunner ctl(job);
  const std::string live = ctl({"targets"});
  INFO(live);
  const auto matching = counts_of(" targets match", live);
  REQUIRE(matching.size() == 2);
  CHECK(counts_of(" targets match", ctl({"set", "--dry-run", "eps=1e-9"})) == matching);
  CHECK(counts_of(" targets match", ctl({"targets", "--dry-run"})) == matching);
  const auto same_series = [&] {
    const auto ranks = job.status().ranks;
    const auto watched = [&](std::size_t rank) { return std::to_string(ranks.at(rank).targets.watched); };
    const std::map<char, std::string> expected{{'0', watched(0)}, {'1', watched(1)}};
    return counts_of(" series", ctl({"targets"})) == expected;
  };
  CHECK(eventually(same_series));  // The status may be a second old.
}

}  // namespace
}  // namespace gradmon
