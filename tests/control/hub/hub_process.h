// SPDX-License-Identifier: Apache-2.0
// Real hubs in processes of their own, and peers of them that the test scripts message by message.
#pragma once

#include <sys/types.h>

#include <memory>

#include "control/files/descriptor.h"
#include "control/host/job_directory.h"
#include "control/host/unix_stream.h"
#include "control/wire/messages.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A host's base directories with one job's directory, its output directory and its config file.
struct JobPlace {
  explicit JobPlace(std::string launch = "launch");

  const TemporaryDirectory scratch;
  const std::string launch;
  JobBases bases;
  JobDirectory directory;

  std::filesystem::path output() const { return scratch / "out"; }
  std::filesystem::path config() const { return scratch / "config.json"; }
  std::string endpoint() const { return "ipc://" + directory.socket().string(); }
  // The names of the files in the job's directory, sorted.
  std::vector<std::string> files() const;
};

// Hub::open() and Hub::run() in a child process, which the destructor kills. The child inherits no socket.
class HubProcess {
 public:
  enum class Opened { runs, taken, cannot };

  // Waits until the hub runs or has failed to start.
  explicit HubProcess(const JobPlace& place, const std::filesystem::path& publisher = {});
  // Starts so many hubs before it waits for the first.
  static std::vector<std::unique_ptr<HubProcess>> start_together(const JobPlace& place, int count);
  ~HubProcess();
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;

  Opened opened() const { return opened_; }
  // After SIGSTOP, returns when the process has stopped.
  void kill(int signal) const;
  // The file that this number of the process stands for; empty: none.
  std::filesystem::path open_file(int fd) const;
  // Waits at most so long. Returns whether the process has ended, by itself or by a signal.
  bool ended_within(std::chrono::milliseconds at_most);

 private:
  HubProcess() = default;
  void start(const JobPlace& place, const std::filesystem::path& publisher = {});
  void wait_for_answer();

  pid_t pid_ = -1;
  Descriptor answer_;  // the hub writes its Opened to the other end
  bool ended_ = false;
  Opened opened_ = Opened::cannot;
};

// A stream to a hub, as a rank or a client has it.
class HubPeer {
 public:
  explicit HubPeer(const JobPlace& place);

  void send(const Frame& frame);
  void send_bytes(std::string_view bytes);
  static constexpr std::chrono::milliseconds kAnswerTime{60'000};
  // The next frame of this kind that `wanted` accepts; other frames are dropped. None
  // if it does not come within kAnswerTime or the hub closes the stream.
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
  // The next message of this kind in a bundle. Keeps its epoch and incarnation for say().
  template <class Kind>
  std::optional<Kind> hear(std::chrono::milliseconds at_most = kAnswerTime) {
    std::optional<Kind> found;
    wait(
        [&](const Frame& frame) {
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
        },
        at_most);
    return found;
  }
  CommandReply ask(CommandVerb verb);
  Status status();
  // True if the hub closes the connection within five seconds.
  bool is_closed();
  void close() { stream_.reset(); }

  // Messages of a rank.
  void introduce(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
  void say(int rank, Message message);
  // Uses the epoch and the incarnation of another peer, as a liar does.
  void pose_as(const HubPeer& other);
  // Sends a Progress; true if the hub acknowledges it.
  bool is_heard(int rank);
  // Sends Introduction and Hello, and returns the answer.
  Welcome join(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
  Welcome join(const JobPlace& place, const Introduction& said);

  std::string process_id;
  std::string epoch;
  std::uint64_t incarnation = 0;

 private:
  void wait(const std::function<bool(const Frame&)>& done, std::chrono::milliseconds at_most = kAnswerTime);

  std::unique_ptr<FrameStream> stream_;
  std::vector<Frame> waiting_;  // received, not yet returned
  bool open_ = true;
};

// A hub, all ranks of a job, which have joined it, and a client.
struct HubWithRanks {
  explicit HubWithRanks(int world);
  HubPeer& rank(int rank) { return *ranks.at(static_cast<std::size_t>(rank)); }
  // Waits for so many alerts in the hub's list.
  std::vector<Alert> alerts(std::size_t at_least);

  const JobPlace place;
  HubProcess hub{place};
  std::vector<std::unique_ptr<HubPeer>> ranks;
  HubPeer client{place};
  Welcome welcome;  // of the last rank
};

Introduction introduction_of(const JobPlace& place, int rank, int world, const std::string& endpoint = "");
Hello hello_of(const JobPlace& place, int world, const std::string& process_id);

}  // namespace gradmon
