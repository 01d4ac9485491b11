// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/scalar_board.h"

#include <cmath>
#include <map>

#include "control/debian_version.h"
#include "runtime/scalars/scalar_line.h"
#include "writers/queue/name_table.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Values = std::map<std::string, double>;

// A ScalarBoard with a fake clock.
class Board {
 public:
  explicit Board(std::vector<std::string> requested, std::optional<double> baseline = {}, int devices = 1)
      : board_({scalars(requested), baseline, devices},
               {[this](const std::string& name) { return names_.intern(name); },
                [this](std::uint32_t id) { return names_.name(id); }}) {}

  ScalarBoard& operator*() { return board_; }
  ScalarBoard* operator->() { return &board_; }
  void norm(NormOf of, Kind kind, const char* parameter, double value) {
    board_.take_norm(of, kind, names_.intern(parameter), value);
  }
  void begin(std::int64_t samples = 0) { board_.begin_step(now_, samples); }
  Values end(milliseconds took = milliseconds(500), std::int64_t samples = 0) {
    now_ += took;
    board_.end_step(now_, samples);
    return rows();
  }
  Values rows() const {
    Values values;
    for (const ScalarRow& row : board_.rows()) values[names_.name(row.name)] = row.value;
    return values;
  }

 private:
  static std::vector<Config::Scalar> scalars(const std::vector<std::string>& requested) {
    std::vector<Config::Scalar> made;
    for (const std::string& name : requested) made.push_back({name, false, true});
    return made;
  }

  NameTable names_;
  ScalarBoard::TimePoint now_{};
  ScalarBoard board_;
};

TEST_CASE("only requested scalars are kept and the last report of a step counts") {
  Board board({"loss", "learning-rate"});
  board.begin();
  board->report("loss", 3);
  board->report("loss", 2);
  board->report("grad-norm", 1);
  CHECK(board.end() == Values{{"loss", 2}});
}

TEST_CASE("a value that is reported late belongs to the step that has ended, unless it has one") {
  Board board({"grad-norm", "loss"});
  board.begin();
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "w", 3);
  CHECK(board.end() == Values{{"grad-norm", 3}});
  CHECK(board->awaits());
  board.begin();
  CHECK(board->report_late("loss", 1));
  CHECK(board.rows() == Values{{"grad-norm", 3}, {"loss", 1}});
  CHECK_FALSE(board->awaits());
  CHECK(board->report_late("loss", 2));  // said twice: not the next step's either
  CHECK(board->report_late("grad-norm", 4));
  CHECK(board->report_late("unknown", 5));
  CHECK(board.rows() == Values{{"grad-norm", 3}, {"loss", 1}});
  CHECK(board.end().empty());
  CHECK(board->awaits());
  CHECK(board->report_late("grad-norm", 4));  // from now on it is waited for
  CHECK(board->report_late("loss", 2));
  CHECK(board.rows() == Values{{"grad-norm", 4}, {"loss", 2}});
}

TEST_CASE("the values of a step are not carried over to the next") {
  Board board({"loss", "device_local_loss", "grad-norm", "local_norm", "expert_load"});
  board.begin();
  board->report("loss", 3);
  board->report("local_loss", 3);
  board->count_experts("moe", {1, 2});
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "w", 1);
  board.norm(NormOf::each_parameter, Kind::grad_unreduced, "w", 1);
  CHECK(board.end().size() == 6);
  board.begin();
  CHECK(board.end().empty());
}

TEST_CASE("local losses of a step add up to device_local_loss") {
  Board board({"local_loss", "device_local_loss"});
  board.begin();
  board->report("local_loss", 1.5);
  board->report("local_loss", 2.25);
  CHECK(board.end() == Values{{"local_loss", 2.25}, {"device_local_loss", 3.75}});
}

TEST_CASE("throughput is per device and throughput_linearity is relative to the baseline") {
  Board board({"iteration-time", "batch-size", "throughput", "throughput_linearity", "B-samples-per-day"}, 40,
              4);
  board.begin(1000);
  const Values values = board.end(milliseconds(500), 1064);
  CHECK(values.at("iteration-time") == 0.5);
  CHECK(values.at("batch-size") == 64);
  CHECK(values.at("throughput") == 32);
  CHECK(values.at("throughput_linearity") == 0.8);
  CHECK(std::fabs(values.at("B-samples-per-day") - 128 * 86400 / 1e9) < 1e-15);
}

TEST_CASE("without samples there is no throughput and without a baseline no throughput_linearity") {
  Board board({"iteration-time", "throughput", "throughput_linearity"});
  board.begin();
  CHECK(board.end() == Values{{"iteration-time", 0.5}});
  board.begin(0);
  CHECK(board.end(milliseconds(500), 8) == Values{{"iteration-time", 0.5}, {"throughput", 16}});
}

TEST_CASE("a norm over all parameters is the root of summed squares") {
  Board board({"grad-norm", "device_local_norm", "weight_norm"});
  CHECK(board->kinds(NormOf::all_parameters) ==
        (bit_of(Kind::grad_reduced) | bit_of(Kind::grad_unreduced) | bit_of(Kind::param_updated)));
  CHECK(board->kinds(NormOf::each_parameter) == 0);
  board.begin();
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "a", 3);
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "b", 4);
  board.norm(NormOf::all_parameters, Kind::param_updated, "a", std::nan(""));
  board.norm(NormOf::all_parameters, Kind::param_origin, "a", 7);
  const Values values = board.end();
  CHECK(values.size() == 2);
  CHECK(values.at("grad-norm") == 5);
  CHECK(std::isnan(values.at("weight_norm")));
}

TEST_CASE("a norm over all parameters has no value in a step in which one of them could not be read") {
  Board board({"grad-norm", "weight_norm"});
  board.begin();
  board->miss_norm(NormOf::all_parameters, Kind::grad_reduced);
  board->miss_norm(NormOf::each_parameter, Kind::param_updated);
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "a", 3);
  board.norm(NormOf::all_parameters, Kind::param_updated, "a", 4);
  CHECK(board.end() == Values{{"weight_norm", 4}});
  board.begin();
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "a", 3);
  CHECK(board.end() == Values{{"grad-norm", 3}});
}

TEST_CASE("norms of each parameter are named after it") {
  Board board({"adam_v_norm", "local_norm"});
  board.begin();
  board.norm(NormOf::each_parameter, Kind::grad_unreduced, "fc.weight", 2);
  board.norm(NormOf::each_parameter, Kind::exp_avg, "fc.weight", 1);
  board.norm(NormOf::each_parameter, Kind::exp_avg_sq, "fc.weight", 0.5);
  CHECK(board.end() == Values{{"local_norm/fc.weight", 2}, {"adam_v_norm/fc.weight", 0.5}});
}

TEST_CASE("expert load is the share of a layer's tokens over all counts of the step") {
  Board board({"expert_load"});
  board.begin();
  board->count_experts("moe", {1, 0});
  board->count_experts("moe", {2, 1, 4});
  board->count_experts("idle", {0, 0});
  CHECK(board.end() ==
        Values{{"expert_load/moe/0", 0.375}, {"expert_load/moe/1", 0.125}, {"expert_load/moe/2", 0.5}});
}

TEST_CASE("a reported value replaces the computed one") {
  Board board({"grad-norm", "throughput"});
  board.begin();
  board.norm(NormOf::all_parameters, Kind::grad_reduced, "a", 3);
  board->report("grad-norm", 17);
  CHECK(board.end(milliseconds(500), 4) == Values{{"grad-norm", 17}, {"throughput", 8}});
}

TEST_CASE("a requested scalar is listed as without value until a step has one") {
  Board board({"loss", "throughput"});
  board.begin();
  board.end(milliseconds(500), 4);
  CHECK(board->without_value() == std::vector<std::string>{"loss"});
  board.begin();
  board->report("loss", 1);
  board.end();
  CHECK(board->without_value().empty());
}

TEST_CASE("a line of the log has the rank if there are several and the samples if they are known") {
  CHECK(scalar_line(Rank{0}, 1, Step{12}, 0, {{"loss", 2.3456789}}) == "step 12: loss 2.345679");
  CHECK(scalar_line(Rank{3}, 4, Step{12}, 3072, {{"loss", 2}, {"a\nb", 1e-9}}) ==
        "rank 3: step 12, 3072 samples: loss 2.0, a?b 1.00000e-09");
}

}  // namespace
}  // namespace gradmon
