// SPDX-License-Identifier: Apache-2.0
// Real hubs in processes of their own, and what a rank or a client of one says by hand.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/host/frame_stream.h"
#include "control/host/job_directory.h"
#include "control/wire/messages.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A place for jobs, with one job's directory in it, and its output beside.
struct JobPlace {
  explicit JobPlace(std::string launch = "launch");

  const TemporaryDirectory scratch;
  const std::string launch;
  JobBases bases;
  JobDirectory directory;

  std::filesystem::path output() const { return scratch / "out"; }
  std::filesystem::path config() const { return scratch / "config.json"; }
  std::string endpoint() const { return "ipc://" + directory.socket().string(); }
  // What lies in the job's directory, in the order of the names.
  std::vector<std::string> files() const;
};

// Hub::open() and run() in a child process. Ends with this object.
class HubProcess {
 public:
  enum class Opened { runs, taken, cannot };

  explicit HubProcess(const JobPlace& place);
  ~HubProcess();
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;

  Opened opened() const { return opened_; }
  void kill(int signal) const;
  // Whether the process has ended, by itself or not, within this time.
  bool ended_within(std::chrono::milliseconds at_most);

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  Opened opened_ = Opened::cannot;
};

// One end of a stream to a hub.
class HubPeer {
 public:
  explicit HubPeer(const JobPlace& place);

  void send(const Frame& frame);
  void send_bytes(std::string_view bytes);
  // The next frame of this kind that `wanted` takes; others are passed over. None
  // within ten seconds, or where the hub has closed.
  template <class Kind>
  std::optional<Kind> next(const std::function<bool(const Kind&)>& wanted = nullptr) {
    std::optional<Kind> found;
    wait([&](const Frame& frame) {
      const auto* kind = std::get_if<Kind>(&frame);
      if (kind == nullptr || (wanted && !wanted(*kind))) return false;
      found = *kind;
      return true;
    });
    return found;
  }
  // The next message of this kind in a bundle; its address is kept, as a rank does.
  template <class Kind>
  std::optional<Kind> hear() {
    std::optional<Kind> found;
    wait([&](const Frame& frame) {
      const auto* bundles = std::get_if<Bundles>(&frame);
      if (bundles == nullptr) return false;
      for (const Bundle& bundle : *bundles) {
        if (const auto* kind = std::get_if<Kind>(&bundle.message); kind && !found) {
          found = *kind;
          epoch = bundle.epoch;
          if (!bundle.to.empty()) incarnation = bundle.to.front().second;
        }
      }
      return found.has_value();
    });
    return found;
  }
  CommandReply ask(CommandVerb verb);
  Status status();
  // Whether the hub closes the connection within five seconds.
  bool is_closed();
  bool open() const { return open_; }
  void close() { stream_.reset(); }

  // As a rank.
  void introduce(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
  void say(int rank, Message message);
  // Introduction, Hello, and the answer to it.
  Welcome join(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
  Welcome join(const JobPlace& place, const Introduction& said);

  std::string process_id;
  std::string epoch;
  std::uint64_t incarnation = 0;

 private:
  void wait(const std::function<bool(const Frame&)>& done);

  std::unique_ptr<FrameStream> stream_;
  std::vector<Frame> waiting_;  // come, not yet asked for
  bool open_ = true;
};

Introduction introduction_of(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
Hello hello_of(const JobPlace& place, int world, const std::string& process_id);

}  // namespace gradmon
