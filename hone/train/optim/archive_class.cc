// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/archive_class.h"

#include <algorithm>
#include <array>

#include "hone/core/check.h"

namespace hone::optim {
namespace {

// An option that tells classes, LibTorch's and hone's, from those that are below it.
struct ClassOption {
  std::string_view option, classes;
};
constexpr std::array<ClassOption, 8> kClassOptions = {{{"decay_rate", "TAM, AdaTAM or AdaTAMW"},
                                                       {"amsgrad", "Adam or AdamW"},
                                                       {"dampening", "SGD"},
                                                       {"lr_decay", "Adagrad"},
                                                       {"centered", "RMSprop"},
                                                       {"ns_steps", "Muon"},
                                                       {"history_size", "LBFGS"},
                                                       {"betas", "Lion"}}};

// Empty for a class that is not in the list.
std::string_view classes_with(const OptionNames& names) {
  const auto found = std::ranges::find_if(
      kClassOptions, [&](const ClassOption& one) { return names.contains(one.option); });
  return found == kClassOptions.end() ? std::string_view() : found->classes;
}

OptionNames saved_names(torch::serialize::InputArchive& archive, const std::string& name) {
  torch::serialize::InputArchive groups, group, options;
  const bool is_optimizer = archive.try_read("param_groups", groups) &&
                            groups.try_read("param_groups/0", group) &&
                            group.try_read("options", options);
  if (!is_optimizer) fail_corrupt(name, "an archive of an optimizer", "one without param_groups");
  const std::vector<std::string> keys = options.keys();
  return {keys.begin(), keys.end()};
}

}  // namespace

void check_archive_class(torch::serialize::InputArchive& archive, const std::string& name,
                         const OptionNames& own) {
  const OptionNames saved = saved_names(archive, name);
  const std::string expected = concat("an archive of ", name);
  const std::string_view classes = classes_with(saved);
  if (classes != classes_with(own)) {
    fail_corrupt(name, expected,
                 classes.empty() ? "one of another optimizer" : concat("one of ", classes));
  }
  if (!classes.empty()) return;
  for (const std::string& option : saved) {
    if (own.contains(option)) continue;
    fail_corrupt(name, expected, concat("one of another optimizer, with the option ", option));
  }
}

}  // namespace hone::optim
