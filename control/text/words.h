// SPDX-License-Identifier: Apache-2.0
// Words for people: of ranks and alerts, and how far apart two words are. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// "rank 3", "ranks 1, 2"; of more than `most`, those and the number of the others.
std::string names_of_ranks(const std::vector<int>& ranks, std::size_t most = 20);

// With at most so many significant digits: "0.086". "nan" for any NaN, also for a NaN with a sign.
std::string number_text(double value, int digits);

// The series of an alert: "gradient norm of head.output" for the tag "0:head.output:0/rank0/actv_grad" and
// the statistic "norm"; "loss" for a training scalar. The tag itself if it has another form.
std::string series_text(std::string_view tag_name, std::string_view op);

// Levenshtein distance: the number of bytes to insert, remove or replace to turn `a` into `b`. Returns
// limit + 1 for any distance above `limit`. Pure.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);

}  // namespace gradmon
