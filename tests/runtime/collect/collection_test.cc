// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/collection.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>

#include "control/config/config_parser.h"
#include "gradmon/observe.h"
#include "hooks/rows/optimizer_state.h"
#include "runtime/collect/expected_targets.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

WatchedModel watched(torch::nn::Module& model) {
  WatchedModel all;
  for (const auto& item : model.named_parameters()) all.parameters.push_back({item.key(), 0, item.value()});
  for (const auto& item : model.named_modules("", false))
    all.modules.push_back({item.key(), 0, item.value().get()});
  return all;
}

// A network whose layers `idle` and `parts` never run.
struct Network : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(4, 4));
  torch::nn::Linear idle = register_module("idle", torch::nn::Linear(4, 4));
  torch::nn::ModuleList parts = register_module("parts", torch::nn::ModuleList(torch::nn::Linear(4, 4)));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = observe(*fc1)(x);
    tap("hidden", hidden);
    return hidden;
  }
};

using MakeOptimizer = std::unique_ptr<torch::optim::Optimizer> (*)(std::vector<at::Tensor>);

template <typename O, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(std::vector<at::Tensor> parameters) {
  return std::make_unique<O>(std::move(parameters), Options(0.1));
}
constexpr MakeOptimizer kSgd = make<torch::optim::SGD, torch::optim::SGDOptions>;
constexpr MakeOptimizer kAdam = make<torch::optim::Adam, torch::optim::AdamOptions>;

// One rank's Collection, run step by step.
class CollectionFixture {
 public:
  using Change = std::function<void(Collection::Settings&)>;

  explicit CollectionFixture(const std::string& config, std::int64_t queue_capacity = 65'536,
                             MakeOptimizer make_optimizer = kSgd, const Change& change = {})
      : optimizer_(make_optimizer(network_.parameters())),
        collection_(settings(scratch_ / "out", queue_capacity, change), [](Revision, Step) {}) {
    collection_.add_model(watched(network_));
    begin_plan(config);
  }

  void begin_plan(const std::string& config) {
    Plan plan;
    plan.on = true;
    plan.config_text = config;
    auto parsed = parse_config(config, "config");
    REQUIRE(parsed);
    revision_.value += 1;
    collection_.swap({revision_, std::make_shared<const Plan>(std::move(plan)), step_},
                     std::make_shared<const Config>(std::move(parsed->config)));
  }

  void step_without_update() {
    collection_.begin_step(step_, Collection::Collect::yes, 0);
    network_.forward(at::ones({2, 4})).sum().backward();
    collection_.end_step(0, true);
    step_.value += 1;
  }

  void set_input_rows(std::int64_t rows) { rows_ = rows; }

  // Without a backward.
  void step_forward() {
    collection_.begin_step(step_, Collection::Collect::yes, 0);
    network_.forward(at::ones({2, 4}));
    collection_.end_step(0, true);
    step_.value += 1;
  }
  void freeze() {
    for (const at::Tensor& parameter : network_.parameters()) parameter.set_requires_grad(false);
  }

  void step() {
    collection_.begin_step(step_, Collection::Collect::yes, 0);
    train(1);
    collection_.end_step(0, true);
    step_.value += 1;
  }
  // A step that is not collected.
  void step_between(double factor = 1) {
    collection_.begin_step(step_, Collection::Collect::no, 0);
    train(factor);
    collection_.end_step_between(0);
    step_.value += 1;
  }
  void train(double factor) {
    optimizer_->zero_grad();
    (network_.forward(at::ones({rows_, 4})).sum() * factor).backward();
    const LibtorchOptimizerState state(*optimizer_);
    collection_.before_update(network_.parameters(), &state);
    optimizer_->step();
    collection_.after_update(network_.parameters(), &state);
  }
  // The layer's tokens go to so many experts, each with a name of its own. Returns the rows of the step.
  std::size_t step_with_experts(const std::string& layer, std::size_t experts) {
    collection_.begin_step(step_, Collection::Collect::yes, 0);
    collection_.report_experts(layer, std::vector<std::int64_t>(experts, 1));
    collection_.tap({Kind::param_origin, layer + ".tapped", at::ones({2}), 0, ""}, {});
    train(1);
    collection_.end_step(0, true);
    step_.value += 1;
    return last_rows().size();
  }
  void end_collection() { collection_.end_collection(step_); }
  bool recording() const { return collection_.recording(); }
  std::string flight() const {
    for (const auto& entry : std::filesystem::directory_iterator(out())) {
      if (std::filesystem::exists(entry.path() / "flight"))
        return read_text(entry.path() / "flight" / "grad_reduced_0-999.csv");
    }
    return "";
  }

  const TargetStatus* target(const std::string& kind, const std::string& name) {
    list_ = collection_.targets();
    const auto found =
        std::find_if(list_.targets.begin(), list_.targets.end(),
                     [&](const TargetStatus& target) { return target.kind == kind && target.name == name; });
    return found == list_.targets.end() ? nullptr : &*found;
  }
  CollectingReport report() const { return collection_.report(); }
  void stop() { collection_.stop(); }
  std::vector<Alert> alerts() const { return collection_.recent_alerts(); }
  std::vector<Metric> last_rows() const { return collection_.last_rows(); }
  std::filesystem::path out() const { return scratch_ / "out"; }

 private:
  static Collection::Settings settings(const std::filesystem::path& out, std::int64_t queue_capacity,
                                       const Change& change) {
    Collection::Settings made;
    made.queue_capacity = queue_capacity;
    made.pipeline = {3, 0};
    made.directory =
        std::make_shared<RunDirectory>(out, Rank{0}, "flat", [] { return std::optional(JobIdentity{}); });
    if (change) change(made);
    return made;
  }

  const TemporaryDirectory scratch_;
  Network network_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Revision revision_;
  Step step_;
  std::int64_t rows_ = 2;
  TargetList list_;
  Collection collection_;
};

TEST_CASE("the rows of a first step can be read though the hub answers late, and before they are on disk") {
  constexpr int kLookups = 75;  // one every 20 ms: more than the 1 s of a later step
  for (const bool writes_run_file : {true, false}) {
    const auto asked = std::make_shared<std::atomic<int>>(0);
    CollectionFixture fixture(R"({"wg_distribution": true, "targets": {"fc1.bias": {}}})", 65'536, kSgd,
                              [&](Collection::Settings& settings) {
                                settings.keep_last_step = true;
                                settings.directory->set_job_source([asked]() -> std::optional<JobIdentity> {
                                  if (++*asked < kLookups) return {};
                                  return JobIdentity{"epoch", "run", 1};
                                });
                                if (writes_run_file)
                                  settings.ranks = [] { return std::vector<RankStatus>(); };
                              });
    fixture.step();
    const std::vector<Metric> rows = fixture.last_rows();
    CHECK(rows.size() == 2);
    CHECK((*asked >= kLookups) == writes_run_file);
  }
}

TEST_CASE("alerts of the plan's rules are kept, and dumped with the rank's place in the pipeline") {
  CollectionFixture fixture(R"({"wg_distribution": true, "targets": {"fc1.bias": {}}})");
  fixture.step();
  fixture.begin_plan(R"({"wg_distribution": true, "targets": {"fc1.bias": {}}, "alert": {"dump": true,
                         "rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0}}]}})");
  fixture.step();
  fixture.stop();
  const std::vector<Alert> alerts = fixture.alerts();
  REQUIRE(alerts.size() == 2);
  CHECK(alerts[0].tag_name == "0:fc1.bias/rank0/acc_grad");
  CHECK(alerts[1].tag_name == "0:fc1.bias/rank0/post_grad");
  CHECK((alerts[1].step == 1 && alerts[1].call_id == 1 && alerts[1].pp_stage == 1 && alerts[1].value == 4));
  const std::string dump = read_text(fixture.out() / "anomaly_detected" / "rank0" / "anomaly.json");
  CHECK(dump.find("\"0:fc1.bias/rank0/post_grad_step_1_call_1_norm\": {") != std::string::npos);
  CHECK(dump.find("\"pp_stage\": 1") != std::string::npos);
}

constexpr const char* kRecording =
    R"({"wg_distribution": true, "targets": {"fc1.bias": {}}, "ops": ["max"], "keep_last": 3,
        "alert": {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1e6}}]}})";
constexpr const char* kFlightHeader = "vpp_stage,name,step,norm,nans,shape,dtype\n";
std::string flight_row(int step, const char* norm) {
  return "0,fc1.bias," + std::to_string(step) + "," + norm + ",0,[4],torch.float32\n";
}

TEST_CASE("the flight recorder writes the steps before an alert, collected or not, each once") {
  CollectionFixture fixture(kRecording);
  CHECK(fixture.recording());
  fixture.step();
  for (int i = 0; i < 3; ++i) fixture.step_between();
  fixture.step();
  fixture.step_between(1e7);
  fixture.step_between();
  fixture.stop();
  CHECK(fixture.flight() ==
        kFlightHeader + flight_row(3, "4.0") + flight_row(4, "4.0") + flight_row(5, "40000000.0"));
  const std::vector<Alert> alerts = fixture.alerts();
  REQUIRE(alerts.size() == 1);
  CHECK((alerts[0].step == 5 && alerts[0].op == "norm" && alerts[0].value == 4e7));
  CHECK(fixture.report().records == 4);  // two steps, unreduced and reduced
  CHECK(fixture.report().dropped == 0);
}

// The values of the row, by title.
std::map<std::string, double> values_of(const std::vector<Metric>& rows, const std::string& name) {
  for (const Metric& row : rows) {
    if (row.name == name) return {row.values.begin(), row.values.end()};
  }
  return {};
}

TEST_CASE("sample takes effect and ends with a new plan, and files without it keep their columns") {
  const std::string keys = R"({"xy_distribution": true, "ops": ["norm", "mean"], "format": ["csv", "api"])";
  CollectionFixture fixture(keys + "}");
  fixture.set_input_rows(100'000);  // 1.6 MB
  fixture.step();
  CHECK(values_of(fixture.last_rows(), "fc1.input") ==
        std::map<std::string, double>{{"norm", std::sqrt(4e5)}, {"mean", 1}});
  for (const double blocks : {16, 2}) {
    fixture.begin_plan(keys + R"(, "sample": )" + std::to_string(static_cast<int>(blocks)) + "}");
    fixture.step();
    auto sampled = values_of(fixture.last_rows(), "fc1.input");
    CHECK(std::fabs(sampled["sampled"] * blocks - 1) < 0.1);
    CHECK(sampled["mean"] == 1);
    CHECK(sampled["mean_se"] == 0);
    CHECK(std::fabs(sampled["norm"] - std::sqrt(4e5)) < 1e-9);
    CHECK(sampled["norm_se"] == 0);
  }
  fixture.set_input_rows(1000);
  fixture.step();
  CHECK(values_of(fixture.last_rows(), "fc1.input").count("sampled") == 0);  // small
  fixture.begin_plan(keys + "}");
  fixture.step();
  fixture.stop();
  std::vector<std::string> headers(5);
  for (const auto& directory : std::filesystem::directory_iterator(fixture.out())) {
    for (std::size_t step = 0; step < headers.size(); ++step) {
      const std::string number = std::to_string(step);
      const std::filesystem::path file = directory.path() / ("actv_" + number + "-" + number + ".csv");
      if (!std::filesystem::exists(file)) continue;
      const std::string text = read_text(file);
      headers[step] = text.substr(0, text.find('\n'));
    }
  }
  const std::string plain = "vpp_stage,name,step,micro_step,norm,mean,shape,dtype";
  const std::string marked = "vpp_stage,name,step,micro_step,norm,mean,sampled,mean_se,norm_se,shape,dtype";
  CHECK(headers == std::vector<std::string>{plain, marked, marked, marked, plain});
}

TEST_CASE("a new plan keeps the recorded steps, and a plan without keep_last forgets them") {
  for (const bool forgets : {false, true}) {
    CollectionFixture fixture(kRecording);
    fixture.step_between();
    if (forgets) {
      fixture.end_collection();
      CHECK_FALSE(fixture.recording());
    }
    fixture.begin_plan(kRecording);
    fixture.step_between(1e7);
    fixture.stop();
    CHECK(fixture.flight() ==
          kFlightHeader + (forgets ? "" : flight_row(0, "4.0")) + flight_row(1, "40000000.0"));
  }
}

TEST_CASE("keep_last records nothing without rules and on ranks that the plan does not watch") {
  CollectionFixture no_rules(R"({"wg_distribution": true, "keep_last": 3})");
  CHECK_FALSE(no_rules.recording());
  REQUIRE(no_rules.report().warnings.size() == 1);
  CHECK(no_rules.report().warnings[0] == "keep_last has no effect without alert rules (alert.rules)");
  CollectionFixture other_rank(
      R"({"wg_distribution": true, "keep_last": 3, "module_ranks": [1],
          "alert": {"rules": [{"rule_name": "AnomalySpike"}]}})");
  CHECK_FALSE(other_rank.recording());
}

TEST_CASE("the cost of steps between counts as the cost of monitoring") {
  CollectionFixture fixture(kRecording);
  for (int round = 0; round < 4; ++round) {
    fixture.step();
    for (int i = 0; i < 5; ++i) fixture.step_between();
  }
  CHECK(fixture.report().overhead.share > 0);
  CHECK(fixture.report().overhead.steps == 12);
}

TEST_CASE("a row that the full queue dropped does not make its target silent") {
  CollectionFixture fixture(R"({"wg_distribution": true, "targets": {"fc1": {}}, "on_overflow": "drop"})", 1);
  for (int i = 0; i < 1000 && fixture.report().dropped == 0; ++i) {
    fixture.step();
    CAPTURE(i);
    REQUIRE(fixture.report().targets.silent == 0);
  }
  REQUIRE(fixture.report().dropped > 0);
}

TEST_CASE("histograms are written and counted as rows") {
  const std::string config = R"({"ur_distribution": true, "format": "tensorboard", "targets": {"fc1": {}}})";
  CollectionFixture fixture(config, 3, kAdam);  // A batch larger than the queue is admitted alone.
  fixture.step();                               // there are no moments yet
  CHECK(fixture.report().targets.silent == 4);
  CHECK(fixture.target("ratio", "fc1.bias")->why ==
        "no moments of Adam yet, or no watched optimizer has them");
  fixture.step();
  CHECK(fixture.report().targets.silent == 0);
  fixture.stop();
  CHECK(fixture.report().records == 4);
  CHECK(fixture.report().dropped == 0);
  CHECK(fixture.report().error.empty());
}

TEST_CASE("histograms are not made for formats that hold none") {
  CollectionFixture fixture(R"({"ur_distribution": true, "format": "csv", "wg_distribution": true})", 65'536,
                            kAdam);
  fixture.step();
  fixture.step();
  CHECK(fixture.target("update", "fc1.bias") == nullptr);
  fixture.stop();
  CHECK(fixture.report().records == 8);
  CHECK(fixture.report().dropped == 0);
}

TEST_CASE("a module whose forward is not seen is silent and says why") {
  CollectionFixture fixture(R"({"xy_distribution": true, "targets": {"idle": {}, "fc1": {}}})");
  fixture.step();
  REQUIRE(fixture.target("actv", "idle") != nullptr);
  CHECK(fixture.target("actv", "idle")->silent_steps == 1);
  CHECK(fixture.target("actv", "idle")->why == "its forward was not seen: gradmon::observe");
  CHECK(fixture.target("actv_grad", "idle")->why == "its forward was not seen: gradmon::observe");
  CHECK(fixture.target("actv", "fc1") == nullptr);
  CHECK(fixture.target("actv", "fc1.output") != nullptr);
  CHECK(fixture.report().targets.silent == 2);
  REQUIRE(fixture.report().warnings.size() == 1);
  CHECK(fixture.report().warnings.front() ==
        "no activations of idle: call gradmon::observe(module)(x) instead of module->forward(x) "
        "(gradmon/observe.h)");
}

TEST_CASE("a module whose forward is seen and that gets no gradient says why, whatever else is collected") {
  const std::string backward = GENERATE("", R"("backward_only": true, )");
  const auto [frozen, why] = GENERATE(table<bool, std::string>(
      {{true, "its output requires no gradient"}, {false, "its forward was seen, but no gradient arrived"}}));
  CollectionFixture fixture("{" + backward +
                            R"("xy_distribution": true, "targets": {"fc1": {}, "idle": {}}})");
  if (frozen) fixture.freeze();
  fixture.step_forward();
  REQUIRE(fixture.target("actv_grad", "fc1") != nullptr);
  CHECK(fixture.target("actv_grad", "fc1")->silent_steps == 1);
  CHECK(fixture.target("actv_grad", "fc1")->why == why);
  CHECK(fixture.target("actv_grad", "idle")->why == "its forward was not seen: gradmon::observe");
  const auto warnings = fixture.report().warnings;
  CHECK(std::count(warnings.begin(), warnings.end(), "no gradients of the activations of fc1: " + why) == 1);
  CHECK(std::count_if(warnings.begin(), warnings.end(), [](const std::string& line) {
          return line.find("no activations of idle: call gradmon::observe(module)(x)") == 0;
        }) == 1);
}

TEST_CASE("a name that the program taps is unmatched until its first tap") {
  CollectionFixture fixture(R"({"xy_distribution": true, "targets": {"hidden": {}, "hiden": {}}})");
  CHECK(fixture.report().warnings.size() == 2);
  fixture.step();
  REQUIRE(fixture.report().warnings.size() == 1);
  CHECK(fixture.report().warnings.front().find("\"hiden\" matches nothing") == 0);
  CHECK(fixture.report().targets.unmatched == 1);
  REQUIRE(fixture.target("actv", "hidden.output") != nullptr);
}

TEST_CASE("a config has a possible match if its names may be taps or it needs no target") {
  const auto possible = [](const std::string& text) {
    const auto parsed = parse_config(text, "");
    REQUIRE(parsed);
    return possible_matches(parsed->config, {{0, "fc1"}, {0, "fc1.weight"}});
  };
  CHECK(possible(R"({"wg_distribution": true, "targets": {"hidden": {}}})") == 0);
  CHECK(possible(R"({"wg_distribution": true, "targets": {"fc1": {}}})") == 2);
  CHECK(possible(R"({"xy_distribution": true, "targets": {"hidden": {}}})") == 1);
  CHECK(possible(R"({"cc_distribution": {"enable": true}, "targets": {"hidden": {}}})") == 1);
  CHECK(possible(R"({"scalars": {"loss": "log"}, "targets": {"hidden": {}}})") == 1);
  CHECK(possible(R"({"scalars": {"loss": "log"}, "wg_distribution": true, "targets": {"hidden": {}}})") == 0);
}

TEST_CASE("a dry run lists L2 targets without a match and no target if no kind is enabled") {
  const auto dry_run = [](const std::string& text) {
    const auto parsed = parse_config(text, "");
    REQUIRE(parsed);
    return dry_run_target_list(parsed->config, {{0, "fc1.weight"}, {0, "fc1"}});
  };
  CHECK(dry_run(R"({"wg_distribution": true})").targets.size() == 2);
  CHECK(dry_run(R"({"monitor_mbs_grad": true})").targets.empty());
  const TargetList l2 = dry_run(R"({"recording_l2_features": true,
      "l2_targets": {"attention_hook": ["core"], "linear_hook": ["fc2", "fc1"]}})");
  REQUIRE(l2.unmatched.size() == 2);
  CHECK(l2.unmatched[0].pattern == "core");
  CHECK(l2.unmatched[1].nearest == std::vector<std::string>{"fc1"});
}

TEST_CASE("a dry run names parameters and modules as their rows do") {
  const auto parsed = parse_config(
      R"({"xy_distribution": true, "wg_distribution": true,
          "targets": {"decoder.layers.0.fc.weight": {}, "decoder.layers.0.fc": {}}})",
      "");
  REQUIRE(parsed);
  const TargetList list = dry_run_target_list(
      parsed->config, {{0, "decoder.layers.0.fc.weight"}, {0, "decoder.layers.0.fc", true}});
  REQUIRE(list.targets.size() == 2);
  CHECK(list.targets[0].name == "layers.0.fc.weight");
  CHECK(list.targets[1].name == "layers.0.fc");
}

TEST_CASE("if all modules are selected only those without children are expected") {
  CollectionFixture fixture(R"({"xy_distribution": true, "all_xy": true, "forward_only": true})");
  CHECK(fixture.target("actv", "fc1") != nullptr);
  CHECK(fixture.target("actv", "parts.0") != nullptr);
  CHECK(fixture.target("actv", "parts") == nullptr);
}

TEST_CASE("a moment that the optimizer does not keep is silent and says why") {
  CollectionFixture fixture(
      R"({"mv_distribution": true, "mg_direction": true, "targets": {"fc1.weight": {}}})");
  fixture.step();
  for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
    REQUIRE(fixture.target(kind, "fc1.weight") != nullptr);
    CHECK(fixture.target(kind, "fc1.weight")->why ==
          "its optimizer keeps no exp_avg or exp_avg_sq that gradmon can read");
  }
  REQUIRE(fixture.target("other", "fc1.weight") != nullptr);
  CHECK(fixture.target("other", "fc1.weight")->silent());
}

TEST_CASE("the rows of L2 features are expected for each listed module") {
  CollectionFixture fixture(R"({"recording_l2_features": true, "l2_targets": {"attention_hook": ["idle"],
      "linear_hook": [], "moe_router_weight_hook": ["fc1"], "moe_router_logit_hook": ["idle"]}})");
  fixture.step();
  REQUIRE(fixture.target("attention_hook", "idle.attention") != nullptr);
  CHECK(fixture.target("attention_hook", "idle.attention")->why ==
        "its forward was not seen: gradmon::observe");
  REQUIRE(fixture.target("moe_router_logit_hook", "idle.router") != nullptr);
  CHECK(fixture.target("moe_router_logit_hook", "idle.router")->silent());
  for (const char* name : {"fc1.linear", "idle.linear"}) {
    REQUIRE(fixture.target("linear_hook", name) != nullptr);
    CHECK_FALSE(fixture.target("linear_hook", name)->silent());
  }
  REQUIRE(fixture.target("moe_router_weight_hook", "fc1.router") != nullptr);
  CHECK_FALSE(fixture.target("moe_router_weight_hook", "fc1.router")->silent());
}

TEST_CASE("steps without an update give one warning for each plan") {
  const std::string config = R"({"wg_distribution": true, "targets": {"fc1": {}}})";
  CollectionFixture fixture(config);
  for (int i = 0; i < 2; ++i) {
    CHECK(fixture.report().warnings.empty());
    for (int step = 0; step < 2; ++step) fixture.step_without_update();
    REQUIRE(fixture.report().warnings.size() == 1);
    CHECK(fixture.report().warnings.front().find("without an optimizer's update") != std::string::npos);
    fixture.begin_plan(config);
  }
}

TEST_CASE("a program that makes new names in each step fills no memory, and its further rows are left out") {
  constexpr std::size_t kMost = NameTable::kNamesOfARank.count;
  CollectionFixture fixture(
      R"({"param_distribution": true, "targets": {"fc1.bias": {}, "first.tapped": {}, "third.tapped": {}},
                                "scalars": {"expert_load": "records"}})",
      2 * kMost, kSgd, [](Collection::Settings& settings) { settings.keep_last_step = true; });
  CHECK(fixture.step_with_experts("first", 3) == 6);
  CHECK(fixture.step_with_experts("second", kMost) > kMost / 2);
  CHECK(fixture.step_with_experts("third", 3) == 2);
  const CollectingReport report = fixture.report();
  CHECK(report.dropped == 0);
  const auto says = [](const std::string& line) { return line.find("too many different names") == 0; };
  CHECK(std::count_if(report.warnings.begin(), report.warnings.end(), says) == 1);
}

}  // namespace
}  // namespace gradmon
