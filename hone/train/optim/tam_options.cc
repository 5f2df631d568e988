// SPDX-License-Identifier: Apache-2.0
// Presets and state archives of the TAM family.
#include <torch/optim/serialize.h>

#include "hone/core/log.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {

TAMOptions TAMOptions::high_performance(double lr) {
  return TAMOptions(lr).correlation_method(CorrelationMethod::Auto);
}
TAMOptions TAMOptions::stable(double lr) {
  return TAMOptions(lr).correlation_method(CorrelationMethod::Manual).use_inplace_ops(false);
}
TAMOptions TAMOptions::large_model(double lr) {
  return TAMOptions(lr)
      .correlation_method(CorrelationMethod::Vectorized)
      .large_tensor_threshold(500);
}
TAMOptions TAMOptions::memory_limited(double lr) {
  return stable(lr).state_dtype(StateDtype::BFloat16);
}
TAMOptions TAMOptions::for_model_size(double lr, double parameters) {
  HONE_CHECK(parameters >= 0, "TAMOptions::for_model_size", "a number of parameters", parameters);
  if (parameters < 1e8) return TAMOptions(lr).correlation_method(CorrelationMethod::Manual);
  if (parameters <= 1e9) return high_performance(lr).large_tensor_threshold(500);
  log_info("TAM: for more than 1e9 parameters consider mixed precision (hone::amp)");
  return large_model(lr).large_tensor_threshold(200);
}

static constexpr std::string_view kNoLaggedCosine =
    "lagged_cosine was removed: train with the cosine of each step";
static constexpr std::string_view kNoScopeElement =
    "scope element was removed: scopes are model, tensor and row";

void refuse_removed_options(torch::serialize::InputArchive& archive) {
  constexpr std::int64_t kScopeElement = 3;
  c10::IValue stored;
  if (archive.try_read("lagged_cosine", stored) && stored.isBool() && stored.toBool()) {
    fail_unsupported("optimizer archive", kNoLaggedCosine);
  }
  if (archive.try_read("scope", stored) && stored.isInt() && stored.toInt() == kScopeElement) {
    fail_unsupported("optimizer archive", kNoScopeElement);
  }
}
void refuse_removed_options(const Json& group, const std::string& where) {
  if (group.value("lagged_cosine", Json()) == Json(true)) fail_unsupported(where, kNoLaggedCosine);
  if (group.value("scope", Json()) == Json("element")) fail_unsupported(where, kNoScopeElement);
}

void PlainTAMState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(correlation);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(row_correlation);
}
void PlainTAMState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, correlation);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, momentum_buffer);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, row_correlation);
}

}  // namespace hone::optim
