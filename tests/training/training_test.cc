// SPDX-License-Identifier: Apache-2.0
// gradmon-train as a process.
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

// Runs gradmon-train with a small model and these options, under `before` if that is not empty. Returns what
// it prints.
std::string train(int steps, const std::vector<std::string>& options, int code = 0,
                  std::vector<std::string> command = {}) {
  const TemporaryDirectory directory;
  command.insert(command.end(),
                 {program("gradmon-train"), "--steps", std::to_string(steps), "--layers", "1", "--width",
                  "16", "--context", "8", "--threads", "1", "--batch", "2", "--seed", "3"});
  command.insert(command.end(), options.begin(), options.end());
  const int found = run_program(command, directory / "log");
  const std::string printed = read_text(directory / "log");
  CAPTURE(printed);
  REQUIRE(found == code);
  return printed;
}

TEST_CASE("training with all options combined lowers the loss") {
  std::istringstream text(
      train(151, {"--experts", "5", "--in-place", "--checkpoint", "--tied", "--micro-batches", "2",
                  "--freeze", "norm", "--freeze", "mixture.experts.0."}));
  std::vector<double> losses;
  for (std::string word; text >> word;) {
    if (word == "loss" && text >> word) losses.push_back(std::stod(word));
  }
  REQUIRE(losses.size() == 4);
  REQUIRE(losses.back() < 0.8 * losses.front());
}

TEST_CASE("ranks keep equal parameters although their tokens use different experts") {
  const TemporaryDirectory directory;
  train(40, {"--experts", "24", "--freeze", "embedding", "--save", (directory / "rank{rank}").string()}, 0,
        {program("gradmonctl"), "run", "-n", "2", "--"});
  REQUIRE(read_text(directory / "rank0").size() > 1000);
  REQUIRE(read_text(directory / "rank0") == read_text(directory / "rank1"));
}

TEST_CASE("invalid options are refused with the reason") {
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(says(train(1, {"--rank", "3"}, 2), "RANK: must be less than WORLD_SIZE"));
  CHECK(says(train(1, {"--freeze", "nrom"}, 1), "--freeze nrom: no parameter's name contains it"));
  CHECK(says(train(1, {"--freeze", "."}, 1), "leaves no parameter to train"));
}

}  // namespace
}  // namespace gradmon
