// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/name_table.h"

#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace gradmon;

TEST_CASE("the same text and stage give the same id") {
  NameTable names;
  const auto weight = names.intern("fc1.weight");
  CHECK(names.intern(std::string("fc1.") + "weight") == weight);
  CHECK(names.intern("fc1.bias") != weight);
  const auto second_chunk = names.intern("fc1.weight", 1);
  CHECK(second_chunk != weight);
  CHECK(names.name(second_chunk) == "fc1.weight");
  CHECK(names.vpp_stage(second_chunk) == 1);
  CHECK(names.vpp_stage(weight) == 0);
}

TEST_CASE("id 0 and unknown ids are the empty text") {
  NameTable names;
  CHECK(names.intern("") == 0);
  CHECK(names.name(0).empty());
  CHECK(names.name(77).empty());
}

TEST_CASE("a name keeps its address while others are added") {
  NameTable names;
  const auto id = names.intern("first");
  const std::string* const place = &names.name(id);
  for (int i = 0; i < 10000; ++i) names.intern("name " + std::to_string(i));
  CHECK(&names.name(id) == place);
  CHECK(*place == "first");
}

TEST_CASE("shapes beyond the bound have id 0 and known ones keep theirs") {
  NameTable names;
  const auto name = names.intern("fc1.weight");
  const auto first = names.intern_shape("[0]");
  CHECK(names.intern_shape("[0]") == first);
  for (std::size_t i = 1; i < NameTable::kMostShapes; ++i) names.intern_shape("[" + std::to_string(i) + "]");
  CHECK(names.size() == NameTable::kMostShapes + 2);
  CHECK(names.intern_shape("[7, 7]") == 0);
  CHECK(names.intern_shape("[0]") == first);
  CHECK(names.intern("fc1.weight") == name);
  CHECK(names.intern("fc2.weight") != 0);
}

TEST_CASE("long shapes beyond the bound have id 0 and shorter ones find room") {
  NameTable names;
  const std::string half(NameTable::kMostShapeBytes / 2, '1');
  const auto long_one = names.intern_shape(half);
  CHECK(long_one != 0);
  CHECK(names.intern_shape(half + "2") == 0);
  CHECK(names.intern_shape("[2]") != 0);
  CHECK(names.intern_shape(half) == long_one);
}

TEST_CASE("names beyond the bound have id 0 and known ones, shapes and other tables do not count") {
  NameTable names(NameTable::Bound{3, 12});
  const auto first = names.intern("fc1");
  CHECK(first != 0);
  CHECK(names.intern("0123456789") == 0);
  CHECK(names.intern_shape("[1]") != 0);
  CHECK(names.intern("fc2") != 0);
  CHECK(names.intern("fc3") == 0);
  CHECK(names.intern("fc1") == first);
  CHECK(names.intern("fc1", 1) == 0);
  CHECK(names.intern_shape("[2]") != 0);
  NameTable unbounded;
  for (std::size_t i = 0; i < NameTable::kNamesOfARank.count; ++i) unbounded.intern(std::to_string(i));
  CHECK(unbounded.intern("fc1") != 0);
}

TEST_CASE("threads that intern the same texts agree on every id") {
  NameTable names;
  constexpr int kTexts = 500;
  std::vector<std::vector<std::uint32_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&names, &mine] {
      for (int i = 0; i < kTexts; ++i) mine.push_back(names.intern("text " + std::to_string(i)));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& mine : ids) CHECK(mine == ids.front());
  CHECK(names.size() == kTexts + 1);
}
