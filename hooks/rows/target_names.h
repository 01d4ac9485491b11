// SPDX-License-Identifier: Apache-2.0
// The names of a model's parameters and modules: full, plain, squashed, and in rows. Pure, except for the
// names of a WatchedModel.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hooks/rows/watched_model.h"

namespace gradmon {

// The name of a parameter or module as the model lists it, and the number of its model chunk.
struct TargetName {
  int vpp_stage = 0;
  std::string name;
  bool module = false;         // false: a parameter
  std::string root_name = {};  // of the root module, whose name is empty: root_name(); "" of all others
};

// `name` without the parts that FSDP, torch.compile and checkpointing insert:
// `_fsdp_wrapped_module`, `_orig_mod`, `_checkpoint_wrapped_module`.
std::string unwrapped_name(std::string_view name);

// unwrapped_name() without parts that are `module` or empty. Names are compared in this form.
std::string plain_name(std::string_view name);

// plain_name() of a target of the config; a leading `{vpp}:` (model chunk) stays.
std::string plain_target(std::string_view target);
// `target` without a leading `{vpp}:`.
std::string_view without_stage(std::string_view target);

// The group of the first of these patterns that matches, or `name` if none does:
// `^.*\.(layers?\..*)`, `^.*\.(embeddings?\..*)`, `^.*\.(final.*)`, `^.*\.(output.*)`, `^.*\.(norm.*)`.
std::string squashed_name(std::string_view name);

// The root module's name in rows: the first of `model` and `root` that is no part of the model; "" if both
// are.
std::string root_name(const std::vector<TargetName>& names);

// The names used in records, one for each of `names` (all that the model has), in their order: unwrapped, and
// with Squash::yes all squashed or none. None are if two names of a chunk would become one, or if a parameter
// deeper than its module has no short form: its neighbours would lose the part in front that it keeps.
enum class Squash : bool { no, yes };
std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash);

std::vector<TargetName> parameter_names(const WatchedModel& model);
// Includes the root, whose name is empty and which has a root_name.
std::vector<TargetName> module_names(const std::vector<WatchedModule>& modules);
// The names that targets are matched against: parameters, then modules without the root.
std::vector<TargetName> target_names(const WatchedModel& model);

// record_names() of the parameters and of the modules, each in the model's order.
struct RowNames {
  std::vector<std::string> parameters, modules;
};
std::shared_ptr<const RowNames> row_names(const WatchedModel& model, Squash squash);

struct ModelNames {
  std::vector<TargetName> targets;
  std::shared_ptr<const RowNames> full, squashed;
};
// Call it again after a change of the model.
void keep_names(WatchedModel& model);

// The model's defined parameters, ascending; each tensor once, under its first selected name, otherwise under
// its first name.
std::vector<std::size_t> distinct_parameters(const WatchedModel& model, const std::vector<bool>& selected);

// Keeps one module for each unwrapped_name(). `modules` lists a wrapper before the module that it wraps.
// Keeps the wrapped module; keeps the wrapper if the module is within compiled code (`_orig_mod`,
// within_compiled), whose calls are not observed.
std::vector<WatchedModule> without_wrappers(std::vector<WatchedModule> modules);

// The weight matrix of each module. Immutable.
class MatrixIndex {
 public:
  // `model` must outlive this.
  explicit MatrixIndex(const WatchedModel& model);

  // The module's 2-D parameter `weight`, else `wg`; null if it has none.
  const WatchedParameter* of(const TargetName& module) const;

 private:
  std::map<std::pair<int, std::string>, const WatchedParameter*> matrices_;
};

}  // namespace gradmon
