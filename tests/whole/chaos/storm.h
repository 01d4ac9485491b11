// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/whole/chaos/evidence.h"
#include "tests/whole/chaos/mortal_job.h"

namespace gradmon {

// Changes what a MortalJob collects again and again, and disturbs it meanwhile:
// ranks and hubs that are stopped and killed, rank 0 too. A seed is one order of
// events; when exactly they come is the machine's.
class Storm {
 public:
  static constexpr double kMaxWait = 1.5;  // seconds

  // `hosts`: with the world's ranks evenly on them.
  Storm(int world, unsigned seed, int hosts = 1);

  // One change under one disturbance. False: it was not decided and put in
  // force by all within three minutes; what() tells.
  bool switch_once();
  // Calm, and one last plan that runs to its end. False: likewise.
  bool come_to_rest();

  // Of all launches; once it has come to rest.
  Evidence evidence();
  // What has been done so far, for a failing test.
  std::string what() const;
  const MortalJob& job() const { return job_; }

 private:
  enum class ErrorSource {
    none,
    freeze,
    freeze_two,
    freeze_hub,
    kill,
    kill_hub,
    kill_hub_twice,
    kill_rank0_and_hub,
    restart,
    cut_link,   // several hosts only, from here on
    full_disk,  // of a host's hub
    hung_config,
  };

  void note(const std::string& event);  // aloud where GRADMON_STORM_ALOUD is set
  ErrorSource choose();
  ErrorSource choose_among_hosts();
  bool begin(ErrorSource trouble);
  bool end(ErrorSource trouble);
  bool end_on_host(ErrorSource trouble, int longer);
  void change();
  void ask_until_taken(Command command);
  std::string config(bool on, std::int64_t times);
  bool catch_up(int rank);
  bool come_back();
  bool come_back_as(int rank);
  bool restart_job();
  Revision newest_revision();
  bool settled();
  bool wait_until_settled();
  void hold();
  MortalJob::Start launch() const;
  int any_rank(int least) { return pick(least, job_.world() - 1); }
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  std::mt19937 random_;
  MortalJob job_;
  const std::int64_t pace_since_;
  int launches_ = 1;
  std::int64_t first_step_ = 0;
  int changes_ = 0;
  int victim_ = 0;
  int host_ = 0;  // whose hub, link or disk is meant
  Revision before_;  // the newest before the change at hand
  std::vector<std::string> events_;
};

}  // namespace gradmon
