// SPDX-License-Identifier: Apache-2.0
// gradmon-train as a process.
#include <sstream>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

const std::vector<std::string> kSmallModel{"--layers",  "1", "--width", "16", "--context", "8",
                                           "--threads", "1", "--batch", "2",  "--seed",    "3"};

std::vector<std::string> concatenated(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Runs 151 steps with `options`. Returns the printed losses.
std::vector<double> printed_losses(const std::vector<std::string>& options) {
  const TemporaryDirectory directory;
  const auto log = directory / "log";
  REQUIRE(run_program(
              concatenated({program("gradmon-train"), "--steps", "151"}, concatenated(kSmallModel, options)),
              log) == 0);
  std::vector<double> result;
  std::istringstream text(read_text(log));
  for (std::string word; text >> word;) {
    if (word == "loss" && text >> word) result.push_back(std::stod(word));
  }
  REQUIRE(result.size() == 4);
  return result;
}

TEST_CASE("training with all options combined lowers the loss") {
  const auto fallen =
      printed_losses({"--experts", "5", "--experts-per-token", "2", "--in-place", "--checkpoint", "--tied",
                      "--micro-batches", "2", "--freeze", "norm", "--freeze", "mixture.experts.0."});
  REQUIRE(fallen.back() < 0.8 * fallen.front());
}

TEST_CASE("recomputation does not change the losses") {
  REQUIRE(printed_losses({"--experts", "3", "--checkpoint"}) == printed_losses({"--experts", "3"}));
}

TEST_CASE("ranks keep equal parameters although their tokens use different experts") {
  const TemporaryDirectory directory;
  const int code =
      run_program(concatenated({program("gradmonctl"), "run", "-n", "2", "--", program("gradmon-train"),
                                "--steps", "40", "--experts", "24", "--freeze", "embedding", "--save",
                                (directory / "rank{rank}").string()},
                               kSmallModel),
                  directory / "log");
  CAPTURE(read_text(directory / "log"));
  REQUIRE(code == 0);
  REQUIRE(read_text(directory / "rank0").size() > 1000);
  REQUIRE(read_text(directory / "rank0") == read_text(directory / "rank1"));
}

TEST_CASE("invalid options are refused with the reason") {
  const TemporaryDirectory directory;
  const auto said = [&](const std::vector<std::string>& options, int code) {
    REQUIRE(run_program(concatenated({program("gradmon-train"), "--steps", "1"}, options),
                        directory / "log") == code);
    return read_text(directory / "log");
  };
  REQUIRE(said({"--experts", "1", "--experts-per-token", "2"}, 2).find("must be at most --experts") !=
          std::string::npos);
  REQUIRE(said({"--freeze", "nrom"}, 1).find("--freeze nrom: no parameter's name contains it") !=
          std::string::npos);
  REQUIRE(said({"--freeze", "."}, 1).find("leaves no parameter to train") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
