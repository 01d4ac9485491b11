// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tools/gradmonctl/help_text.h"
#include "tools/gradmonctl/nearest_word.h"
#include "tools/gradmonctl/set_argument.h"

namespace gradmon {
namespace {

// CLI11 2.1 turns a larger number into the largest: that one is refused.
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() - 1;
constexpr int kMostRanks = 1024;
constexpr const char* kExitCodes =
    "gradmonctl COMMAND [OPTIONS]\n"
    "\n"
    "exit codes:\n"
    "  0  done\n"
    "  1  failed, rejected, superseded, or the job runs in static mode\n"
    "  2  usage\n"
    "  4  no answer\n"
    "  5  not allowed\n"
    "  6  invalid config\n"
    "  7  only some ranks, or not in time";

// Every argument of every command, filled in by CLI11.
struct Arguments {
  StatusRequest status;
  WatchRequest watch;
  DoctorRequest doctor;
  ChangeRequest change;
  OrderRequest order;
  JobsRequest jobs;
  HistoryRequest history;
  TargetsRequest targets;
  GetRequest get;
  ValidateRequest validate;
  ImportRequest import;
  SchemaRequest schema;
  KeygenRequest keygen;
  Launch launch;
  std::vector<std::string> edits;
  std::int64_t timeout = 60;
  std::int64_t rank = 0;
};

class Grammar {
 public:
  explicit Grammar(Arguments& arguments) : arguments_(arguments) {
    app_.formatter(std::make_shared<HelpText>());
    app_.footer(kExitCodes);
    app_.set_help_flag("-h,--help", "this help");
    app_.set_version_flag("--version", "gradmonctl " GRADMON_VERSION, "the version");
    app_.require_subcommand(0, 1);  // What comes after one is its argument, whatever it is called.
    add_status();
    add_watch();
    add_jobs();
    add_on();
    add_off();
    add_set();
    add_cancel();
    add_evict();
    add_get();
    add_history();
    add_targets();
    add_validate();
    add_import();
    add_doctor();
    add_schema();
    add_keygen();
    add_run();
  }

  CLI::App& app() { return app_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
    return names;
  }
  const CLI::App* chosen() const {
    const auto commands = app_.get_subcommands();
    return commands.empty() ? nullptr : commands.front();
  }

 private:
  CLI::App* add(const std::string& usage, const std::string& description) {
    CLI::App* command = app_.add_subcommand(usage.substr(0, usage.find(' ')), description);
    command->footer("gradmonctl " + usage);
    return command;
  }

  void add_place(CLI::App* command, JobPlace& place) {
    command
        ->add_option(
            "--endpoint", place.endpoint,
            "the job, as ipc://PATH or tcp://HOST:PORT\n(default: GRADMON_ENDPOINT, else the one live job\n"
            "of that name or with that output directory)")
        ->type_name("ENDPOINT");
    command
        ->add_option("--job", place.job,
                     "the job's name or launch id, as `gradmonctl jobs` lists them\n(default: GRADMON_JOB)")
        ->type_name("NAME");
    command
        ->add_option("--output-dir", place.output_dir,
                     "the job's output directory\n(default: MONITOR_OUTPUT_DIR, else ./monitor_output)")
        ->type_name("DIR");
    command
        ->add_option("--keys", place.keys,
                     "the directory of keys, for a TCP endpoint\n(default: GRADMON_KEYS, else "
                     "~/.config/gradmon/keys if it exists)")
        ->type_name("DIR");
  }

  void add_all(CLI::App* command, bool& all) {
    command->add_flag("--all", all, "in a terminal, too: the whole list, and whole lines");
  }

  CLI::Option* add_wait(CLI::App* command) {
    CLI::Option* wait = command->add_flag("--wait", arguments_.change.wait,
                                          "until every rank has applied it; prints the step");
    command->add_option("--timeout", arguments_.timeout, "give up waiting after so long (60)")
        ->type_name("SECONDS")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{31536000}));
    add_place(command, arguments_.change.place);
    return wait;
  }

  // CLI11 2.4 aborts at a name with a "=": HelpText shows the text instead.
  CLI::Option* add_edits(CLI::App* command, const char* description) {
    return command->add_option("EDIT", arguments_.edits, description)
        ->option_text("KEY=VALUE")
        ->allow_extra_args();
  }

  void add_status() {
    CLI::App* command =
        add("status [--watch] [--all] [--json]", "Show what the job collects, and where each rank is");
    command->add_flag("--watch", arguments_.status.watch, "again every second, until interrupted");
    add_all(command, arguments_.status.all);
    command->add_flag("--json", arguments_.status.json, "one JSON object (with --watch: one a line)");
    add_place(command, arguments_.status.place);
  }

  void add_watch() {
    CLI::App* command = add("watch [--json]", "Follow the job live, until it ends or you press Ctrl-C");
    command->add_flag("--json", arguments_.watch.json, "one JSON object a line for each state");
    add_place(command, arguments_.watch.place);
  }

  void add_doctor() {
    CLI::App* command =
        add("doctor [--json]", "Try what gradmon needs of this host, and ask the job what it can do");
    command->add_flag("--json", arguments_.doctor.json, "one JSON object");
    command
        ->add_option("--config", arguments_.doctor.file,
                     "the config file\n(default: the live job's, else ./monitor_config.json)")
        ->type_name("FILE");
    add_place(command, arguments_.doctor.place);
  }

  void add_on() {
    CLI::App* command = add("on [--at STEP] [--collect-times N] [--step-interval K] [--wait]",
                            "Switch collection on, in every rank at the same step");
    Command& on = arguments_.change.command;
    command->add_option("--at", on.at, "not before this step")
        ->type_name("STEP")
        ->check(CLI::Range(std::int64_t{0}, kMost));
    command->add_option("--collect-times", on.collect_times, "stop after so many collected steps")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{0}, kMost));
    command->add_option("--step-interval", on.step_interval, "collect every so many steps")
        ->type_name("K")
        ->check(CLI::Range(std::int64_t{1}, kMost));
    add_wait(command);
  }

  void add_off() { add_wait(add("off [--wait]", "Switch collection off, in every rank at the same step")); }

  void add_set() {
    CLI::App* command = add("set KEY=VALUE... [--wait | --dry-run]", "Set keys of the job's config file");
    add_edits(command,
              "KEY is a key or a JSON pointer (/alert/dump);\nVALUE is JSON, anything else is taken "
              "as a string");
    ChangeRequest& change = arguments_.change;
    CLI::Option* dry_run = command->add_flag("--dry-run", change.dry_run,
                                             "change nothing: show the lines that would change,\nand what "
                                             "would match on each rank");
    command->add_option("--config", change.file, "with --dry-run: this file's lines; no job is asked")
        ->type_name("FILE")
        ->needs(dry_run);
    add_wait(command)->excludes(dry_run);
  }

  void add_get() {
    CLI::App* command =
        add("get [KEY] [--config FILE]", "Print the config in force, or one value of it, as JSON");
    command->add_option("KEY", arguments_.get.key, "a key or a JSON pointer (/alert/dump)");
    command->add_option("--config", arguments_.get.file, "ask this file instead of a job")->type_name("FILE");
    add_place(command, arguments_.get.place);
  }

  void add_jobs() {
    CLI::App* command = add("jobs [--all] [--json]", "List your jobs on this host");
    add_all(command, arguments_.jobs.all);
    command->add_flag("--json", arguments_.jobs.json, "one JSON object");
  }

  void add_cancel() {
    add_place(add("cancel", "Withdraw the change that is pending"), arguments_.order.place);
  }

  void add_evict() {
    CLI::App* command = add("evict RANK", "Drop a rank: after 15 s no change waits for it any more");
    command->add_option("RANK", arguments_.rank, "the rank's number")
        ->required()
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{std::numeric_limits<std::int32_t>::max()}));
    add_place(command, arguments_.order.place);
  }

  void add_history() {
    CLI::App* command = add("history [--all] [--json]", "Show what became of every change");
    add_all(command, arguments_.history.all);
    command->add_flag("--json", arguments_.history.json, "one JSON object");
    add_place(command, arguments_.history.place);
  }

  void add_targets() {
    CLI::App* command = add("targets [--all] [--json] [--dry-run [KEY=VALUE...] [--config FILE]]",
                            "Show what each rank watches, what matches nothing and what does not fire");
    TargetsRequest& targets = arguments_.targets;
    add_all(command, targets.all);
    command->add_flag("--json", targets.json, "one JSON object");
    CLI::Option* dry_run = command->add_flag("--dry-run", targets.dry_run,
                                             "what would be watched under another config; changes nothing");
    add_edits(command, "with --dry-run: the config with these keys set, as\n`gradmonctl set` sets them")
        ->needs(dry_run);
    command->add_option("--config", targets.file, "with --dry-run: this file instead of the job's config")
        ->type_name("FILE")
        ->needs(dry_run);
    add_place(command, targets.place);
  }

  void add_validate() {
    CLI::App* command = add("validate FILE", "Check a config file, and list all its errors");
    command->add_option("FILE", arguments_.validate.file, "the config file")->required();
  }

  void add_import() {
    CLI::App* command = add("import FILE [--output CONFIG]",
                            "Make a config file of a MindSpore Transformers YAML file's monitoring keys");
    ImportRequest& import = arguments_.import;
    command->add_option("FILE", import.file, "the YAML file")->required();
    command
        ->add_option("--output", import.output,
                     "the config file to make, which must not exist yet\n(default: stdout)")
        ->type_name("CONFIG");
  }

  void add_schema() {
    CLI::App* command = add("schema [--text]", "Print the JSON Schema of the config file, for editors");
    command->add_flag("--text", arguments_.schema.text, "a table of all keys instead, for people");
  }

  void add_keygen() {
    CLI::App* command = add("keygen DIR [--client NAME --role ROLE]",
                            "Make a directory of keys for a job that listens on TCP");
    KeygenRequest& keygen = arguments_.keygen;
    command->add_option("DIR", keygen.directory, "the directory; it must not exist yet, or be empty")
        ->required();
    CLI::Option* client =
        command
            ->add_option("--client", keygen.client, "one more client's key instead, in a DIR that is there")
            ->type_name("NAME");
    command->add_option("--role", keygen.role, "what that client may do: read, or control (commands, too)")
        ->type_name("ROLE")
        ->check(CLI::IsMember({"read", "control"}))
        ->needs(client);
  }

  void add_run() {
    CLI::App* command = add("run -n N -- COMMAND...", "Start a command once for each rank on this host");
    command->add_option("-n", arguments_.launch.ranks, "number of ranks")
        ->type_name("N")
        ->required()
        ->check(CLI::Range(1, kMostRanks));
  }

  Arguments& arguments_;
  CLI::App app_{"Look into a running training job, and steer what it collects.", "gradmonctl"};
};

tl::unexpected<NoRequest> usage_error(const std::string& command, const std::string& text) {
  const std::string program = command.empty() ? "gradmonctl" : "gradmonctl " + command;
  return tl::make_unexpected(NoRequest{2, "gradmonctl: " + text + "\ntry \"" + program + " --help\"\n"});
}

std::string unknown_command(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_word(word, names);
  return "unknown command \"" + word + "\"" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)");
}

using Edits = std::vector<std::pair<std::string, std::string>>;

tl::expected<Edits, NoRequest> edits_of(const std::string& name, const Arguments& arguments) {
  Edits edits;
  for (const std::string& argument : arguments.edits) {
    auto edit = parse_set_argument(argument);
    if (!edit) return usage_error(name, edit.error());
    edits.push_back(std::move(*edit));
  }
  return edits;
}

tl::expected<Request, NoRequest> targets_request(Arguments& arguments) {
  auto edits = edits_of("targets", arguments);
  if (!edits) return tl::make_unexpected(edits.error());
  arguments.targets.edits = std::move(*edits);
  return arguments.targets;
}

tl::expected<Request, NoRequest> change_request(const std::string& name, Arguments& arguments) {
  ChangeRequest& change = arguments.change;
  change.timeout = std::chrono::seconds(arguments.timeout);
  change.command.verb = name == "on" ? CommandVerb::on : name == "off" ? CommandVerb::off : CommandVerb::set;
  auto edits = edits_of(name, arguments);
  if (!edits) return tl::make_unexpected(edits.error());
  if (name == "set" && edits->empty()) return usage_error(name, "KEY=VALUE is required");
  change.command.edits = std::move(*edits);
  return change;
}

tl::expected<Request, NoRequest> keygen_request(const Arguments& arguments) {
  const KeygenRequest& keygen = arguments.keygen;
  if (!keygen.client.empty() && keygen.role.empty())
    return usage_error("keygen", "--client needs --role read or --role control");
  return keygen;
}

OrderRequest order_request(const std::string& name, const Arguments& arguments) {
  OrderRequest order = arguments.order;
  if (name == "cancel") return order;
  order.verb = CommandVerb::evict;
  order.rank = arguments.rank;
  return order;
}

tl::expected<Request, NoRequest> request_of(const std::string& name, Arguments& arguments) {
  if (name == "status") return arguments.status;
  if (name == "watch") return arguments.watch;
  if (name == "jobs") return arguments.jobs;
  if (name == "cancel" || name == "evict") return order_request(name, arguments);
  if (name == "doctor") return arguments.doctor;
  if (name == "history") return arguments.history;
  if (name == "targets") return targets_request(arguments);
  if (name == "get") return arguments.get;
  if (name == "validate") return arguments.validate;
  if (name == "import") return arguments.import;
  if (name == "schema") return arguments.schema;
  if (name == "keygen") return keygen_request(arguments);
  if (name != "run") return change_request(name, arguments);
  if (arguments.launch.command.empty()) return usage_error(name, "no command to run: give it after --");
  return arguments.launch;
}

}  // namespace

tl::expected<Request, NoRequest> parse_command_line(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Arguments arguments;
  if (!words.empty() && words.front() == "run") {
    // What follows "--" is the user's, and none of CLI11's business.
    const auto mark = std::find(words.begin(), words.end(), "--");
    if (mark != words.end()) arguments.launch.command.assign(mark + 1, words.end());
    words.erase(mark, words.end());
  }
  Grammar grammar(arguments);
  if (words.empty()) return tl::make_unexpected(NoRequest{2, grammar.app().help()});
  const std::vector<std::string> names = grammar.names();
  const std::string& first = words.front();
  if (first.rfind('-', 0) != 0 && std::find(names.begin(), names.end(), first) == names.end())
    return usage_error("", unknown_command(first, names));
  const auto command_name = [&grammar] { return grammar.chosen() ? grammar.chosen()->get_name() : ""; };
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end.
    grammar.app().parse(words);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* chosen = grammar.chosen();
    return tl::make_unexpected(NoRequest{0, (chosen ? *chosen : grammar.app()).help()});
  } catch (const CLI::CallForVersion& version) {
    return tl::make_unexpected(NoRequest{0, std::string(version.what()) + "\n"});
  } catch (const CLI::Error& error) {
    return usage_error(command_name(), error.what());
  }
  if (grammar.chosen() == nullptr) return tl::make_unexpected(NoRequest{2, grammar.app().help()});
  return request_of(command_name(), arguments);
}

}  // namespace gradmon
