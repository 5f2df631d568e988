// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/layer_facts.h"

#include <mutex>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::nn {
namespace {

constexpr Index kMaxFactorSize = Index{1} << 30;

struct WarningReceiver {
  std::mutex mutex;
  LayerWarning receiver;
};
WarningReceiver& warning_receiver() {
  static WarningReceiver receiver;
  return receiver;
}

}  // namespace

Index bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<Index>(tensor.nbytes()) : 0;
}

LayerWarning set_layer_warning(LayerWarning receiver) {
  WarningReceiver& now = warning_receiver();
  const std::scoped_lock lock(now.mutex);
  return std::exchange(now.receiver, std::move(receiver));
}

void check_size(std::string_view layer, const FactorSize& size) {
  const auto is_valid = [](Index n) { return n >= 1 && n <= kMaxFactorSize; };
  HONE_CHECK(is_valid(size.inputs) && is_valid(size.outputs), layer,
             "inputs and outputs in [1, 2^30]", concat(size.inputs, " and ", size.outputs));
  HONE_CHECK(is_valid(size.rank), layer, "a rank in [1, 2^30]", size.rank);
}

void warn_past_break_even(std::string_view layer, const FactorSize& size) {
  if (!size.is_past_break_even()) return;
  const std::string text = concat(
      layer, " of ", size.inputs, " inputs and ", size.outputs, " outputs at rank ", size.rank,
      " has ", size.numbers(), " numbers, the dense layer only ", size.inputs * size.outputs, ".");
  LayerWarning receiver;
  {
    WarningReceiver& now = warning_receiver();
    const std::scoped_lock lock(now.mutex);
    receiver = now.receiver;
  }
  receiver ? receiver(text) : log_warning(text);
}

}  // namespace hone::nn
