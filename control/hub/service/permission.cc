// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/permission.h"

namespace gradmon {
namespace {

// True for commands that change the job, or make every rank do work.
bool needs_control(CommandVerb verb) {
  return verb == CommandVerb::on || verb == CommandVerb::off || verb == CommandVerb::set ||
         verb == CommandVerb::dry_run || verb == CommandVerb::targets ||
         verb == CommandVerb::dry_run_targets || verb == CommandVerb::cancel || verb == CommandVerb::evict ||
         verb == CommandVerb::unknown;
}

}  // namespace

std::string command_objection(const Bus::Incoming& from, CommandVerb verb) {
  if (from.role == Role::control || !needs_control(verb)) return "";
  return "client \"" + from.client + "\" may read, not command (its role in clients.allow is read)";
}

std::string rank_objection(const Bus::Incoming& from) {
  if (from.role == Role::control) return "";
  return "client \"" + from.client + "\" may read, not be a rank (its role in clients.allow is read)";
}

}  // namespace gradmon
