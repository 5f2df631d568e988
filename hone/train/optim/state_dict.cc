// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/state_dict.h"

#include <ATen/Functions.h>

#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

#include "hone/core/check.h"
#include "hone/train/tensor_file.h"

namespace hone::optim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "state.";
constexpr const char* kTensors = "optimizer.safetensors";
constexpr const char* kGroups = "optimizer.json";
constexpr std::int64_t kExactInFloat = std::int64_t{1} << 24;

torch::Tensor step_for_python(const torch::Tensor& step) {
  return step.item<std::int64_t>() < kExactInFloat ? step.to(at::kFloat) : step;
}

NamedState parse(const NamedTensor& tensor, const std::string& file) {
  const std::string_view name = tensor.name;
  NamedState out;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kPrefix)) {
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, out.parameter);
    if (parsed.ec == std::errc() && parsed.ptr + 1 < end && *parsed.ptr == '.') {
      out.name.assign(parsed.ptr + 1, end);
    }
  }
  if (out.name.empty()) fail_corrupt(file, "tensors state.<parameter>.<name>", tensor.name);
  out.value = tensor.value;
  if (out.name != "step") return out;
  const double step = out.value.numel() == 1 ? out.value.to(at::kDouble).item<double>() : -1;
  if (!(step >= 0 && step <= 0x1p53 && step == std::floor(step))) {
    fail_corrupt(file, concat(tensor.name, " as a number of steps"), concat(step));
  }
  out.value = out.value.to(at::kLong).reshape({});
  return out;
}

}  // namespace

void save_state_dict(const fs::path& folder, const MultiTensorOptimizer& optimizer) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCategory::Io, folder.string(), "to make the folder", error.message());
  std::vector<NamedTensor> tensors;
  for (const NamedState& entry : optimizer.export_state()) {
    tensors.push_back({concat(kPrefix, entry.parameter, ".", entry.name),
                       entry.name == "step" ? step_for_python(entry.value) : entry.value});
  }
  write_tensors(folder / kTensors, tensors);
  write_json_file(folder / kGroups, {{"param_groups", optimizer.param_groups_json()}});
}

void load_state_dict(const fs::path& folder, MultiTensorOptimizer& optimizer) {
  const Json json = read_json_file(folder / kGroups);
  const MmapFile file(folder / kTensors);
  const std::string path = file.path().string();
  std::vector<NamedState> state;
  std::set<Index> all, counted;
  for (const NamedTensor& tensor : read_tensors(file)) {
    state.push_back(parse(tensor, path));
    all.insert(state.back().parameter);
    if (state.back().name == "step") counted.insert(state.back().parameter);
  }
  for (const Index parameter : all) {
    if (counted.contains(parameter)) continue;
    state.push_back({parameter, "step", at::scalar_tensor(1, at::TensorOptions(at::kLong))});
  }
  optimizer.import_all(json.is_object() ? json.value("param_groups", Json()) : Json(), state);
}

}  // namespace hone::optim
