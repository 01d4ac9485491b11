// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"
#include "tests/chaos/mortal_job.h"

namespace gradmon {

// Changes what a MortalJob collects again and again, and disturbs it meanwhile:
// slow, cut and dropped links, stopped and killed processes, rank 0's too. A
// seed is one order of events; when exactly they come is the machine's.
class Storm {
 public:
  static constexpr double kFenceTimeout = 1.5;  // seconds

  Storm(int world, unsigned seed);

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
  enum class Trouble {
    none,
    slow,
    slow_one,
    drop,
    cut_up,
    cut_down,
    cut_both,
    freeze,
    isolate,
    kill,
    restart,
  };

  void note(const std::string& event);  // aloud where GRADMON_STORM_ALOUD is set
  Trouble choose();
  bool begin(Trouble trouble);
  bool end(Trouble trouble);
  void change();
  std::string config(bool on, std::int64_t times);
  bool catch_up(int rank);
  bool come_back();
  bool restart_job();
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
  std::size_t before_ = 0;  // changes in the history before the newest
  std::vector<std::string> events_;
};

}  // namespace gradmon
