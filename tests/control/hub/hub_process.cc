// SPDX-License-Identifier: Apache-2.0
#include "tests/control/hub/hub_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/hub/hub.h"
#include "control/log.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

JobBases bases_in(const std::filesystem::path& runtime) { return {runtime / "gradmon", runtime / "shared"}; }

// Runs a hub. First writes to `result_pipe` whether it runs ('r'), is taken ('t') or cannot start ('c').
// An exception must not return to the child's copy of the test.
[[noreturn]] void run_hub(const JobPlace& place, const std::filesystem::path& publisher,
                          int result_pipe) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  // While this hub lives, an inherited socket of the test would stay open after the test has closed it. Its
  // number stays taken: ThreadSanitizer has two pipes to its symbolizer, and closes their numbers when it
  // finds them broken, even if they then belong to another file of this hub.
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDERR_FILENO + 1; fd < 4096; ++fd)
    if (fd != result_pipe && fd != nothing && ::fcntl(fd, F_GETFD) >= 0) ::dup3(nothing, fd, O_CLOEXEC);
  set_log_sink([](LogLevel, std::string_view) {});
  auto hub = Hub::open(place.directory, place.launch, publisher);
  const bool taken = !hub && hub.error().kind == HubLock::Failure::Kind::taken;
  const char said = hub ? 'r' : taken ? 't' : 'c';
  if (::write(result_pipe, &said, 1) != 1 || !hub) ::_exit(1);
  ::close(result_pipe);
  (*hub)->run();
  hub->reset();
  ::_exit(0);
}

}  // namespace

JobPlace::JobPlace(std::string id) : launch(std::move(id)), bases(bases_in(scratch.path())) {
  auto made = make_job_directory(launch, bases);
  if (!made) throw std::runtime_error(made.error());
  directory = *made;
  std::filesystem::create_directory(output());
  write_text(config(), R"({"dynamic_on": false})");
}

std::vector<std::string> JobPlace::files() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory.path, error))
    names.push_back(file.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

HubProcess::HubProcess(const JobPlace& place, const std::filesystem::path& publisher) {
  start(place, publisher);
  wait_for_answer();
}

std::vector<std::unique_ptr<HubProcess>> HubProcess::start_together(const JobPlace& place, int count) {
  std::vector<std::unique_ptr<HubProcess>> hubs;
  for (int i = 0; i < count; ++i) {
    hubs.emplace_back(new HubProcess());
    hubs.back()->start(place);
  }
  for (const auto& hub : hubs) hub->wait_for_answer();
  return hubs;
}

void HubProcess::start(const JobPlace& place, const std::filesystem::path& publisher) {
  auto pipe = make_pipe(0);
  if (!pipe) throw std::runtime_error("no pipe");
  answer_ = std::move(pipe->from);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) run_hub(place, publisher, pipe->to.get());
}

void HubProcess::wait_for_answer() {
  char said = 'c';
  if (::read(answer_.get(), &said, 1) == 1) {
    opened_ = said == 'r' ? Opened::runs : said == 't' ? Opened::taken : Opened::cannot;
  }
  answer_.reset();
}

HubProcess::~HubProcess() {
  if (pid_ < 0 || ended_) return;  // kill(-1) would reach every process of this user
  kill(SIGKILL);
  ended_within(std::chrono::seconds(10));
}

void HubProcess::kill(int signal) const {
  ::kill(pid_, signal);
  siginfo_t stopped{};
  // WNOWAIT: ended_within() still finds a process that ends instead.
  if (signal == SIGSTOP) ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::filesystem::path HubProcess::open_file(int fd) const {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid_) + "/fd/" + std::to_string(fd), error);
}

bool HubProcess::ended_within(milliseconds at_most) {
  return ended_ = ended_ || eventually([&] { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; }, at_most);
}

HubPeer::HubPeer(const JobPlace& place) : process_id(random_hex(16)) {
  auto fd = connect_unix(place.directory.socket());
  if (!fd) throw std::runtime_error(fd.error());
  stream_ = std::make_unique<FrameStream>(*fd, FrameStream::Limits{kMaxFrameBytes, std::size_t{16} << 20U});
}

void HubPeer::send(const Frame& frame) { send_bytes(encode(frame)); }

void HubPeer::send_bytes(std::string_view bytes) {
  if (!stream_ || !stream_->send(bytes)) open_ = false;
}

void HubPeer::wait(const std::function<bool(const Frame&)>& done, std::chrono::milliseconds at_most) {
  const auto end = Clock::now() + at_most;
  for (;;) {
    for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
      if (!done(*at)) continue;
      waiting_.erase(waiting_.begin(), at + 1);
      return;
    }
    waiting_.clear();
    if (!stream_ || Clock::now() >= end) return;
    pollfd polled{stream_->fd(), static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0)), 0};
    ::poll(&polled, 1, 100);
    stream_->flush();
    const auto read = stream_->read([&](std::string&& bytes) {
      if (auto frame = decode_frame(bytes)) waiting_.push_back(std::move(*frame));
    });
    if (read.state != FrameStream::Read::State::open) {
      open_ = false;
      stream_.reset();
    }
  }
}

CommandReply HubPeer::ask(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(8);
  send(command);
  const auto answer = next<AddressedReply>(
      [&](const AddressedReply& reply) { return reply.request_id == command.request_id; });
  if (!answer) throw std::runtime_error("no answer from the hub");
  return answer->reply;
}

Status HubPeer::status() { return ask(CommandVerb::status).status.value_or(Status{}); }

bool HubPeer::is_closed() {
  return eventually([&] {
    if (stream_) {
      const auto read = stream_->read([](std::string&&) {});
      if (read.state != FrameStream::Read::State::open) stream_.reset();
    }
    return stream_ == nullptr;
  });
}

Introduction introduction_of(const JobPlace& place, int rank, int world, const std::string& endpoint) {
  Introduction said;
  said.launch_id = place.launch;
  said.rank = Rank{rank};
  said.world_size = world;
  said.output_dir = place.output().string();
  said.endpoint = endpoint;
  said.insecure_loopback = true;
  if (rank == 0) said.lead_job = LeadJob{place.config().string(), true, "", "2.5", {"grad_reduced"}, "name"};
  return said;
}

void HubPeer::introduce(const JobPlace& place, int rank, int world, const std::string& endpoint) {
  send(introduction_of(place, rank, world, endpoint));
}

void HubPeer::say(int rank, Message message) {
  send(Bundles{{epoch, {{rank, incarnation}}, std::move(message)}});
}

void HubPeer::pose_as(const HubPeer& other) {
  epoch = other.epoch;
  incarnation = other.incarnation;
}

bool HubPeer::is_heard(int rank) {
  say(rank, Progress{});
  return hear<ProgressAck>().has_value();
}

HubWithRanks::HubWithRanks(int world) {
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::make_unique<HubPeer>(place));
    welcome = ranks.back()->join(place, rank, world);
    if (!welcome.refused.empty()) throw std::runtime_error(welcome.refused);
  }
}

std::vector<Alert> HubWithRanks::alerts(std::size_t at_least) {
  std::vector<Alert> alerts;
  const bool listed = eventually([&] {
    alerts = client.ask(CommandVerb::alerts).alerts;
    return alerts.size() >= at_least;
  });
  if (!listed) throw std::runtime_error("the hub lists only " + std::to_string(alerts.size()) + " alerts");
  return alerts;
}

Welcome HubPeer::join(const JobPlace& place, int rank, int world, const std::string& endpoint) {
  return join(place, introduction_of(place, rank, world, endpoint));
}

Welcome HubPeer::join(const JobPlace& place, const Introduction& said) {
  const int rank = said.rank.value;
  send(said);
  // Repeats Hello, as a rank does, because a relay may not have found the lead hub yet.
  for (int tries = 0; tries < 200; ++tries) {
    send(Bundles{{"", {{rank, 0}}, hello_of(place, said.world_size, process_id)}});
    if (auto welcome = hear<Welcome>(std::chrono::seconds(1))) return *welcome;
    if (!open_) break;
  }
  throw std::runtime_error("no welcome");
}

Hello hello_of(const JobPlace& place, int world, const std::string& process_id) {
  Hello hello;
  hello.launch_id = place.launch;
  hello.world_size = world;
  hello.host = host_name();
  hello.pid = ::getpid();
  hello.process_id = process_id;
  hello.number = 1;
  return hello;
}

}  // namespace gradmon
