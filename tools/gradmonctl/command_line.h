// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "control/wire/command.h"
#include "tools/gradmonctl/launcher.h"

namespace gradmon {

// Where to look for the job; what is "" was not given.
struct JobPlace {
  std::string endpoint;
  std::string output_dir;
  std::string keys = {};  // a directory
  std::string job = {};   // its name or launch id
};

struct StatusRequest {
  JobPlace place;
  bool watch = false;
  bool json = false;
  bool all = false;  // in a terminal, too: every rank, and whole lines
};

struct WatchRequest {
  JobPlace place;
  bool json = false;
};

// on, off and set. `command` has neither request id nor author yet.
struct ChangeRequest {
  JobPlace place;
  Command command;
  bool wait = false;
  bool dry_run = false;  // set only
  std::string file;      // set as a dry run: edit this file's text, and ask no job; "" otherwise
  std::chrono::seconds timeout{60};
};

// Live; or as a dry run, of the job's config with `edits`, or of `file` with them.
struct TargetsRequest {
  JobPlace place;
  bool json = false;
  bool dry_run = false;
  std::vector<std::pair<std::string, std::string>> edits;
  std::string file;
  bool all = false;  // as in StatusRequest
};

// cancel and evict.
struct OrderRequest {
  JobPlace place;
  CommandVerb verb = CommandVerb::cancel;
  std::optional<std::int64_t> rank = {};  // evict
};

// All jobs of this user on this host.
struct JobsRequest {
  bool json = false;
  bool all = false;  // as in StatusRequest
};

struct HistoryRequest {
  JobPlace place;
  bool json = false;
  bool all = false;  // as in StatusRequest
};

struct ValidateRequest {
  std::string file;
};

struct GetRequest {
  JobPlace place;
  std::string key;   // "": the whole config
  std::string file;  // "": ask the job
};

// A directory of keys; or one more client, where `client` is not "".
struct KeygenRequest {
  std::string directory;
  std::string client;
  std::string role;  // "read" or "control"
};

struct DoctorRequest {
  JobPlace place;
  std::string file;  // the config file; "": that of the live job, else ./monitor_config.json
  bool json = false;
};

// Of a file of MindSpore Transformers.
struct ImportRequest {
  std::string file;
  std::string output;  // "": stdout
};

struct SchemaRequest {
  bool text = false;  // a table for people
};

using Request =
    std::variant<StatusRequest, WatchRequest, JobsRequest, DoctorRequest, ChangeRequest, OrderRequest,
                 HistoryRequest, TargetsRequest, GetRequest, ValidateRequest, ImportRequest, SchemaRequest,
                 KeygenRequest, Launch>;

// Why there is nothing to do: help that was asked for (code 0, for stdout), or
// a usage error (code 2, for stderr).
struct NoRequest {
  int code = 2;
  std::string text;
};

// The one reader of the command line. Throws nothing.
tl::expected<Request, NoRequest> parse_command_line(int argc, const char* const* argv);

}  // namespace gradmon
