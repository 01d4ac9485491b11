// SPDX-License-Identifier: Apache-2.0
// Encodes values as protobuf messages, and decodes them; messages.cc numbers their fields. Pure; any thread.
// The decoders accept untrusted bytes: the result is a value or an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/decision_log.h"
#include "control/agree/journal.h"
#include "control/agree/message.h"
#include "control/log.h"
#include "control/aliases.h"
#include "control/wire/command.h"

namespace gradmon {

// A reply, with the request id of its command.
struct AddressedReply {
  std::string request_id;
  CommandReply reply;
};

// A message with its addresses: the sender from a rank, all receivers towards ranks.
struct Bundle {
  std::string epoch;
  Outgoing::To to;
  Message message;
};
using Bundles = std::vector<Bundle>;

Bundle to_bundle(Envelope envelope);
// One envelope per address.
std::vector<Envelope> to_envelopes(Bundle bundle);

// The lead hub's input from rank 0. Constant over the life of rank 0's process.
struct LeadJob {
  std::string config_path;
  bool dynamic = true;
  std::string static_text;  // static mode: the config as read
  std::string torch;
  std::vector<std::string> hooks;
  std::string name;  // for people: GRADMON_JOB, else the script's name
};

// The first message of a rank to its hub.
struct Introduction {
  std::string launch_id;
  Rank rank;
  int world_size = 1;
  std::optional<LeadJob> lead_job;  // set by rank 0 only: it makes the hub the lead
  std::string output_dir;
  std::string endpoint;  // GRADMON_ENDPOINT; "" for none
  std::string keys;      // the key directory; "" for none
  bool insecure_loopback = false;
  std::optional<bool> several_hosts;  // true: the job has ranks on other hosts; none: unknown
  std::string master_addr;            // MASTER_ADDR; "" for none
  bool has_store = false;             // this rank can reach training's store
};

// To a rank: put `own_note` ("" for none) into training's store, for the hubs of other hosts, and report
// their notes. From the rank: these notes, in `other_notes`.
struct StoreNotes {
  std::string own_note;
  std::vector<std::string> other_notes;
};

// A line of the hub's log, for rank 0 to log.
struct HubLogLine {
  LogLevel level = LogLevel::info;
  std::string text;
};

using Frame = std::variant<Bundles, Command, AddressedReply, Status, Introduction, HubLogLine, StoreNotes>;

// The longest frame, in bytes: two configs of 1 MiB, and 64 KiB for the rest.
inline constexpr std::size_t kMaxFrameBytes = 2 * 1024 * 1024 + 64 * 1024;

std::string encode(const Frame& frame);
// Encodes the bundles as one frame, or as several if one would exceed kMaxFrameBytes (Hellos carry whole
// plans). Empty without bundles.
std::vector<std::string> encode_bundles(Bundles bundles);
Result<Frame> decode_frame(std::string_view bytes);

// An entry of the decision log.
std::string encode(const LogEntry& entry);
Result<LogEntry> decode_log_entry(std::string_view bytes);

}  // namespace gradmon
