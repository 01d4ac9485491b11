// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/module_structure.h"

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/embedding.h>

#include <nlohmann/json.hpp>

#include "hooks/observe/forward_tracker.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/observed_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr auto kStructure = RecordStream::Document::module_struct;
constexpr auto kStacks = RecordStream::Document::stack_info;

struct TextModel : torch::nn::Module {
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear unused{nullptr};
  TextModel() {
    words = register_module("words", torch::nn::Embedding(10, 4));
    unused = register_module("unused", torch::nn::Linear(2, 2));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& ids, double) {
    const at::Tensor x = observe(*words)(ids);
    return {x.sum(-1), ids};
  }
};

struct PassingModel : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};

HookSettings structure() {
  HookSettings settings;
  settings.module_structure = true;
  return settings;
}

TEST_CASE("a nested tensor has no size in the structure") {
  PassingModel model;
  FakeStream stream;
  HookSet hooks(structure(), watched(model), stream);
  collect(hooks, 1, [&] {
    observe(model)(at::_nested_tensor_from_tensor_list({at::ones({2, 3}), at::ones({4, 3})}));
  });
  CHECK(!hooks.failure());
  CHECK(stream.documents.at(kStructure).find("\"nested, dtype=torch.float32\"") != std::string::npos);
}

TEST_CASE("the structure has the sizes and types of each module's inputs and outputs") {
  TextModel model;
  FakeStream stream;
  HookSet hooks(structure(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  observe(model)(at::arange(3), 0.5).first.sum().backward();
  CHECK(stream.documents.empty());
  hooks.end_step();
  CHECK(!hooks.failure());
  CHECK(stream.records.empty());
  CHECK(stream.documents.count(kStacks) == 0);
  CHECK(stream.documents.at(kStructure) == R"({
    "0:model": {
        "input": {
            "config": "tuple[2]",
            "0": "size=(3,), dtype=torch.int64"
        },
        "output": {
            "config": "tuple[2]",
            "0": "size=(3,), dtype=torch.float32",
            "1": "size=(3,), dtype=torch.int64"
        },
        "input_grad": {
            "config": "tuple[2]",
            "0": "<class 'NoneType'>"
        },
        "output_grad": {
            "config": "tuple[2]",
            "0": "size=(3,), dtype=torch.float32",
            "1": "<class 'NoneType'>"
        }
    },
    "0:words": {
        "input": {
            "config": "tuple[1]",
            "0": "size=(3,), dtype=torch.int64"
        },
        "output": {
            "config": "tensor",
            "tensor": "size=(3, 4), dtype=torch.float32"
        },
        "input_grad": {
            "config": "tuple[1]",
            "0": "<class 'NoneType'>"
        },
        "output_grad": {
            "config": "tuple[1]",
            "0": "size=(3, 4), dtype=torch.float32"
        }
    },
    "0:unused": {}
}
)");
}

TEST_CASE("the structure is that of the first collected forward and is written once") {
  ObservedModel model;
  model.checkpoint = true;
  FakeStream stream;
  HookSet hooks(structure(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  observe(model)(observed_input(5)).sum().backward();
  observe(model)(observed_input(9)).sum().backward();
  hooks.end_step();
  const std::string first = stream.documents.at(kStructure);
  CHECK(first.find("size=(5, 4)") != std::string::npos);
  CHECK(first.find("size=(9, 4)") == std::string::npos);
  const std::size_t fc2 = first.find("\"0:fc2\"");
  CHECK(first.find(
            "\"output_grad\": {\n            \"config\": \"tuple[1]\",\n            \"0\": \"size=(5, 6)",
            fc2) != std::string::npos);
  stream.documents.clear();
  collect(hooks, 2, [&] { observe(model)(observed_input(9)).sum().backward(); });
  CHECK(stream.documents.empty());
}

TEST_CASE_METHOD(ObservedRun, "without a source of stacks a module's stack is the modules around it") {
  HookSettings settings;
  settings.call_stacks = true;
  settings.selection.targets = {"fc1", "relu"};
  HookSet hooks(settings, watched(model), stream);
  collect(hooks, 1, [&] { observe(model)(observed_input()); });
  CHECK(stream.documents.count(kStructure) == 0);
  CHECK(stream.documents.at(kStacks) ==
        "module_name,stack_info\n"
        "0:fc1,\"File @native, line 0, in the model, \n forward \n\"\n"
        "0:relu,\"File @native, line 0, in the model, \n forward \n\"\n");
}

TEST_CASE_METHOD(ObservedRun, "a module's stack comes from the source of stacks and is quoted") {
  HookFuse fuse;
  HookSettings settings;
  settings.call_stacks = true;
  settings.selection.targets = {"relu"};
  const WatchedModel all = watched(model);
  ModuleStructure probe(settings, all, stream, fuse, [] {
    return std::vector<StackFrame>{{"a.py", 3, "forward", "x = f(\"y\")"}, {"b.py", 7, "main", "forward()"}};
  });
  ForwardTracker tracker(all.modules, 1, {&probe}, fuse);
  probe.begin_step({1}, kInCollected);
  tracker.begin_step();
  observe(model)(observed_input());
  tracker.disarm();
  probe.disarm();
  RowWriter rows(stream, {1}, 1);
  probe.write_rows(rows);
  CHECK(stream.documents.at(kStacks) ==
        "module_name,stack_info\n0:relu,\"File a.py, line 3, in forward, \n x = f(\"\"y\"\") \n"
        "File b.py, line 7, in main, \n forward() \n\"\n");
}

TEST_CASE("a gradient that arrives after the structure is written changes nothing") {
  TextModel model;
  FakeStream stream;
  auto hooks = std::make_unique<HookSet>(structure(), watched(model), stream);
  hooks->begin_step({1}, kInCollected);
  const at::Tensor late = observe(model)(at::arange(3), 0.5).first;
  hooks->end_step();
  const auto documents = stream.documents;
  CHECK(documents.at(kStructure).find("output_grad") == std::string::npos);
  SECTION("while the hooks stay attached") {
    hooks->begin_step({2}, kInCollected);
    late.sum().backward();
    hooks->end_step();
    CHECK_FALSE(hooks->failure());
  }
  SECTION("after the hooks are destroyed") {
    hooks.reset();
    late.sum().backward();
  }
  CHECK((stream.documents == documents));
  CHECK(model.words->weight.grad().defined());
}

TEST_CASE("hostile module names are escaped and parsed back unchanged") {
  const std::string long_name(4096, 'x');
  const std::vector<std::string> names{"a/b\\c",  "..",      "x,y\"z\"=", "line\nend\x1b[31m",
                                       long_name, "größe.層"};
  struct Parts : torch::nn::Module {
    std::vector<torch::nn::Linear> parts;
    explicit Parts(std::size_t count) {
      for (std::size_t i = 0; i < count; ++i)
        parts.push_back(register_module("p" + std::to_string(i), torch::nn::Linear(2, 2)));
    }
    at::Tensor forward(at::Tensor x) {
      for (auto& part : parts) x = observe(*part)(x);
      return x;
    }
  };
  Parts model(names.size() + 1);
  WatchedModel named = watched(model);
  for (std::size_t i = 0; i < names.size(); ++i) named.modules.at(i + 1).name = names[i];
  named.modules.back().name = "no \xff text";
  FakeStream stream;
  HookSet hooks(structure(), named, stream);
  collect(hooks, 1, [&] { observe(model)(at::ones({2, 2})).sum().backward(); });
  CHECK(!hooks.failure());
  const auto json = nlohmann::json::parse(stream.documents.at(kStructure));
  CHECK(json.size() == names.size() + 2);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(json.contains("0:" + name));
  }
  CHECK(json.contains("0:no \xef\xbf\xbd text"));
}

}  // namespace
}  // namespace gradmon
