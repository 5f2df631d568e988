// SPDX-License-Identifier: Apache-2.0
// Saving, loading and checking the state of MultiTensorOptimizer.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/optim/option_fields.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::optim {
namespace {

torch::Tensor int_scalar(std::int64_t value) {
  return at::scalar_tensor(value, at::TensorOptions(at::kLong));
}

void check_scalar(const std::string& op, const std::string& what, const torch::Tensor& value,
                  at::ScalarType type) {
  const bool fits = value.defined() && value.numel() == 1 && value.scalar_type() == type;
  HONE_CHECK(fits, op, concat(what, " as one ", at::toString(type)),
             value.defined() ? concat(value.numel(), " of ", at::toString(value.scalar_type()))
                             : std::string("none"));
}

// fp32, bf16 or codes with their scales, of the parameter's shape.
void check_moment(const std::string& op, const std::string& what, const torch::Tensor& value,
                  const torch::Tensor& scale, const torch::Tensor& param) {
  HONE_CHECK(value.defined(), op, what, "none");
  const at::ScalarType type = value.scalar_type();
  const bool code = is_code(type);
  HONE_CHECK(code || type == at::kFloat || type == at::kBFloat16, op,
             concat(what, " in fp32, bf16 or codes"), at::toString(type));
  HONE_CHECK(value.sizes().equals(param.sizes()), op,
             concat(what, " of shape ", c10::str(param.sizes())), c10::str(value.sizes()));
  if (!code) return;
  const Index blocks = ceil_div(param.numel(), kernels::kCodeBlock);
  HONE_CHECK(scale.defined() && scale.scalar_type() == at::kFloat && scale.numel() == blocks, op,
             concat(blocks, " fp32 scales for ", what),
             scale.defined() ? concat(scale.numel(), " of ", at::toString(scale.scalar_type()))
                             : std::string("none"));
}

std::string scale_name(const std::string& moment) { return moment + "_scale"; }
std::string strides_name(const std::string& moment) { return moment + "_strides"; }

torch::Tensor strides_of(const torch::Tensor& value) {
  return at::tensor(value.strides(), at::TensorOptions(at::kLong));
}

// Whether the strides visit each element of one dense block once.
bool are_dense(at::IntArrayRef sizes, std::span<const Index> strides) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) order.push_back(d);
  }
  std::ranges::sort(order, {}, [&](std::size_t d) { return strides[d]; });
  Index expected = 1;
  return std::ranges::all_of(order, [&](std::size_t d) {
    const bool fits = strides[d] == expected;
    expected *= sizes[d];
    return fits;
  });
}

// Codes as they lay in memory when they were saved, since scales belong to blocks of memory. State
// of earlier versions has no strides; it lay like the parameter.
torch::Tensor as_saved(const std::string& op, const std::string& what, const torch::Tensor& codes,
                       const torch::Tensor& strides, const torch::Tensor& param) {
  if (!strides.defined()) return copy_like(codes, param, at::kCPU);
  const bool typed = strides.scalar_type() == at::kLong && strides.numel() == codes.dim();
  const torch::Tensor host = strides.to(at::kCPU).contiguous();
  const std::span<const Index> given(typed ? host.data_ptr<Index>() : nullptr,
                                     typed ? static_cast<std::size_t>(host.numel()) : 0);
  HONE_CHECK(typed && (codes.numel() == 0 || are_dense(codes.sizes(), given)), op,
             concat("strides of one dense block for ", what), c10::str(strides));
  const torch::Tensor out = at::empty_strided(
      codes.sizes(), at::IntArrayRef(given.data(), given.size()), codes.options().device(at::kCPU));
  out.copy_(codes);
  return out;
}

// Keeps the bits if type and, for codes, layout already match, otherwise rounds to nearest.
void adopt_moment(const torch::Tensor& value, const torch::Tensor& scale,
                  const torch::Tensor& param, at::ScalarType type, torch::Tensor& to,
                  torch::Tensor& to_scale) {
  if (value.scalar_type() == type && (!is_code(type) || same_layout(value, param))) {
    to = copy_like(value, param);
    if (scale.defined()) to_scale = scale.to(at::kCPU).clone();
    return;
  }
  const torch::Tensor wide =
      value.scalar_type() == at::kFloat ? value : decode_moment(value, scale);
  encode_moment(wide, param, type, to, to_scale);
}

torch::Tensor tensor_of(std::span<const double> numbers) {
  if (numbers.size() == 1) return at::scalar_tensor(numbers[0], at::TensorOptions(at::kDouble));
  const torch::Tensor all =
      at::empty({static_cast<Index>(numbers.size())}, at::TensorOptions(at::kDouble));
  std::copy(numbers.begin(), numbers.end(), all.data_ptr<double>());
  return all;
}

void take_numbers(const std::string& op, const std::string& what, const torch::Tensor& value,
                  std::span<double> to) {
  if (to.size() == 1) {
    check_scalar(op, what, value, at::kDouble);
  } else {
    const bool fits = value.defined() && value.scalar_type() == at::kDouble && value.dim() == 1 &&
                      value.numel() == static_cast<Index>(to.size());
    HONE_CHECK(fits, op, concat(what, " in fp64, one per row"),
               value.defined() ? concat(at::toString(value.scalar_type()), " of shape ",
                                        c10::str(value.sizes()))
                               : std::string("none"));
  }
  const torch::Tensor host = value.to(at::kCPU).contiguous();
  std::copy_n(host.data_ptr<double>(), to.size(), to.begin());
}

// An archive may come from another device, and from parameters of another layout, by whose blocks
// codes are then encoded again. Scales are the CPU's, as all state in fewer than 32 bits.
void bring_to(const torch::Tensor& param, torch::Tensor& value, torch::Tensor* scale) {
  if (scale != nullptr && scale->defined()) *scale = scale->to(at::kCPU);
  if (param.is_cpu() && is_code(value.scalar_type()) && !same_layout(value, param)) {
    encode_moment(decode_moment(value, *scale), param, value.scalar_type(), value, *scale);
  }
  if (!param.is_cpu() && value.scalar_type() != at::kFloat) {
    value = decode_moment(value, scale != nullptr ? *scale : torch::Tensor());
    if (scale != nullptr) *scale = torch::Tensor();
  }
  const bool fits = same_layout(value, param) && value.device() == param.device();
  if (!fits) value = copy_like(value, param);
}

void check_step(const std::string& op, Index parameter, std::int64_t step) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  HONE_CHECK(step >= 0 && step <= kMost, op,
             concat("step of parameter ", parameter, " in [0, 2^53]"), step);
}

}  // namespace

// A slot that a group does not use is zero, unless the group used it before.
static bool holds_numbers(const torch::Tensor* value) {
  return value != nullptr && value->defined() && value->ne(0).any().item<bool>();
}

std::vector<NamedState> MultiTensorOptimizer::export_state() const {
  fetch_state();
  const StateNames names = state_names();
  std::vector<NamedState> all;
  for_each_parameter(param_groups_, [&](std::size_t g, const torch::Tensor& param, Index index) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    if (found == state_.end()) return;
    const Options& options = param_groups_[g].options();
    const StateFields fields = fields_of(*found->second);
    all.push_back({index, "step", int_scalar(*fields.step)});
    const auto add = [&](const std::string& field, const torch::Tensor* value) {
      if (value != nullptr && value->defined()) all.push_back({index, field, *value});
    };
    const auto add_moment = [&](const char* field, const torch::Tensor* value,
                                const torch::Tensor* scale) {
      add(field, value);
      add(scale_name(field), scale);
      if (scale != nullptr && scale->defined() && value->dim() > 1) {
        all.push_back({index, strides_name(field), strides_of(*value)});
      }
    };
    const SlotUse use = slots_of(options);
    if (use.momentum || holds_numbers(fields.momentum)) {
      add_moment(names.momentum, fields.momentum, fields.momentum_scale);
    }
    add_moment(names.second_moment, fields.second_moment, fields.second_moment_scale);
    if (use.extra || holds_numbers(fields.extra)) add(names.extra, fields.extra);
    add("average", fields.average);
    if (*names.own == '\0') return;
    const Index count = count_own(param, options);
    all.push_back({index, names.own, tensor_of(own_numbers(*found->second, count))});
  });
  return all;
}

void MultiTensorOptimizer::import_state(std::span<const NamedState> state) {
  const c10::NoGradGuard no_grad;
  std::vector<torch::Tensor> params;
  std::vector<const Options*> options;
  for (const auto& group : param_groups_) {
    params.insert(params.end(), group.params().begin(), group.params().end());
    options.resize(params.size(), &group.options());
  }
  const auto options_of = [&](Index i) -> const Options& {
    return *options[static_cast<std::size_t>(i)];
  };
  std::map<Index, std::map<std::string, torch::Tensor>> by_parameter;
  for (const NamedState& item : state) {
    HONE_CHECK(item.parameter >= 0 && item.parameter < static_cast<Index>(params.size()), name_,
               concat("state of a parameter below ", params.size()), item.parameter);
    HONE_CHECK(by_parameter[item.parameter].emplace(item.name, item.value).second, name_,
               concat(item.name, " of parameter ", item.parameter, " once"), "it twice");
    check_imported(item);
  }
  const StateNames names = state_names();
  std::vector<std::pair<void*, std::unique_ptr<ParamState>>> fresh;
  for (auto& [index, given] : by_parameter) {
    const torch::Tensor& param = params[static_cast<std::size_t>(index)];
    const auto label = [&, i = index](const std::string& name) {
      return concat(name, " of parameter ", i);
    };
    std::unique_ptr<ParamState> made = make_state();
    const StateFields fields = fields_of(*made);
    const auto take = [&](const std::string& name) {
      const auto found = given.find(name);
      HONE_CHECK(found != given.end(), name_, label(name), "none");
      const torch::Tensor value = found->second;
      given.erase(found);
      return value;
    };
    const torch::Tensor step = take("step");
    check_scalar(name_, label("step"), step, at::kLong);
    *fields.step = step.item<std::int64_t>();
    check_step(name_, index, *fields.step);
    const auto take_moment = [&](bool used, const char* name, torch::Tensor* to,
                                 torch::Tensor* scale, at::ScalarType type) {
      if (to == nullptr || (!used && !given.contains(name))) return;
      torch::Tensor value = take(name);
      const auto take_beside = [&](const std::string& beside) {
        return given.contains(beside) ? take(beside) : torch::Tensor();
      };
      const torch::Tensor its_scale = take_beside(scale_name(name));
      const torch::Tensor its_strides = take_beside(strides_name(name));
      check_moment(name_, label(name), value, its_scale, param);
      if (its_scale.defined()) value = as_saved(name_, label(name), value, its_strides, param);
      adopt_moment(value, its_scale, param, type, *to, *scale);
    };
    const SlotUse use = slots_of(options_of(index));
    const StateDtype dtype = state_dtype_for(param, param, options_of(index));
    take_moment(use.momentum, names.momentum, fields.momentum, fields.momentum_scale,
                moment_type(dtype, false));
    take_moment(use.second_moment, names.second_moment, fields.second_moment,
                fields.second_moment_scale, moment_type(dtype, true));
    if (*names.own != '\0') {
      take_numbers(name_, label(names.own), take(names.own),
                   own_numbers(*made, count_own(param, options_of(index))));
    }
    torch::Tensor unused;
    take_moment(use.extra, names.extra, fields.extra, &unused, at::kFloat);
    take_moment(false, "average", fields.average, &unused, at::kFloat);
    HONE_CHECK(given.empty(), name_, concat("state that ", name_, " has"),
               label(given.begin()->first));
    fresh.emplace_back(param.unsafeGetTensorImpl(), std::move(made));
  }
  drop_device_state();
  state_.clear();
  for (auto& [key, value] : fresh) state_[key] = std::move(value);
}

void check_saved_decay(const Json& group, const std::string& where, const std::string& name,
                       bool decoupled, double weight_decay, const char* other) {
  const auto found = group.find("decoupled_weight_decay");
  if (found == group.end()) return;
  if (!found->is_boolean()) {
    fail_argument(concat(where, ".decoupled_weight_decay"), "true or false", found->dump());
  }
  if (found->get<bool>() == decoupled || weight_decay == 0) return;
  fail_unsupported(where, concat("A weight_decay of ", weight_decay, " with ",
                                 "decoupled_weight_decay = ", decoupled ? "false" : "true",
                                 " is not what hone::optim::", name, " computes",
                                 *other == '\0' ? "" : "; hone::optim::", other,
                                 *other == '\0' ? "." : " does."));
}

Json MultiTensorOptimizer::param_groups_json() const {
  Json groups = Json::array();
  Index parameter = 0;
  for (const auto& group : param_groups_) {
    Json json = json_of(group.options());
    json["params"] = Json::array();
    for (std::size_t i = 0; i < group.params().size(); ++i) json["params"].push_back(parameter++);
    groups.push_back(std::move(json));
  }
  return groups;
}

void MultiTensorOptimizer::import_all(const Json& param_groups, std::span<const NamedState> state) {
  HONE_CHECK(param_groups.is_array() && param_groups.size() == param_groups_.size(), name_,
             concat(param_groups_.size(), " param_groups"),
             param_groups.is_array() ? concat(param_groups.size()) : param_groups.type_name());
  std::vector<std::unique_ptr<Options>> options;
  Index position = 0;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const std::string where = concat("param_groups[", g, "]");
    const Json& json = param_groups[g];
    HONE_CHECK(json.is_object(), where, "an object", json.type_name());
    const Json params = json.value("params", Json::array());
    const std::size_t count = param_groups_[g].params().size();
    HONE_CHECK(params.is_array() && params.size() == count, where, concat(count, " parameters"),
               params.size());
    for (const Json& given : params) {
      HONE_CHECK(given == position, where, concat("params in order, with ", position),
                 given.dump().substr(0, 40));
      ++position;
    }
    options.push_back(with_json(param_groups_[g].options(), json, where));
    check_group({param_groups_[g].params(), options.back()->clone()});
  }
  // What state must be depends on the options, so they go first.
  const auto exchange = [&] {
    for (std::size_t g = 0; g < options.size(); ++g) {
      std::unique_ptr<Options> now = param_groups_[g].options().clone();
      param_groups_[g].set_options(std::move(options[g]));
      options[g] = std::move(now);
    }
  };
  exchange();
  try {
    check_groups_agree();
    import_state(state);
  } catch (...) {
    exchange();
    throw;
  }
}

void MultiTensorOptimizer::check_state_fits() const {
  const StateNames names = state_names();
  for (const auto& group : param_groups_) check_group(group);
  for_each_parameter(param_groups_, [&](std::size_t g, const torch::Tensor& param, Index index) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    if (found == state_.end()) return;
    const StateFields fields = fields_of(*found->second);
    const bool has_stepped = *fields.step > 0;
    const auto check = [&](const char* field, torch::Tensor* value, torch::Tensor* scale) {
      const bool needed = has_stepped && value == fields.second_moment;
      if (value == nullptr || (!needed && !value->defined())) return;
      check_moment(name_, concat(field, " of parameter ", index), *value,
                   scale != nullptr ? *scale : torch::Tensor(), param);
      bring_to(param, *value, scale);
    };
    check(names.momentum, fields.momentum, fields.momentum_scale);
    check(names.second_moment, fields.second_moment, fields.second_moment_scale);
    check(names.extra, fields.extra, nullptr);
    check("average", fields.average, nullptr);
    own_numbers(*found->second, count_own(param, param_groups_[g].options()));
    check_step(name_, index, *fields.step);
  });
}

void MultiTensorOptimizer::load_or_restore(const std::function<void()>& load) {
  const c10::NoGradGuard no_grad;
  fetch_state();
  drop_device_state();
  auto kept = std::move(state_);
  state_.clear();
  std::vector<std::unique_ptr<Options>> options;
  for (const auto& group : param_groups_) options.push_back(group.options().clone());
  const auto restore = [&] {
    state_ = std::move(kept);
    for (std::size_t g = 0; g < options.size(); ++g) {
      param_groups_[g].set_options(std::move(options[g]));
    }
  };
  const auto refuse = [&](const char* why) {
    restore();
    fail_corrupt(name_, "an archive of this optimizer and these parameters", why);
  };
  try {
    load();
    check_groups_agree();
    check_state_fits();
  } catch (const Error&) {
    restore();
    throw;
  } catch (const c10::Error& error) {
    // An assertion is about LibTorch's code, not about the archive.
    const std::string why = error.what_without_backtrace();
    const bool is_assertion = why.find("INTERNAL ASSERT") != std::string::npos;
    refuse(is_assertion ? "one that lacks a value or is of another version" : why.c_str());
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

}  // namespace hone::optim
