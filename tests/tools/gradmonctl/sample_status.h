// SPDX-License-Identifier: Apache-2.0
// The job of the golden files: four ranks that collect.
#pragma once

#include "control/agree/journal.h"

namespace gradmon {

inline constexpr WallTime kSampleTime = 1'783'341'296'789;  // 2026-07-06 12:34:56.789 UTC

inline RankStatus sample_rank(int number) {
  RankStatus rank;
  rank.rank = Rank{number};
  rank.host = number < 2 ? "node-a" : "node-b";
  rank.pid = 4711 + number;
  rank.step = 1204 + number % 2;
  rank.revision = Revision{7};
  rank.applied_step = 1200;
  rank.state = "collecting";
  rank.step_ms = 12.25 + number;
  rank.last_seen_ms = 120 + 800 * number;
  rank.accepted = Revision{7};
  rank.last_stepped_ms = 12;
  rank.records = 420;
  rank.overhead = {Revision{7}, 40, 0.005 * (number + 1), 16};
  rank.targets = {24, 0, 0};
  return rank;
}

inline Status sample_status() {
  Status status;
  status.epoch = "0123456789abcdef0123456789abcdef";
  status.state = "on";
  status.revision = Revision{7};
  status.effective_step = 1200;
  status.collected = 2;
  status.collect_times = 5;
  status.step_interval = 2;
  status.torch = "1.13.1";
  status.hooks = {"grad_unreduced", "grad_reduced"};
  status.launch_id = "launch-1";
  status.name = "train.py";
  status.started = kSampleTime;
  status.output_dir = "/home/me/monitor_output";
  status.alerts_endpoint = "ipc:///run/user/1000/gradmon/launch-1/pub.sock";
  status.config_path = "/home/me/monitor_config.json";
  status.config_sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  for (int number = 0; number < 4; ++number) status.ranks.push_back(sample_rank(number));
  return status;
}

// The same job with troubles of all kinds; two more ranks were dropped or have ended.
inline Status troubled_status() {
  Status status = sample_status();
  status.state = "off";
  status.reason = "rejected by rank 17: no target matches";
  status.pending = Pending{Revision{8}, "waiting for the answer of rank 2", kSampleTime};
  status.warnings = {
      "monitor_config.json:7:3: unknown key \"step_intervall\" (did you mean \"step_interval\"?)"};
  status.last_error = LastError{kSampleTime, "cannot write the config file: Read-only file system", 3};
  status.replicas_compared =
      ReplicasCompared{1, 3, 1202, 18, 6, 1, {"ranks 2, 3: no values of replicas so far\x1b"}};
  status.ranks[1].state = "waiting";
  status.ranks[1].waited_ms = 1'500;
  status.ranks[1].last_stepped_ms = 90'000;
  status.ranks[1].dropped = 12;
  status.ranks[1].targets = {24, 3, 1};
  status.ranks[1].alerts = 20;
  status.ranks[1].listed_alerts = 16;
  status.ranks[1].flight_written = 1'200;
  status.ranks[1].flight_lost = 30;
  status.ranks[2].host = "evil\x1b[31m\nhost";
  status.ranks[2].error = "disk full: /scratch\x07";
  status.ranks[2].revision = status.ranks[2].accepted = Revision{6};
  status.ranks[2].last_seen_ms = 8'000;
  status.ranks[3] = RankStatus{};
  status.ranks[3].rank = Rank{3};
  status.ranks.push_back(sample_rank(4));
  status.ranks[4].state = "dropped";
  status.ranks[4].last_seen_ms = 61'000;
  status.ranks[4].error = "silent, last heard 15 s earlier";
  status.ranks.push_back(sample_rank(5));
  status.ranks[5].state = "left";
  return status;
}

inline std::vector<HistoryEntry> sample_history() {
  std::vector<HistoryEntry> history(6);
  history[0].revision = Revision{1};
  history[0].cause = "start";
  history[0].by = "/home/me/monitor_config.json";
  history[0].verdict = "commit";
  history[0].on = true;
  history[0].proposed_at = kSampleTime;
  history[0].effective_step = 1;
  history[0].applied = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  history[0].finished_step = 5;
  history[1].revision = Revision{2};
  history[1].cause = "ctl";
  history[1].by = "me@node-a pid 123";
  history[1].verdict = "abort";
  history[1].reason = "rejected by rank 3: no target matches";
  history[1].on = true;
  history[1].proposed_at = kSampleTime + 60'000;
  history[2].cause = "file";
  history[2].by = "/home/me/monitor_config.json";
  history[2].verdict = "superseded";
  history[2].reason = "superseded by a newer change (me@node-a pid 124)";
  history[2].proposed_at = kSampleTime + 61'000;
  history[3].revision = Revision{3};
  history[3].cause = "resync";
  history[3].verdict = "commit";
  history[3].proposed_at = kSampleTime + 62'000;
  history[3].effective_step = 1200;
  history[3].applied = {{0, 1200}, {1, 1203}};
  history[4].revision = Revision{4};
  history[4].cause = "ctl";
  history[4].by = "me@evil\nhost pid 125";
  history[4].on = true;
  history[4].proposed_at = kSampleTime + 63'000;
  history[5].cause = "ctl";
  history[5].by = "me@node-a pid 126";
  history[5].verdict = "refused";
  history[5].reason =
      "set ops=[\"std\"]: refused: unknown op \"std\", expected min, max, mean, norm, nans, zeros, absmax; "
      "--force sets it all the same";
  history[5].proposed_at = kSampleTime + 64'000;
  return history;
}

}  // namespace gradmon
