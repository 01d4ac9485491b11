// SPDX-License-Identifier: Apache-2.0
// gradmonctl in a small terminal.
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "tests/support/catch.h"
#include "tests/tools/gradmonctl/fake_hub.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/commands.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {

// The lines of `text` without their line feeds and carriage returns.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

// Runs gradmonctl to its end in a terminal of this size. Returns the lines that it shows; throws if its
// exit code is not 0. `environment`: NAME=VALUE, added to the environment of this process without COLUMNS
// and LINES, which override the size.
std::vector<std::string> lines_in_terminal(const Screen& screen, const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(screen.columns);
  size.ws_row = static_cast<unsigned short>(screen.rows);
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("cannot create a pseudo terminal");
  if (child == 0) {
    for (const char* name : {"COLUMNS", "LINES"}) unsetenv(name);
    exec_gradmonctl(arguments, environment);
  }
  const Descriptor terminal(master);
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = read(terminal.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("gradmonctl failed in the terminal: " + text);
  return lines_of(text);
}

namespace {

using Lines = std::vector<std::string>;

constexpr Screen kSmall{60, 16};

// A fake hub of 40 ranks, with wide characters in the host names.
class ManyRanksHub {
 public:
  static Status status() {
    Status status = sample_status();
    status.launch_id = "crowd";
    status.ranks.clear();
    for (int number = 0; number < 40; ++number) status.ranks.push_back(sample_rank(number));
    for (RankStatus& rank : status.ranks) rank.host = "权重权重权重";
    status.warnings = {"a warning that is a good deal longer than one line of a small terminal can ever be"};
    return status;
  }
  Lines with_endpoint(Lines more) const {
    more.insert(more.end(), {"--endpoint", hub_.endpoint()});
    return more;
  }

 private:
  TemporaryDirectory runtime_;
  const FakeHub hub_{runtime_.path(), status()};
};

std::size_t widest(const Lines& lines) {
  std::size_t columns = 0;
  for (const std::string& line : lines) columns = std::max(columns, display_width(line));
  return columns;
}

bool has(const Lines& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

// True if no line wraps and one row is left for the prompt.
bool fits(const Lines& lines, const Screen& screen) {
  return widest(lines) <= screen.columns && lines.size() < screen.rows;
}

TEST_CASE("status fits into the terminal and tells the number of omitted ranks") {
  const ManyRanksHub job;
  const Lines shown = lines_in_terminal(kSmall, job.with_endpoint({"status"}), {});
  CHECK(fits(shown, kSmall));
  CHECK(has(shown, "…"));
  CHECK(has(shown, " more ranks (--all shows all)"));
  CHECK(has(shown, "0 rows dropped"));  // The first line is wrapped, not cut.
  REQUIRE_FALSE(shown.empty());
  CHECK(shown.back() == "config /home/me/monitor_config.json");
}

TEST_CASE("COLUMNS and LINES override the size of the terminal") {
  const ManyRanksHub job;
  const Lines shown =
      lines_in_terminal({200, 100}, job.with_endpoint({"status"}), {"COLUMNS=50", "LINES=20"});
  CHECK(fits(shown, {50, 20}));
  CHECK(has(shown, " more ranks (--all shows all)"));
}

TEST_CASE("nothing is omitted with --all or --json or outside a terminal") {
  const ManyRanksHub job;
  GradmonctlProcess piped(job.with_endpoint({"status"}), {"COLUMNS=50", "LINES=20"});
  CHECK(piped.wait() == 0);
  CHECK(piped.out() == full_text(status_listing(ManyRanksHub::status())));
  CHECK(lines_in_terminal(kSmall, job.with_endpoint({"status", "--all"}), {}) == lines_of(piped.out()));
  const Lines json = lines_in_terminal(kSmall, job.with_endpoint({"status", "--json"}), {});
  CHECK(has(json, "\"rank\": 39"));
  CHECK_FALSE(has(json, "…"));
}

TEST_CASE("on 80 columns every sentence of status and history is shown to its end") {
  const Screen screen{80, 200};
  // The text without line feeds and indents.
  const auto words = [](const std::string& text) {
    std::istringstream in(text);
    std::string all;
    for (std::string word; in >> word;) all += word + ' ';
    return all;
  };
  Status status = troubled_status();
  const std::string ranks = fit_to_screen(screen, status_listing(status));
  CHECK(widest(lines_of(ranks)) <= 80);
  for (const char* sentence :
       {"disk full: /scratch\\x07; not heard for 8.0 s; has not applied revision 7 ", "never connected ",
        "without rank 4 (dropped), rank 5 ended · 12 rows dropped ",
        "training waits for a decision, 1.5 s so far "})
    CHECK(words(ranks).find(sentence) != std::string::npos);
  const std::string changes = fit_to_screen(screen, history_listing(sample_history()));
  CHECK(widest(lines_of(changes)) <= 80);
  for (const HistoryEntry& entry : sample_history())
    CHECK(words(changes).find(words(entry.reason)) != std::string::npos);
}

TEST_CASE("history on a small screen shows the newest changes") {
  FakeJob job;
  CommandReply reply;
  for (int i = 0; i < 6; ++i) {
    for (const HistoryEntry& entry : sample_history()) reply.history.push_back(entry);
  }
  reply.history.back().reason = "the newest";
  job.answer(reply);
  Console console = job.console();
  console.screen = Screen{200, 10};
  const HistoryFiles none = [] { return tl::make_unexpected(std::string("none")); };
  CHECK(history_command({}, job.ask(), none, console) == 0);
  const Lines shown = lines_of(job.out.str());
  CHECK(fits(shown, *console.screen));
  REQUIRE(shown.size() > 1);
  CHECK(shown[1] == "… and 30 more changes (--all shows all)");
  CHECK(has(shown, "the newest"));
}

TEST_CASE("jobs on a small screen tells the number of omitted jobs") {
  FakeJob job;
  const HubReplies replies{std::vector<HubReplies::Answer>(20), {}};
  Console console = job.console();
  console.screen = Screen{40, 10};
  CHECK(jobs_command({}, replies, {}, console) == 0);
  CHECK(fits(lines_of(job.out.str()), *console.screen));
  CHECK(has(lines_of(job.out.str()), "… and 17 more jobs (--all shows all)"));
}

TEST_CASE("targets on a small screen tells the number of omitted lines") {
  FakeJob job;
  CommandReply reply;
  reply.status = sample_status();
  TargetList list;
  list.targets = std::vector<TargetStatus>(30, {"grad_reduced", "权重.weight", 1204, kSampleTime, 0, ""});
  list.counts.watched = 30;
  reply.rank_answers = {{Rank{0}, true, 0, "", list}};
  job.answer(reply);
  Console console = job.console();
  console.screen = Screen{40, 10};
  CHECK(targets_command({}, job.ask(), console) == 0);
  CHECK(fits(lines_of(job.out.str()), *console.screen));
  CHECK(has(lines_of(job.out.str()), "… and 28 more lines (--all shows all)"));
}

}  // namespace
}  // namespace gradmon
