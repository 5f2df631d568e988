// SPDX-License-Identifier: Apache-2.0
// Archives and inheritance of the TAM family's options and state, from one list of fields each.
#include <torch/optim/serialize.h>

#include <type_traits>

#include "hone/train/optim/option_fields.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

template <class T>
constexpr T kLast = T{};
template <>
constexpr Implementation kLast<Implementation> = Implementation::Fused;
template <>
constexpr TAMScope kLast<TAMScope> = TAMScope::Tensor;
template <>
constexpr CorrelationMethod kLast<CorrelationMethod> = CorrelationMethod::CosineSimilarity;

struct Writer {
  torch::serialize::OutputArchive& archive;

  template <class T>
  void operator()(const char* key, const T& field) const {
    if constexpr (std::is_same_v<T, std::optional<CorrelationMethod>>) {
      if (field.has_value()) write_enum(archive, key, *field);
    } else if constexpr (std::is_enum_v<T>) {
      write_enum(archive, key, field);
    } else {
      archive.write(key, c10::IValue(field));
    }
  }
};

struct Reader {
  torch::serialize::InputArchive& archive;

  template <class T>
  void operator()(const char* key, T& field) const {
    if constexpr (std::is_same_v<T, std::optional<CorrelationMethod>>) {
      CorrelationMethod method{};
      field.reset();
      if (read_enum(archive, key, kLast<CorrelationMethod>, method)) field = method;
    } else if constexpr (std::is_enum_v<T>) {
      if (!read_enum(archive, key, kLast<T>, field)) fail_missing(key);
    } else {
      c10::IValue stored;
      if (!archive.try_read(key, stored)) fail_missing(key);
      field = stored.to<T>();
    }
  }
  [[noreturn]] static void fail_missing(const char* key) {
    fail_corrupt("optimiser archive", concat("an option ", key), "none");
  }
};

}  // namespace

template <class Self, class Visit>
void TAMOptions::visit_fields(Self& self, const Visit& visit) {
  visit("lr", self.lr_);
  visit("momentum", self.momentum_);
  visit("decay_rate", self.decay_rate_);
  visit("eps", self.eps_);
  visit("weight_decay", self.weight_decay_);
  visit("decoupled_weight_decay", self.decoupled_weight_decay_);
  visit("correlation_method", self.correlation_method_);
  visit("scope", self.scope_);
  visit("eps_norm", self.eps_norm_);
  visit("eps_corr", self.eps_corr_);
  visit("use_inplace_ops", self.use_inplace_ops_);
  visit("verbose", self.verbose_);
  visit("maximize", self.maximize_);
  visit("implementation", self.implementation_);
}

template <class Self, class Visit>
void AdaTAMWOptions::visit_fields(Self& self, const Visit& visit) {
  visit("lr", self.lr_);
  visit("momentum", self.momentum_);
  visit("beta2", self.beta2_);
  visit("decay_rate", self.decay_rate_);
  visit("eps", self.eps_);
  visit("weight_decay", self.weight_decay_);
  visit("correlation_method", self.correlation_method_);
  visit("scope", self.scope_);
  visit("eps_norm", self.eps_norm_);
  visit("eps_corr", self.eps_corr_);
  visit("use_inplace_ops", self.use_inplace_ops_);
  visit("verbose", self.verbose_);
  visit("maximize", self.maximize_);
  visit("implementation", self.implementation_);
}

namespace {

// Takes the other options' value of every field that still has its constructor's.
template <class Options, class VisitFields>
void inherit_fields(Options& given, const Options& defaults, const VisitFields& visit_fields) {
  const Options fresh(given.lr());
  std::vector<const void*> fresh_fields, default_fields;
  visit_fields(fresh, [&](const char*, const auto& field) { fresh_fields.push_back(&field); });
  visit_fields(defaults, [&](const char*, const auto& field) { default_fields.push_back(&field); });
  std::size_t i = 0;
  const double own_lr = given.lr();
  visit_fields(given, [&](const char*, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    const T& untouched = *static_cast<const T*>(fresh_fields[i]);
    field = inherit_field(field, untouched, *static_cast<const T*>(default_fields[i]));
    ++i;
  });
  given.lr(own_lr);
}

}  // namespace

void TAMOptions::inherit(const TAMOptions& defaults) {
  inherit_fields(*this, defaults,
                 [](auto& self, const auto& visit) { TAMOptions::visit_fields(self, visit); });
}
void TAMOptions::serialize(torch::serialize::OutputArchive& archive) const {
  visit_fields(*this, Writer{archive});
}
void TAMOptions::serialize(torch::serialize::InputArchive& archive) {
  visit_fields(*this, Reader{archive});
}

void AdaTAMWOptions::inherit(const AdaTAMWOptions& defaults) {
  inherit_fields(*this, defaults,
                 [](auto& self, const auto& visit) { AdaTAMWOptions::visit_fields(self, visit); });
}
void AdaTAMWOptions::serialize(torch::serialize::OutputArchive& archive) const {
  visit_fields(*this, Writer{archive});
}
void AdaTAMWOptions::serialize(torch::serialize::InputArchive& archive) {
  visit_fields(*this, Reader{archive});
}

void TAMParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(correlation);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}
void TAMParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, correlation);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, momentum_buffer);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(torch::Tensor, exp_avg_sq);
}

}  // namespace hone::optim
