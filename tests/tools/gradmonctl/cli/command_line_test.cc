// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/command_line.h"

#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tools/gradmonctl/commands/commands.h"

namespace gradmon {
namespace {

tl::expected<Subcommand, ParseExit> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "gradmonctl");
  return parse_command_line(all_subcommands(), static_cast<int>(words.size()), words.data());
}

// Splits a shell line into words. Knows single quotes and comments.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line.substr(0, line.find(" #"))) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c != ' ' || quoted) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

tl::expected<Subcommand, ParseExit> parse_line(const std::string& line) {
  const std::vector<std::string> words = shell_words(line);
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return parse(arguments);
}

template <class T>
T parsed(const std::vector<const char*>& words) {
  const auto subcommand = parse(words);
  REQUIRE(subcommand);
  return *std::any_cast<std::shared_ptr<T>>(subcommand->request);
}

TEST_CASE("the help of every command matches its golden file") {
  for (const char* command :
       {"",    "status",  "watch",  "jobs",    "doctor",   "on",     "off",    "set", "cancel", "evict",
        "get", "history", "alerts", "targets", "validate", "keygen", "schema", "run", "gc",     "init"}) {
    const auto help = *command == '\0' ? parse({"--help"}) : parse({command, "--help"});
    REQUIRE(!help);
    CHECK(help.error().code == 0);
    const std::string name = *command == '\0' ? "help.txt" : std::string("help_") + command + ".txt";
    CHECK(golden_difference(name, help.error().text) == "");
  }
}

void check_arguments(const Subcommand& command) {
  CAPTURE(command.usage);
  for (const Argument& argument : command.arguments) {
    const std::string name = argument.name.substr(0, argument.name.find(','));
    const bool positional = name.front() != '-';
    const std::string word = positional ? name : argument.placeholder;
    CAPTURE(name, argument.help);
    if (positional)
      CHECK((name == "RUN" || name == "RUN_A" || name == "RUN_B" || name == "FILE" || name == "KEY" ||
             name == "EDIT" || name == "RANK" || name == "SQL" || name == "DIR"));
    if (name == "RUN" || name == "RUN_A" || argument.name == "--output-dir")
      CHECK((word.find("RUN") == 0 && (argument.help.find("the job's output director") == 0 ||
                                       argument.help.find("the jobs' output director") == 0)));
    if (argument.help.find("the config file") == 0) CHECK(word == "FILE");
    if (word == "DIR") CHECK(argument.help.find("the job's output") != 0);
  }
}

TEST_CASE("every command calls a job's directory RUN and a file FILE") {
  for (const Subcommand& command : all_subcommands()) check_arguments(command);
}

TEST_CASE("no command gives the help and a usage error") {
  const auto nothing = parse({});
  REQUIRE(!nothing);
  CHECK(nothing.error().code == 2);
  CHECK(nothing.error().text == parse({"--help"}).error().text);
}

TEST_CASE("a usage error points to --help and ends with 2") {
  std::istringstream lines(
      "nonsense|off on|status off|on --at soon|on --at -1|on --step-interval 0|on --wait --timeout 0|"
      "on --timeout 5|set|set key|status one two|validate|evict|evict -1|evict x|evict 1 2|cancel 1 2|"
      "jobs --job x|run -n 0 -- a|run -n 2|run -- a|run -n 2 a|--json|on --at 9223372036854775808");
  for (std::string line; std::getline(lines, line, '|');) {
    CAPTURE(line);
    const auto request = parse_line(line);
    REQUIRE(!request);
    CHECK(request.error().code == 2);
    CHECK(request.error().text.find("gradmonctl: ") == 0);
    CHECK(request.error().text.find("--help") != std::string::npos);
  }
}

TEST_CASE("the error for an unknown command suggests the nearest command") {
  const auto said = [](const char* word) {
    const auto request = parse({word});
    REQUIRE(!request);
    return request.error().text.substr(0, request.error().text.find('\n'));
  };
  CHECK(said("stat") == "gradmonctl: unknown command \"stat\" (did you mean \"status\"?)");
  CHECK(said("hsitory") == "gradmonctl: unknown command \"hsitory\" (did you mean \"history\"?)");
  CHECK(said("of") == "gradmonctl: unknown command \"of\" (did you mean \"off\"?)");
  CHECK(said("frobnicate") == "gradmonctl: unknown command \"frobnicate\"");
}

TEST_CASE("the name of a command is an ordinary argument of another command") {
  CHECK(parsed<GetRequest>({"get", "targets"}).key == "targets");
  CHECK(parsed<GetRequest>({"get", "on"}).key == "on");
}

TEST_CASE("the version is printed") {
  const auto version = parse({"--version"});
  REQUIRE(!version);
  CHECK(version.error().code == 0);
  CHECK(version.error().text.find("gradmonctl ") == 0);
  CHECK(version.error().text.back() == '\n');
}

TEST_CASE("on sets only the options that are given") {
  const auto bare = parsed<ChangeRequest>({"on"});
  CHECK(bare.command.verb == CommandVerb::on);
  CHECK(!bare.command.at);
  CHECK(!bare.command.collect_times);
  CHECK(!bare.command.step_interval);
  CHECK(!bare.wait);
  CHECK(bare.timeout_seconds == 60);
  const auto full =
      parsed<ChangeRequest>({"on", "--at", "1200", "--collect-times", "0", "--step-interval=3", "--wait",
                             "--timeout", "5", "--endpoint", "ipc:///x", "--output-dir", "/out"});
  CHECK(full.command.at == 1200);
  CHECK(full.command.collect_times == 0);
  CHECK(full.command.step_interval == 3);
  CHECK(full.wait);
  CHECK(full.timeout_seconds == 5);
  CHECK(full.selector.endpoint == "ipc:///x");
  CHECK(full.selector.output_dir == "/out");
}

TEST_CASE("set takes any number of keys before and after options") {
  const auto request = parsed<ChangeRequest>({"set", "a=1", "--wait", "/b/c=x", "d=[1,2]"});
  CHECK(request.command.verb == CommandVerb::set);
  CHECK(request.wait);
  CHECK(request.command.edits ==
        std::vector<std::pair<std::string, std::string>>{{"a", "1"}, {"/b/c", "\"x\""}, {"d", "[1,2]"}});
}

TEST_CASE("the other commands are parsed into their requests") {
  CHECK(parsed<ChangeRequest>({"off"}).command.verb == CommandVerb::off);
  CHECK(parsed<ShowRequest>({"status", "--watch", "--json"}).watch);
  CHECK(parsed<ShowRequest>({"status", "--json"}).json);
  CHECK(parsed<ShowRequest>({"history", "--json"}).json);
  CHECK(parsed<ShowRequest>({"jobs", "--json"}).json);
  CHECK(parsed<OneShotRequest>({"cancel"}).verb == CommandVerb::cancel);
  CHECK(!parsed<OneShotRequest>({"cancel"}).rank);
  CHECK(parsed<OneShotRequest>({"evict", "0"}).verb == CommandVerb::evict);
  CHECK(parsed<OneShotRequest>({"evict", "0", "--job", "x"}).rank == 0);
  CHECK(parsed<OneShotRequest>({"evict", "0", "--job", "x"}).selector.job == "x");
  CHECK(parsed<GetRequest>({"validate", "a.json"}).file == "a.json");
}

TEST_CASE("words after -- belong to the command that run starts") {
  const auto run = parsed<RunRequest>({"run", "-n", "4", "--", "train", "--help", "--", "-n", "2"});
  CHECK(run.ranks == 4);
  CHECK(run.command == std::vector<std::string>{"train", "--help", "--", "-n", "2"});
}

TEST_CASE("every gradmonctl command in README is valid") {
  std::istringstream lines(read_text(GRADMON_README));
  int shown = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("gradmonctl ", 0) != 0) continue;
    CAPTURE(line);
    CHECK(parse_line(line.substr(line.find(' ') + 1)));
    ++shown;
  }
  CHECK(shown >= 8);
}

}  // namespace
}  // namespace gradmon
