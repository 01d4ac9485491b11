// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/badinput/scripted_rank.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "control/host/process_identity.h"
#include "control/host/unix_socket.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{20};
constexpr milliseconds kReportEvery{500};

int connected_to(const std::filesystem::path& socket) {
  const auto fd = connect_unix(socket);
  if (!fd) throw std::runtime_error(fd.error());
  return *fd;
}

}  // namespace

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
  send_raw(encode(Frame(Bundles{bundle_of({epoch, rank, incarnation, std::move(message)})})));
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

}  // namespace gradmon
