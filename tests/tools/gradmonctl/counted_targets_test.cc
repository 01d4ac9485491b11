// SPDX-License-Identifier: Apache-2.0
// gradmonctl and a real job: all commands count alike.
#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

class Asked {
 public:
  explicit Asked(RealJob& job) : job_(job) {}

  // What gradmonctl prints.
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

// "12" of "ranks 0, 1: 12 targets match, 24 series", for `what` " targets match"; "" without it.
std::string count_of(const std::string& what, const std::string& text) {
  const std::size_t end = text.find(what);
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_not_of("0123456789", end - 1) + 1;
  return text.substr(begin, end - begin);
}

TEST_CASE("a dry run of set, one of targets, targets and status count alike") {
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
  Asked ctl(job);
  const std::string live = ctl({"targets"});
  INFO(live);
  const std::string matching = count_of(" targets match", live);
  CHECK_FALSE(matching.empty());
  CHECK(count_of(" targets match", ctl({"set", "--dry-run", "eps=1e-9"})) == matching);
  CHECK(count_of(" targets match", ctl({"targets", "--dry-run"})) == matching);
  const auto same_series = [&] {
    const auto watched = job.status().ranks.at(0).targets.watched;
    return count_of(" series", ctl({"targets"})) == std::to_string(watched);
  };
  CHECK(eventually(same_series));  // The status tells of a second ago.
}

}  // namespace
}  // namespace gradmon
