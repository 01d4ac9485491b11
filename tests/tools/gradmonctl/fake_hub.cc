// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/gradmonctl/fake_hub.h"

#include <poll.h>

#include <stdexcept>

#include "control/host/job_directory.h"
#include "control/wire/messages.h"

namespace gradmon {

FakeHub::FakeHub(const std::filesystem::path& runtime_dir, Status status, std::string refusal)
    : status_(std::move(status)), refusal_(std::move(refusal)) {
  const auto lookup = [&](const char* name) {
    return std::string(name) == "XDG_RUNTIME_DIR" ? std::optional(runtime_dir.string()) : std::nullopt;
  };
  const JobBases bases = job_bases(lookup);
  if (bases.preferred() != runtime_dir / "gradmon")
    throw std::runtime_error(runtime_dir.string() + ": its path is too long for a hub; set TMPDIR");
  const auto directory = make_job_directory(status_.launch_id, bases);
  if (!directory) throw std::runtime_error(directory.error());
  socket_ = directory->socket();
  auto server = StreamServer::listen(socket_, {});
  if (!server) throw std::runtime_error(server.error());
  server_ = std::move(*server);
  thread_ = std::thread([this] { serve(); });
}

FakeHub::~FakeHub() {
  stopping_ = true;
  thread_.join();
}

std::string FakeHub::endpoint() const { return "ipc://" + socket_.string(); }

std::vector<Command> FakeHub::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void FakeHub::serve() {
  std::vector<pollfd> polled;
  while (!stopping_) {
    polled.clear();
    server_->add_to(polled);
    poll(polled.data(), polled.size(), 10);
    server_->handle(polled, {[this](Peer peer, std::string&& bytes) { answer(peer, bytes); },
                             [](Peer, StreamServer::Closed, const std::string&) {}});
  }
}

void FakeHub::answer(Peer peer, const std::string& bytes) {
  auto frame = decode_frame(bytes);
  const auto* command = frame ? std::get_if<Command>(&*frame) : nullptr;
  if (command == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(*command);
  }
  CommandReply reply;
  reply.status = status_;
  reply.settled = reply.applied_by_all = true;
  if (command->verb == CommandVerb::cancel) reply.message = "the pending change is withdrawn";
  if (command->verb == CommandVerb::evict)
    reply.message = "rank " + std::to_string(command->rank.value_or(-1)) + " will be dropped in 15 s";
  if (!refusal_.empty()) {
    reply = {};
    reply.outcome = CommandOutcome::failed;
    reply.message = refusal_;
  }
  static_cast<void>(server_->send(peer, encode(Frame(AddressedReply{command->request_id, reply}))));
}

}  // namespace gradmon
