// SPDX-License-Identifier: Apache-2.0
#include "tests/training/text_batches.h"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradmon {

std::string default_text() {
  const std::string newest = "/usr/share/common-licenses/GPL-3";
  return std::filesystem::exists(newest) ? newest : "/usr/share/common-licenses/GPL-2";
}

TextBatches::TextBatches(const std::string& path, Shape shape, std::uint64_t seed, int rank) : shape_(shape) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  text_ = text.str();
  if (!file || !text) throw std::runtime_error("cannot read the text " + path);
  if (text_.size() <= static_cast<std::size_t>(shape.context)) {
    throw std::runtime_error(path + " has " + std::to_string(text_.size()) +
                             " bytes: it must be longer than --context " + std::to_string(shape.context));
  }
  std::seed_seq seeds{seed, static_cast<std::uint64_t>(rank)};
  random_.seed(seeds);
}

TextBatch TextBatches::next() {
  TextBatch result{at::empty({shape_.batch, shape_.context}, at::kLong),
                   at::empty({shape_.batch, shape_.context}, at::kLong)};
  auto* input = result.inputs.data_ptr<std::int64_t>();
  auto* target = result.targets.data_ptr<std::int64_t>();
  const auto context = static_cast<std::size_t>(shape_.context);
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::size_t start = random_() % (text_.size() - context);
    for (std::size_t i = start; i < start + context; ++i) {
      *input++ = static_cast<unsigned char>(text_[i]);
      *target++ = static_cast<unsigned char>(text_[i + 1]);
    }
  }
  return result;
}

std::vector<TextBatch> TextBatches::next(std::int64_t count) {
  std::vector<TextBatch> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(next());
  return result;
}

}  // namespace gradmon
