// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/slot.h"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include "hone/core/check.h"

namespace hone::nn {
namespace {

constexpr const char* kLayerName = "layer";

template <class Own>
void append(const torch::nn::Module& module, const std::string& prefix, const Own& own,
            std::vector<NamedTensor>& out) {
  for (const auto& item : own(module)) {  // a layer without a bias has an undefined one
    if (item.value().defined()) out.push_back({prefix + item.key(), item.value()});
  }
  const bool is_slot = dynamic_cast<const TransparentHolder*>(&module) != nullptr;
  for (const auto& child : module.named_children()) {
    append(*child.value(), is_slot ? prefix : prefix + child.key() + ".", own, out);
  }
}

// AnyModule compares the arguments of a call with those of forward() before it calls, so that an
// argument of no layer's type shows what the layer takes without running it.
void check_takes_a_tensor(torch::nn::AnyModule layer) {
  struct Probe {};
  try {
    layer.forward(Probe{});
  } catch (const c10::Error& error) {
    const std::string_view problem = error.what_without_backtrace();
    const auto says = [&](std::string_view part) { return problem.find(part) != problem.npos; };
    const bool takes_other = says("argument(s), but received") ||
                             (says("Expected argument #") && !says("of type at::Tensor"));
    if (!takes_other) return;
    fail_argument("Slot", "a layer whose forward() takes one tensor", layer.ptr()->name());
  }
}

}  // namespace

SlotImpl::SlotImpl(torch::nn::AnyModule layer) { set(std::move(layer)); }

void SlotImpl::set(torch::nn::AnyModule layer) {
  HONE_REQUIRE(!layer.is_empty(), "Slot", "There is no layer to hold.");
  check_takes_a_tensor(layer);
  layer_ = std::move(layer);
  calls_ = 0;
  if (named_children().contains(kLayerName)) {
    replace_module(kLayerName, layer_.ptr());
  } else {
    register_module(kLayerName, layer_.ptr());
  }
}

torch::Tensor SlotImpl::forward(const torch::Tensor& x) {
  std::atomic_ref(calls_).fetch_add(1, std::memory_order_relaxed);  // threads may share a model
  return layer_.forward(x);
}

std::shared_ptr<torch::nn::Module> SlotImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::make_shared<SlotImpl>(*this);
  copy->set(layer_.clone(device));
  return copy;
}

std::vector<NamedTensor> parameters_by_path(const torch::nn::Module& model) {
  std::vector<NamedTensor> out;
  append(
      model, "", [](const auto& module) { return module.named_parameters(false); }, out);
  return out;
}

std::vector<NamedTensor> buffers_by_path(const torch::nn::Module& model) {
  std::vector<NamedTensor> out;
  append(
      model, "", [](const auto& module) { return module.named_buffers(false); }, out);
  return out;
}

}  // namespace hone::nn
