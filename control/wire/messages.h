// SPDX-License-Identifier: Apache-2.0
// Between values and the bytes of wire.proto. Pure; any thread. Bytes from
// strangers go in here: whatever they are, the result is a value or an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/decision_log.h"
#include "control/agree/journal.h"
#include "control/agree/message.h"
#include "control/log.h"
#include "control/wire/command.h"

namespace gradmon {

// A command's answer, with the id of the command it answers.
struct AddressedReply {
  std::string request_id;
  CommandReply reply;
};

// A message with its addresses: upwards the sender's, downwards those of all who
// are to hear it.
struct Bundle {
  std::string epoch;
  Outgoing::To to;
  Message message;
};
using Bundles = std::vector<Bundle>;

Bundle bundle_of(Envelope envelope);
// One for each address.
std::vector<Envelope> envelopes_of(Bundle bundle);

// What the lead hub needs of rank 0; constant over a process's life.
struct LeadJob {
  std::string config_path;
  bool dynamic = true;
  std::string static_text;  // static mode: the config as it was read
  std::string torch;
  std::vector<std::string> hooks;
  std::string name;  // for people: GRADMON_JOB or the script's
};

// The first that a rank says to its hub.
struct Introduction {
  std::string launch_id;
  Rank rank;
  int world_size = 1;
  std::optional<LeadJob> lead;  // of rank 0 alone: it makes this hub the lead
  std::string output_dir;
  std::string endpoint;  // GRADMON_ENDPOINT; "" for none
  std::string keys;      // the key directory; "" for none
  bool insecure_loopback = false;
  std::optional<bool> several_hosts;  // whether the job has ranks on other hosts; none: not known
  std::string master;                 // MASTER_ADDR; "" for none
  bool store = false;                 // this rank can ask training's store
};

// To a rank: leave `own` ("": nothing) in training's store for the hubs of other hosts,
// and say what they have left. From it: what they have.
struct StoreNotes {
  std::string own;
  std::vector<std::string> others;
};

// A line of the hub's log that rank 0 is to tell people.
struct HubLogLine {
  LogLevel level = LogLevel::info;
  std::string text;
};

using Frame = std::variant<Bundles, Command, AddressedReply, Status, Introduction, HubLogLine, StoreNotes>;

inline constexpr std::size_t kMostBytesUp = 64 * 1024;  // of a rank or a client, but for config texts
// Towards ranks and gradmonctl: two configs of 1 MiB, and what is said of them.
inline constexpr std::size_t kMostBytesDown = 2 * 1024 * 1024 + 64 * 1024;

std::string encode(const Frame& frame);
// In several where one would be longer than kMostBytesDown: Hellos with the plan they
// hold are long. None for no bundles.
std::vector<std::string> frames_of(Bundles bundles);
tl::expected<Frame, std::string> decode_frame(std::string_view bytes);

// An entry of the decision log.
std::string encode(const LogEntry& entry);
tl::expected<LogEntry, std::string> decode_log_entry(std::string_view bytes);

}  // namespace gradmon
