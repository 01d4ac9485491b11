// SPDX-License-Identifier: Apache-2.0
#include "control/agree/plan.h"

#include "control/config/config_parser.h"
#include "control/config/file_content.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a plan has the values of its config, the text and the text's hash") {
  const std::string text = R"({"dynamic_on": true, "step_interval": 5, "max_wait": 1.5, "epz": 1})";
  const auto source = plan_from_config(text, "c.json");
  REQUIRE(source);
  CHECK((source->plan->on && source->plan->step_interval == 5 && source->plan->max_wait == Ticks{1'500}));
  CHECK((source->plan->config_text == text && source->plan->config_sha256 == sha256_hex(text)));
  CHECK(source->unknown == std::vector<std::string>{R"(unknown key "epz" (did you mean "eps"?))"});
  CHECK(source->warnings == std::vector<std::string>{"c.json:1:59: " + source->unknown.front()});
  CHECK_FALSE(plan_from_config("{\"eps\": 0}", "c.json").has_value());
}

TEST_CASE("the plan of a parsed content has that config, and no text is parsed again") {
  FileContent content{"not JSON", {7, 8, "its hash"}};
  content.parsed = std::make_shared<const ConfigResult>(parse_config(R"({"step_interval": 9})", "c.json"));
  const auto source = plan_from_config(content, "c.json");
  REQUIRE(source);
  CHECK(source->plan->config.get() == &(*content.parsed)->config);
  CHECK((source->plan->step_interval == 9 && source->plan->config_sha256 == "its hash"));
}

TEST_CASE("a step is collected exactly if the formula in schedule.h says so") {
  for (const std::int64_t first : {0, 1, 7}) {
    for (const std::int64_t interval : {1, 2, 3, 5}) {
      for (const std::int64_t times : {0, 1, 2, 4}) {
        const Schedule schedule(Step{first}, interval, times);
        std::int64_t before = 0;
        Step last{-1};
        for (Step t{0}; t < Step{60}; t = t + 1) {
          const bool expected =
              t.value >= first && (t.value - first) % interval == 0 && (t.value - first) / interval < times;
          CAPTURE(first, interval, times, t.value);
          REQUIRE(schedule.collects(t) == expected);
          REQUIRE(schedule.collected_before(t) == before);
          if (expected) {
            before += 1;
            last = t;
          }
        }
        REQUIRE(schedule.end() == (times == 0 ? Step{first} : last + 1));
      }
    }
  }
}

TEST_CASE("next_change is the first step whose boundary has work to do") {
  for (const std::int64_t interval : {1, 2, 3, 5}) {
    for (const std::int64_t times : {0, 1, 2, 4}) {
      const Schedule schedule(Step{3}, interval, times);
      for (Step from{0}; from < Step{40}; from = from + 1) {
        Step expected = kNever;
        for (Step t = from; t < Step{60}; t = t + 1) {
          const bool work = schedule.collects(t) || schedule.collects(Step{t.value - 1}) ||
                            t == schedule.end() || t == schedule.first();
          if (work) {
            expected = t;
            break;
          }
        }
        CAPTURE(interval, times, from.value);
        REQUIRE(schedule.next_change(from) == expected);
      }
    }
  }
}

TEST_CASE("a schedule of a hundred million times neither ends early nor overflows") {
  const Schedule schedule(Step{400'000}, 1'000'000'000'000, 100'000'000);
  REQUIRE(schedule.collects(Step{400'000}));
  REQUIRE(schedule.end() == kNever);
  REQUIRE(schedule.next_change(Step{400'002}) == Step{1'000'000'400'000});
}

TEST_CASE("static mode begins at the first step that start_step and interval allow") {
  REQUIRE(static_schedule(Step{0}, Step{0}, 1, 5).first() == Step{0});
  REQUIRE(static_schedule(Step{10}, Step{0}, 3, 5).first() == Step{10});
  REQUIRE(static_schedule(Step{0}, Step{100}, 1, 5).first() == Step{100});
  REQUIRE(static_schedule(Step{10}, Step{100}, 7, 5).first() == Step{101});
  REQUIRE(static_schedule(Step{3}, Step{9}, 3, 5).first() == Step{9});
}

TEST_CASE("a plan that replaces an unfinished plan collects its remaining steps") {
  Plan plan;
  plan.on = true;
  plan.collect_times = 100;
  plan.continues = Schedule(Step{10}, 2, 5);  // 10 12 14 16 18
  REQUIRE(schedule_of(plan, Step{13}).times() == 3);
  REQUIRE(schedule_of(plan, Step{40}).times() == 0);
}

TEST_CASE("a plan with a later start step collects from that step") {
  Plan plan;
  plan.on = true;
  plan.collect_times = 2;
  plan.at = Step{50};
  REQUIRE(schedule_of(plan, Step{20}).first() == Step{50});
  REQUIRE(schedule_of(plan, Step{60}).first() == Step{60});
}

}  // namespace

}  // namespace gradmon
