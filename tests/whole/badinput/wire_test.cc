// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <zmq.hpp>

#include "control/agree/message.h"
#include "control/debian_version.h"
#include "control/files/descriptor.h"
#include "control/host/boot_clock.h"
#include "control/host/child_process.h"
#include "control/host/frame_stream.h"
#include "control/host/job_directory.h"
#include "control/host/unix_socket.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/rendezvous.h"
#include "control/link/agent.h"
#include "control/wire/command.h"
#include "control/wire/messages.h"
#include "tests/support/process_figures.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// A job whose config is off, and whose rank 0 is an Agent in this process, in its first
// step. The agent starts the hub, and logs the lines that the hub sends it.
class OneAgentJob {
 public:
  struct Options {
    int world_size = 1;
    std::int64_t matches = 1;  // targets that match on rank 0, for every plan
    std::string endpoint;      // the hub's on loopback TCP, without keys; "": none
  };

  OneAgentJob() : OneAgentJob(Options{}) {}
  explicit OneAgentJob(const Options& options);
  // Kills the hub, which would otherwise run for another second.
  ~OneAgentJob();
  OneAgentJob(const OneAgentJob&) = delete;
  OneAgentJob& operator=(const OneAgentJob&) = delete;

  // Rank 0 begins this step, as soon as the gate allows it.
  void begin(Step step);

  const std::string& launch_id() const { return options_.launch_id; }
  std::filesystem::path output_dir() const { return options_.output_dir; }
  std::filesystem::path socket() const;  // of the hub
  CommandReply ask(const Command& command) const;
  Status ask() const;
  // Waits for a warning in the status that begins so; empty if none comes.
  std::string warning(const std::string& begins) const;

 private:
  const TemporaryDirectory directory_;
  AgentOptions options_;
  StepGate gate_{Step{0}};
  std::optional<Agent> agent_;
};

EnvironmentLookup with_runtime_directory(const std::string& directory) {
  return [directory](const char* name) {
    if (std::string_view(name) == "XDG_RUNTIME_DIR") return std::optional<std::string>(directory);
    return process_environment(name);
  };
}

OneAgentJob::OneAgentJob(const Options& options) {
  options_.world_size = options.world_size;
  options_.launch_id = random_hex(4);
  options_.output_dir = directory_ / "out";
  options_.lead.config_path = (directory_ / "monitor_config.json").string();
  options_.endpoint = options.endpoint;
  options_.insecure_loopback = true;
  options_.environment = with_runtime_directory(directory_.path().string());
  write_text(options_.lead.config_path, R"({"dynamic_on": false})");
  const std::int64_t matches = options.matches;
  AgentCalls calls{[matches](const Plan&) -> tl::expected<std::int64_t, std::string> { return matches; },
                   [] { return CollectingReport{}; }};
  agent_.emplace(options_, gate_, std::move(calls));
  agent_->start();
  if (!eventually([&] { return agent_->job().has_value(); })) throw std::runtime_error("no hub has answered");
}

OneAgentJob::~OneAgentJob() {
  const pid_t hub = listener_of(socket());
  agent_.reset();
  if (hub > 0) kill(hub, SIGKILL);
}

void OneAgentJob::begin(Step step) {
  if (!gate_.try_begin(step)) gate_.begin_or_wait(step, boot_now, [] { return false; });
}

std::filesystem::path OneAgentJob::socket() const {
  const std::filesystem::path base = job_bases(options_.environment).preferred();
  return JobDirectory{base / job_file_name(options_.launch_id)}.socket();
}

CommandReply OneAgentJob::ask(const Command& command) const {
  CommandClient client("ipc://" + socket().string());
  auto reply = client.ask(command, std::chrono::seconds(20));
  if (!reply) throw std::runtime_error(reply.error());
  return *reply;
}

Status OneAgentJob::ask() const {
  Command status;
  status.request_id = random_hex(8);
  return ask(status).status.value_or(Status{});
}

std::string OneAgentJob::warning(const std::string& begins) const {
  std::string found;
  eventually([&] {
    for (const std::string& line : ask().warnings) {
      if (line.rfind(begins, 0) == 0) found = line;
    }
    return !found.empty();
  });
  return found;
}

// One rank of a two-rank OneAgentJob, whose messages the test chooses; over one Unix
// stream to the job's hub. While it waits it sends Progress, as an agent does: the
// coordinator asks nothing of a rank that was silent for 2.5 s.
class ScriptedRank {
 public:
  // Connects and sends its Introduction.
  ScriptedRank(const OneAgentJob& job, Rank rank);

  // Sends the Hello of an honest rank, with this version, and waits for the answer.
  Welcome send_hello(std::uint32_t version = kProtocolVersion);
  // send_hello() and become a member. Throws if the hub refuses.
  void join();
  void send(Message message) { send_as(rank_, std::move(message)); }
  void send_as(Rank rank, Message message);
  void send_raw(const std::string& bytes);
  // Waits for the next message of this kind and skips others. Throws if none comes.
  template <class Kind>
  Kind receive();
  // Waits until the hub has read everything sent so far.
  void wait_until_read();
  // Waits for the hub to close the connection; false if it does not.
  bool wait_for_close();

  std::string epoch;  // of the messages it sends
  std::uint64_t incarnation = 0;

 private:
  void read_for(std::chrono::milliseconds at_most);
  void report();
  Frame next_frame();

  const std::string launch_id_;
  const std::string process_id_;
  const Rank rank_;
  FrameStream stream_;
  bool open_ = true;
  std::deque<Frame> frames_;
  std::uint64_t number_ = 0;
  std::chrono::steady_clock::time_point next_report_;
};

template <class Kind>
Kind ScriptedRank::receive() {
  for (;;) {
    Frame frame = next_frame();
    auto* bundles = std::get_if<Bundles>(&frame);
    if (bundles == nullptr) continue;
    for (Bundle& bundle : *bundles) {
      auto* wanted = std::get_if<Kind>(&bundle.message);
      if (wanted == nullptr) continue;
      epoch = bundle.epoch;
      for (const auto& [rank, membership] : bundle.to) {
        if (rank == rank_.value) incarnation = membership;
      }
      return std::move(*wanted);
    }
  }
}

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{20};
constexpr milliseconds kReportEvery{500};

int connected_to(const std::filesystem::path& socket) {
  const auto fd = connect_unix(socket);
  if (!fd) throw std::runtime_error(fd.error());
  return *fd;
}

ScriptedRank::ScriptedRank(const OneAgentJob& job, Rank rank)
    : launch_id_(job.launch_id()),
      process_id_(random_hex(16)),
      rank_(rank),
      stream_(connected_to(job.socket()), {kMaxFrameBytes, kMaxFrameBytes}) {
  Introduction introduction;
  introduction.launch_id = launch_id_;
  introduction.rank = rank;
  introduction.world_size = 2;
  introduction.output_dir = job.output_dir().string();
  send_raw(encode(Frame(introduction)));
}

Welcome ScriptedRank::send_hello(std::uint32_t version) {
  Hello hello;
  hello.launch_id = launch_id_;
  hello.world_size = 2;
  hello.host = host_name();
  hello.pid = getpid();
  hello.process_id = process_id_;
  hello.version = version;
  hello.number = ++number_;
  epoch.clear();
  incarnation = 0;
  send(hello);
  return receive<Welcome>();
}

void ScriptedRank::join() {
  if (const Welcome welcome = send_hello(); !welcome.refused.empty())
    throw std::runtime_error(welcome.refused);
}

void ScriptedRank::send_as(Rank rank, Message message) {
  send_raw(encode(Frame(Bundles{to_bundle({epoch, rank, incarnation, std::move(message)})})));
}

void ScriptedRank::send_raw(const std::string& bytes) { static_cast<void>(stream_.send(bytes)); }

void ScriptedRank::report() {
  if (incarnation == 0 || Clock::now() < next_report_) return;
  next_report_ = Clock::now() + kReportEvery;
  Progress progress;
  progress.number = ++number_;
  send(progress);
}

void ScriptedRank::read_for(milliseconds at_most) {
  pollfd polled{stream_.fd(), static_cast<short>(POLLIN | (stream_.wants_write() ? POLLOUT : 0)), 0};
  ::poll(&polled, 1, static_cast<int>(at_most.count()));
  stream_.flush();
  const auto read = stream_.read([this](std::string&& bytes) {
    if (auto frame = decode_frame(bytes)) frames_.push_back(std::move(*frame));
  });
  open_ = read.state == FrameStream::Read::State::open;
}

Frame ScriptedRank::next_frame() {
  const auto until = Clock::now() + kTimeout;
  while (frames_.empty() && open_ && Clock::now() < until) {
    report();
    read_for(milliseconds(100));
  }
  if (frames_.empty()) throw std::runtime_error(open_ ? "the hub does not answer" : "the hub has hung up");
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

void ScriptedRank::wait_until_read() {
  Command command;
  command.request_id = random_hex(8);
  send_raw(encode(Frame(command)));
  for (;;) {
    const Frame frame = next_frame();
    const auto* reply = std::get_if<AddressedReply>(&frame);
    if (reply != nullptr && reply->request_id == command.request_id) return;
  }
}

bool ScriptedRank::wait_for_close() {
  const auto until = Clock::now() + kTimeout;
  while (open_ && Clock::now() < until) read_for(milliseconds(100));
  return !open_;
}

// --- Messages to the lead hub from ranks that are wrong or old, and the answer to a plan
// without targets. (Sizes, endpoints and keys: tests/control/hub.)

constexpr Rank kOne{1};

OneAgentJob::Options of_two(std::int64_t matches = 1) { return {2, matches, ""}; }

Command command_of(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(8);
  command.by = "tester";
  return command;
}

Offered answer_to(const Offer& offer, std::int64_t matches = 1) {
  return {offer.revision, offer.plan->config_sha256, matches, ""};
}

Ready ready_for(const Prepare& prepare, std::int64_t fence) {
  return {prepare.revision, prepare.config_sha256, Step{fence}};
}

// Waits for the verdict on a revision: its history entry.
HistoryEntry wait_for_verdict(const OneAgentJob& job, Revision revision) {
  HistoryEntry found;
  REQUIRE(eventually([&] {
    for (const HistoryEntry& entry : job.ask(command_of(CommandVerb::history)).history) {
      if (entry.revision == revision) found = entry;
    }
    return !found.verdict.empty();
  }));
  return found;
}

OneAgentJob::Options on_loopback() { return {1, 1, "tcp://127.0.0.1:*"}; }

std::string address_of(const OneAgentJob& job) {
  std::string address;
  REQUIRE(eventually([&] {
    const auto entry = find_entry(job.output_dir(), job.launch_id());
    address = entry ? entry->address : "";
    return !address.empty();
  }));
  return address;
}

int connected_to_port_of(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

bool send_all(int fd, const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t done = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (done <= 0) return false;
    sent += static_cast<std::size_t>(done);
  }
  return true;
}

// ZMTP 3.0, mechanism NULL: greeting and READY.
std::string handshake_without_keys() {
  std::string greeting(64, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  greeting.replace(12, 4, "NULL");
  const std::string type(
      "\x0bSocket-Type\0\0\0\x06"
      "DEALER",
      22);
  const std::string ready = "\x05READY" + type;
  return greeting + '\x04' + static_cast<char>(ready.size()) + ready;
}

std::string own_name() { return "pid " + std::to_string(getpid()) + " on " + host_name(); }

TEST_CASE("a rank with another protocol version is refused and both versions are named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  const std::string why =
      "rank 1 speaks protocol version 99, this job speaks " + std::to_string(kProtocolVersion);
  CHECK(one.send_hello(99).refused == why);
  job.ask(command_of(CommandVerb::on));
  const auto pending = job.ask().pending;
  REQUIRE(pending);
  CHECK(pending->reason == why);
  ScriptedRank repaired(job, kOne);
  repaired.join();
  CHECK(repaired.receive<Offer>().plan->on);
}

TEST_CASE("a rank number that a running process holds is refused and its holder is named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  ScriptedRank other(job, kOne);
  CHECK(other.send_hello().refused == "rank 1 already belongs to " + own_name());
  ScriptedRank zero(job, Rank{0});
  CHECK(zero.send_hello().refused == "rank 0 already belongs to " + own_name());
  other.send_as(Rank{0}, Left{Step{5}});
  CHECK(other.wait_for_close());
  const auto ranks = job.ask().ranks;
  CHECK(ranks.at(0).state == "idle");
  CHECK(ranks.at(1).state == "idle");
}

TEST_CASE("a process of another launch is disconnected") {
  const OneAgentJob job(of_two());
  const OneAgentJob another(of_two());
  ScriptedRank one(job, kOne);
  Introduction introduction;
  introduction.launch_id = another.launch_id();
  introduction.rank = kOne;
  introduction.world_size = 2;
  one.send_raw(encode(Frame(introduction)));
  CHECK(one.wait_for_close());
  CHECK(job.ask().ranks.at(1).state == "absent");
}

// An honest rank repeats a message if the answer was lost. So a repeated message is no
// error and is not counted, but it must have no effect.
TEST_CASE("messages about an old revision and repeated messages change nothing") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  job.ask(command_of(CommandVerb::on));
  const auto first = one.receive<Offer>();
  one.send(Reject{first.revision, "not I"});
  REQUIRE(wait_for_verdict(job, first.revision).verdict == "abort");

  const Command on = command_of(CommandVerb::on);
  job.ask(on);
  auto second = one.receive<Offer>();
  while (second.revision == first.revision) second = one.receive<Offer>();
  one.send(Reject{first.revision, "not I"});
  one.send(Ready{first.revision, first.plan->config_sha256, Step{7}});
  one.send(answer_to(second));
  const auto prepare = one.receive<Prepare>();
  REQUIRE(prepare.revision == second.revision);
  one.send(ready_for(prepare, 50));
  one.send(ready_for(prepare, 9));
  const HistoryEntry entry = wait_for_verdict(job, second.revision);
  CHECK(entry.verdict == "commit");
  CHECK(entry.effective_step == 50);
  one.send(Reject{second.revision, "too late"});
  one.send(ready_for(prepare, 60));
  one.wait_until_read();
  const std::size_t changes = job.ask(command_of(CommandVerb::history)).history.size();
  CHECK(job.ask(on).message == job.ask(on).message);  // A repeated command is no new command.
  const auto history = job.ask(command_of(CommandVerb::history)).history;
  CHECK(history.size() == changes);
  CHECK(history.back().verdict == "commit");
  CHECK(history.back().effective_step == 50);
}

TEST_CASE("a message of another epoch changes nothing and its sender is named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  const std::string epoch = std::exchange(one.epoch, "0123456789abcdef0123456789abcdef");
  one.send(Left{Step{5}});
  CHECK(job.warning("rank 1 of an earlier launch") ==
        "rank 1 of an earlier launch (epoch 01234567) still runs");
  CHECK(job.ask().ranks.at(1).state == "idle");
  one.epoch = epoch;
  one.incarnation += 1;  // That of a process which has not joined yet.
  one.send(Left{Step{5}});
  one.wait_until_read();
  CHECK(job.ask().ranks.at(1).state == "idle");
}

TEST_CASE("bytes that are no message close the connection and have no other effect") {
  for (const std::string& bytes : {std::string("x"), std::string(60'000, '\xff'), encode(Frame(Status{}))}) {
    const OneAgentJob job(of_two());
    ScriptedRank one(job, kOne);
    one.join();
    one.send_raw(bytes);
    CHECK(one.wait_for_close());
    ScriptedRank again(job, kOne);  // The process may still run: only its connection is gone.
    CHECK(again.send_hello().refused == "rank 1 already belongs to " + own_name());
    CHECK(job.ask().ranks.at(0).state == "idle");
  }
}

TEST_CASE("a message of a thousand frames is dropped and counted") {
  const OneAgentJob job(on_loopback());
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 1000);
  socket.connect(address_of(job));
  for (int message = 0; message < 3; ++message) {
    for (int frame = 1; frame <= 1000; ++frame)
      socket.send(zmq::str_buffer("gradmon"),
                  frame < 1000 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  const std::string dropped = "3 messages from the network dropped";
  CHECK(job.warning(dropped) == dropped + "; the last: a message of several frames");
  CHECK(job.ask().mode == "dynamic");
}

TEST_CASE("a message without end closes the connection and does not fill the hub's memory") {
  const OneAgentJob job(on_loopback());
  const Descriptor fd(connected_to_port_of(address_of(job)));
  const pid_t hub = listener_of(job.socket());
  REQUIRE(send_all(fd.get(), handshake_without_keys()));
  // The hub stops reading, and the kernel may keep unread bytes for a minute: send() must not block.
  const timeval patience{2, 0};
  REQUIRE(setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
  // A frame of 64 KiB, with the flag that more frames follow.
  const std::string frame = std::string("\x03\0\0\0\0\0\1\0\0", 9) + std::string(65'536, 'x');
  std::size_t sent = 0;
  while (sent < (std::size_t{1} << 30U) && send_all(fd.get(), frame)) sent += frame.size();
  CHECK(sent < std::size_t{1} << 28U);
  CHECK(resident_mib(hub) < 128);  // The hub checks only every 50 ms, and a local sender is fast.
  CHECK(listener_of(job.socket()) == hub);
  CHECK(job.ask().mode == "dynamic");
}

TEST_CASE("a plan that matches on no rank is refused and a plan that matches on some ranks is committed") {
  for (const std::int64_t matches_on_one : {0, 3}) {
    OneAgentJob job(of_two(0));
    job.begin(Step{1});  // In the first step models may still be watched.
    ScriptedRank one(job, kOne);
    one.join();
    job.ask(command_of(CommandVerb::on));
    const auto offer = one.receive<Offer>();
    one.send(answer_to(offer, matches_on_one));
    if (matches_on_one > 0) one.send(ready_for(one.receive<Prepare>(), 5));
    const HistoryEntry entry = wait_for_verdict(job, offer.revision);
    CHECK(entry.verdict == (matches_on_one == 0 ? "abort" : "commit"));
    CHECK(entry.reason == (matches_on_one == 0 ? "no target matches on any rank" : ""));
    CHECK(entry.final);
  }
}

}  // namespace
}  // namespace gradmon
