// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/zap_handler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "control/log.h"

namespace gradmon {
namespace {

constexpr const char* kEndpoint = "inproc://zeromq.zap.01";
constexpr std::size_t kVersion = 0;
constexpr std::size_t kRequestId = 1;
constexpr std::size_t kAddress = 3;
constexpr std::size_t kMechanism = 5;
constexpr std::size_t kCredentials = 6;
constexpr std::size_t kQuestionParts = 7;
constexpr const char* kZapVersion = "1.0";

using Parts = std::vector<std::string>;

Parts next_question(zmq::socket_t& questions) {
  Parts parts;
  zmq::message_t part;
  while (questions.recv(part, zmq::recv_flags::dontwait)) {
    parts.push_back(part.to_string());
    if (!part.more()) break;
  }
  return parts;
}

}  // namespace

ZapHandler::ZapHandler(zmq::context_t& context, AllowList clients)
    : questions_(context, zmq::socket_type::rep) {
  allow_only(std::move(clients));
  questions_.set(zmq::sockopt::linger, 0);
  questions_.bind(kEndpoint);
}

void ZapHandler::allow(const KeyBytes& key, Client client) {
  clients_.insert_or_assign(key, std::move(client));
}

void ZapHandler::allow_only(AllowList clients) { clients_ = std::move(clients); }

// The name is unsuitable as user id: its line may have another key by now.
const Client* ZapHandler::client(const std::string& user_id) const {
  KeyBytes key{};
  if (user_id.size() != kKeyText || from_z85(user_id, key)) return nullptr;
  const auto listed = clients_.find(key);
  return listed == clients_.end() ? nullptr : &listed->second;
}

std::string ZapHandler::refusals() const {
  if (refused_ == 0) return "";
  return std::to_string(refused_) + (refused_ == 1 ? " connection" : " connections") +
         " refused: key not in clients.allow; last: " + last_refused_;
}

void ZapHandler::answer() {
  for (Parts asked = next_question(questions_); !asked.empty(); asked = next_question(questions_)) {
    const Client* client = nullptr;
    std::string who = asked.size() > kAddress ? asked[kAddress] : "?";
    std::string user_id;
    if (asked.size() == kQuestionParts && asked[kVersion] == kZapVersion && asked[kMechanism] == "CURVE") {
      KeyBytes key{};
      const std::string& given = asked[kCredentials];
      const auto listed = given.size() == key.size()
                              ? (std::copy(given.begin(), given.end(), key.begin()), clients_.find(key))
                              : clients_.end();
      if (listed != clients_.end()) client = &listed->second;
      user_id = to_z85(key);
      who = user_id + " at " + who;
    }
    const Parts answer = {kZapVersion,
                          asked.size() > kRequestId ? asked[kRequestId] : "",
                          client != nullptr ? "200" : "400",
                          client != nullptr ? "OK" : "not listed",
                          client != nullptr ? user_id : "",
                          ""};
    if (client == nullptr) {
      refused_ += 1;
      last_refused_ = std::move(who);
      log_debug("refused a client: " + last_refused_);
    }
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const auto flags = zmq::send_flags::dontwait;
      questions_.send(zmq::buffer(answer[i]),
                      i + 1 < answer.size() ? flags | zmq::send_flags::sndmore : flags);
    }
  }
}

}  // namespace gradmon
