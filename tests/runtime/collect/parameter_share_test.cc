// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/parameter_share.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

// Two by two ranks: 0 and 1 split layers, 0 and 2 are replicas.
ParallelGroups two_by_two(int rank) {
  ParallelGroups groups;
  groups.data = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
  groups.tensor = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  groups.split = [](const std::string& parameter) { return parameter.find("linear") != std::string::npos; };
  return groups;
}

RowAuthor author(int rank, const char* parameter) {
  return share_of(two_by_two(rank), rank, parameter).author;
}

TEST_CASE("a rank without groups writes all its parameters as whole ones") {
  const ParameterShare share = share_of({}, 3, "linear.weight");
  CHECK(share.author == RowAuthor::this_rank);
  CHECK(share.placement.part == ParameterPlacement::Part::whole);
}

TEST_CASE("reduced rows of a data-parallel group are written by its first rank") {
  CHECK(author(0, "linear.weight") == RowAuthor::this_rank);
  CHECK(author(1, "linear.weight") == RowAuthor::this_rank);
  CHECK(author(2, "linear.weight") == RowAuthor::this_rank_unreduced_only);
  CHECK(author(3, "linear.weight") == RowAuthor::this_rank_unreduced_only);
}

TEST_CASE("a parameter that is not split is written by the first rank of the tensor group") {
  CHECK(author(0, "norm.weight") == RowAuthor::this_rank);
  CHECK(author(1, "norm.weight") == RowAuthor::another_rank);
  CHECK(author(2, "norm.weight") == RowAuthor::this_rank_unreduced_only);
  CHECK(author(3, "norm.weight") == RowAuthor::another_rank);
}

TEST_CASE("a split parameter is a shard with index and count and any other is a replica") {
  const ParameterPlacement shard = share_of(two_by_two(3), 3, "linear.weight").placement;
  CHECK(shard.part == ParameterPlacement::Part::shard);
  CHECK(shard.index == 1);
  CHECK(shard.count == 2);
  CHECK(share_of(two_by_two(3), 3, "norm.weight").placement.part == ParameterPlacement::Part::replica);
}

TEST_CASE("invalid groups are refused with the wrong rank") {
  ParallelGroups groups;
  groups.data = {0, 4};
  CHECK(check_groups(groups, 0, 4).error() == "groups.data: rank 4, expected 0 to 3");
  groups.data = {0, 1, 1};
  CHECK(check_groups(groups, 0, 4).error() == "groups.data: duplicate rank 1");
  groups.data = {};
  groups.tensor = {1, 2};
  CHECK(check_groups(groups, 0, 4).error() == "groups.tensor: must contain this process's rank 0");
  groups.tensor = {};
  groups.pipeline = {0, 4};
  CHECK(check_groups(groups, 0, 4).error() == "groups.pipeline: rank 4, expected 0 to 3");
  CHECK(check_groups(two_by_two(1), 1, 4));
}

TEST_CASE("a rank without replicas leaves reduced rows of what other ranks hold and keeps its own") {
  WatchedModel model;
  model.parameters.resize(3);
  model.parameters[1].replicated = false;
  model.parameters[2].author = RowAuthor::another_rank;
  CHECK(effective_author(model.parameters[0], true) == RowAuthor::this_rank_unreduced_only);
  CHECK(effective_author(model.parameters[0], false) == RowAuthor::this_rank);
  CHECK(effective_author(model.parameters[1], true) == RowAuthor::this_rank);
  CHECK(effective_author(model.parameters[2], true) == RowAuthor::another_rank);
}

}  // namespace
}  // namespace gradmon
