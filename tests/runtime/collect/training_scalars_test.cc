// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/training_scalars.h"

#include <fcntl.h>
#include <unistd.h>

#include <gradmon/monitor.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "writers/queue/name_table.h"

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

struct Training {
  torch::nn::Sequential model{torch::nn::Linear(4, 3), torch::nn::Linear(3, 2)};
  torch::optim::SGD optimizer{model->parameters(), 0.1};

  void backward() {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 4})).sum().backward();
  }
  static double norm_of(const at::Tensor& tensor) {
    return tensor.detach().to(at::kDouble).norm().item<double>();
  }
  double gradient_norm() {
    double squares = 0;
    for (const at::Tensor& parameter : model->parameters()) squares += std::pow(norm_of(parameter.grad()), 2);
    return std::sqrt(squares);
  }
};

// Captures stderr until end().
class StderrCapture {
 public:
  StderrCapture() : saved_(::dup(2)) {
    const int file = ::open((scratch_ / "err").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(file, 2);
    ::close(file);
  }
  ~StderrCapture() { end(); }
  std::string end() {
    if (saved_ >= 0) {
      ::dup2(saved_, 2);
      ::close(saved_);
    }
    saved_ = -1;
    return read_text(scratch_ / "err");
  }

 private:
  const TemporaryDirectory scratch_;
  int saved_;
};

struct Fixture {
  Monitor monitor_of(const std::string& config, int grad_acc_steps = 1) {
    write_text(directory / "config.json", config);
    MonitorOptions options;
    options.output_dir = directory / "out";
    options.dynamic = false;
    options.grad_acc_steps = grad_acc_steps;
    return Monitor(directory / "config.json", options);
  }
  // Trains so many steps under a monitor of this config. `before`: is called before the end of each step.
  void train(const std::string& config, int steps,
             const std::function<void(Monitor& monitor, int step)>& before = nullptr) {
    Monitor monitor = monitor_of(config);
    monitor.watch(*training.model, training.optimizer);
    for (int step = 0; step < steps; ++step) {
      training.backward();
      if (before) before(monitor, step);
      monitor.step(training.optimizer);
    }
  }
  std::string csv(const std::string& name) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "out")) {
      if (entry.path().filename() == name) return read_text(entry.path());
    }
    return "";
  }
  // The values in a file of scalars, by name.
  std::map<std::string, double> values(const std::string& name) const {
    std::map<std::string, double> values;
    std::istringstream lines(csv(name));
    std::string line;
    std::getline(lines, line);
    CHECK(line == "name,step,samples,value");
    while (std::getline(lines, line))
      values[line.substr(0, line.find(','))] = std::stod(line.substr(line.rfind(',') + 1));
    return values;
  }

  const TemporaryDirectory directory;
  Training training;
};

bool near(double a, double b) { return std::fabs(a - b) <= 2e-6 * std::max(1.0, std::fabs(b)); }

TEST_CASE("reported scalars are written with the number of samples seen") {
  Fixture f;
  {
    Monitor monitor = f.monitor_of(
        R"({"scalars": {"loss": "records", "my/own": ["records", "log"]}, "step_interval": 2, "start_step": 1})");
    monitor.samples(100);
    monitor.watch(*f.training.model, f.training.optimizer);
    for (int step = 0; step < 4; ++step) {
      f.training.backward();
      monitor.samples(8);
      monitor.scalar("loss", 10.0 + step);
      monitor.scalar("not asked for", 1);
      if (step == 3) monitor.scalar("my/own", -0.5);
      monitor.step(f.training.optimizer);
    }
  }
  CHECK(f.csv("scalar_0-0.csv").empty());
  CHECK(f.csv("scalar_1-1.csv") == "name,step,samples,value\nloss,1,116,11.0\n");
  CHECK(f.csv("scalar_2-2.csv").empty());
  CHECK(f.csv("scalar_3-3.csv") == "name,step,samples,value\nloss,3,132,13.0\nmy/own,3,132,-0.5\n");
}

TEST_CASE("norms of gradients and weights are right whether the plan collects them or not") {
  for (const char* const also : {"", R"("wg_distribution": true, "param_distribution": true, )",
                                 R"("wg_distribution": true, "ops": ["min"], )"}) {
    CAPTURE(also);
    Fixture f;
    f.train(std::string("{") + also +
                R"("scalars": {"grad-norm": "records", "device_local_norm": "records",
                               "weight_norm": "records", "local_norm": "records"}})",
            1);
    double weights = 0;
    for (const at::Tensor& parameter : f.training.model->parameters())
      weights += std::pow(Training::norm_of(parameter), 2);
    const auto values = f.values("scalar_0-0.csv");
    REQUIRE(values.size() == 7);
    CHECK(near(values.at("grad-norm"), f.training.gradient_norm()));
    CHECK(near(values.at("device_local_norm"), f.training.gradient_norm()));
    CHECK(near(values.at("weight_norm"), std::sqrt(weights)));
    CHECK(near(values.at("local_norm/1.bias"),
               Training::norm_of(f.training.model->named_parameters()["1.bias"].grad())));
    CHECK(f.csv("grad_reduced_0-0.csv").empty() == (also[0] == '\0'));
  }
}

TEST_CASE("targets restrict the norms of single parameters and not the norms over all") {
  Fixture f;
  f.train(R"({"targets": {"1": {}}, "wg_distribution": true,
              "scalars": {"device_local_norm": "records", "local_norm": "records"}})",
          1);
  const auto values = f.values("scalar_0-0.csv");
  CHECK(values.size() == 3);
  CHECK(near(values.at("device_local_norm"), f.training.gradient_norm()));
  CHECK(values.count("local_norm/1.weight") == 1);
  CHECK(values.count("local_norm/1.bias") == 1);
}

TEST_CASE("scalars for the log give one line for each step and no rows") {
  Fixture f;
  StderrCapture capture;
  f.train(R"({"scalars": {"loss": "log", "batch-size": "log"}, "collect_times": 2})", 3,
          [](Monitor& monitor, int) {
            monitor.scalar("loss", 0.25);
            monitor.samples(4);
          });
  const std::string said = capture.end();
  CHECK(said.find("gradmon: step 0, 4 samples: loss 0.25, batch-size 4.0\n"
                  "gradmon: step 1, 8 samples: loss 0.25, batch-size 4.0\n") != std::string::npos);
  CHECK(said.find("step 2") == std::string::npos);
  CHECK(f.csv("scalar_0-0.csv").empty());
}

TEST_CASE("iteration time and throughput need only the program's samples") {
  Fixture f;
  f.train(
      R"({"scalars": {"iteration-time": "records", "throughput": "records", "throughput_linearity": "records"},
              "throughput_baseline": 2.0, "ndigits": 12, "collect_times": 1})",
      1, [](Monitor& monitor, int) { monitor.samples(6); });
  const auto values = f.values("scalar_0-0.csv");
  REQUIRE(values.size() == 3);
  CHECK(values.at("iteration-time") > 0);
  CHECK(std::fabs(values.at("throughput") * values.at("iteration-time") / 6 - 1) < 1e-4);
  CHECK(std::fabs(values.at("throughput_linearity") * 2 / values.at("throughput") - 1) < 1e-4);
}

constexpr const char* kNeverReported = "scalar \"loss\" was never reported and cannot be computed here";

std::size_t count_never_reported(const std::string& log) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = log.find(kNeverReported, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_CASE(
    "a scalar without a value in a hundred collected steps is a warning in the status, and once in the log") {
  Fixture f;
  StderrCapture capture;
  {
    Monitor monitor = f.monitor_of(R"({"scalars": {"loss": "records", "iteration-time": "records"}})");
    monitor.watch(*f.training.model, f.training.optimizer);
    const auto warns = [&] {
      const auto warnings = monitor.status().warnings;
      return std::find(warnings.begin(), warnings.end(), kNeverReported) != warnings.end();
    };
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        f.training.backward();
        monitor.step(f.training.optimizer);
      }
    };
    train(99);
    CHECK(eventually([&] { return monitor.status().ranks.front().step >= 99; }));
    CHECK_FALSE(warns());
    train(11);
    CHECK(eventually(warns));
  }
  CHECK(count_never_reported(capture.end()) == 1);
}

TEST_CASE("a scalar without a value is named in the log when a collection ends before a hundred steps") {
  const auto [reported, count] = GENERATE(table<int, std::size_t>({{-1, 1}, {2, 0}, {9, 0}, {10, 1}}));
  const bool stopped = GENERATE(false, true);  // the collection ends with the program
  if (stopped && reported == 10) return;
  Fixture f;
  StderrCapture capture;
  {
    Monitor monitor = f.monitor_of(R"({"scalars": {"loss": "records"}, "collect_times": )" +
                                   std::string(stopped ? "1000}" : "10}"));
    monitor.watch(*f.training.model, f.training.optimizer);
    for (int step = 0; step < (stopped ? 10 : 14); ++step) {
      f.training.backward();
      monitor.step(f.training.optimizer);
      if (step == reported) monitor.scalar("loss", 1);  // of the step that has just ended
    }
  }
  CHECK(count_never_reported(capture.end()) == count);
}

TEST_CASE("a step without a backward has its scalars and no norms") {
  Fixture f;
  {
    Monitor monitor = f.monitor_of(
        R"({"scalars": {"loss": "records", "device_local_norm": "records", "grad-norm": "records"}})");
    monitor.watch(*f.training.model, f.training.optimizer);
    monitor.scalar("loss", 1);
    monitor.step();
  }
  CHECK(f.csv("scalar_0-0.csv") == "name,step,samples,value\nloss,0,,1.0\n");
}

}  // namespace
}  // namespace gradmon
