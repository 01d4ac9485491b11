// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/gradient_deliveries.h"

#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

void add(GradientDeliveries& deliveries, std::uint64_t arrival, std::int64_t read_at) {
  GradientDelivery& delivery = deliveries.add();
  delivery.arrival = arrival;
  delivery.reading.has_value = true;
  delivery.reading.read_at = read_at;
}

std::vector<std::int64_t> used(const GradientDeliveries& deliveries) {
  std::vector<std::int64_t> times;
  deliveries.each_used([&](const GradientDelivery& delivery) { times.push_back(delivery.reading.read_at); });
  return times;
}

using Times = std::vector<std::int64_t>;

TEST_CASE("without an update every reading of the step counts, and none of the step before") {
  GradientDeliveries deliveries;
  for (const std::int64_t time : {10, 20}) {
    deliveries.begin_step();
    add(deliveries, 1, time);
    deliveries.add();  // not read
    add(deliveries, 3, time + 1);
    CHECK(used(deliveries) == Times{time, time + 1});
  }
}

TEST_CASE("a delivery after the last update is not used") {
  GradientDeliveries deliveries;
  CHECK(deliveries.unused() == nullptr);
  add(deliveries, 1, 10);
  REQUIRE(deliveries.unused() != nullptr);
  deliveries.mark_used();
  CHECK(deliveries.updated());
  CHECK(deliveries.unused() == nullptr);
  add(deliveries, 2, 20);
  REQUIRE(deliveries.unused() != nullptr);
  CHECK(deliveries.unused()->arrival == 2);
  CHECK(used(deliveries) == Times{10});
}

TEST_CASE("of two deliveries the second one's reading stays with the first one's arrival") {
  GradientDeliveries deliveries;
  add(deliveries, 1, 10);
  deliveries.keep_last_of_two();
  CHECK(used(deliveries) == Times{10});
  add(deliveries, 5, 20);
  deliveries.keep_last_of_two();
  CHECK(used(deliveries) == Times{20});
  CHECK(deliveries.unused()->arrival == 1);
}

}  // namespace
}  // namespace gradmon
