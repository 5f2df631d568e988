// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/serialize/archive.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Casts the options to the given class. Throws Error{InvalidArgument} that names the optimizer if
// they have another class.
template <class Expected>
const Expected& options_as(const std::string& optimizer,
                           const torch::optim::OptimizerOptions& options) {
  const auto* typed = dynamic_cast<const Expected*>(&options);
  HONE_CHECK(typed != nullptr, optimizer, concat(optimizer, "Options for every group"),
             "options of another optimizer");
  return *typed;
}

// Casts the state to the given class. Throws Error{Unsupported} if it has another class.
template <class Expected>
Expected& state_as(const char* optimizer, torch::optim::OptimizerParamState& state) {
  auto* typed = dynamic_cast<Expected*>(&state);
  if (typed == nullptr) {
    fail_unsupported(optimizer, "state that it made itself (import_state() takes others')",
                     "state of another class");
  }
  return *typed;
}

// Returns `momentum`, or the first of `betas`; empty for options without either.
template <class Options>
std::optional<double> read_momentum(const Options& options) {
  if constexpr (requires { std::get<0>(options.betas()); }) {
    return std::get<0>(options.betas());
  } else if constexpr (requires { options.momentum(); }) {
    return options.momentum();
  } else {
    return std::nullopt;
  }
}
template <class Options>
void write_momentum(Options& options, double value) {
  if constexpr (requires { std::get<0>(options.betas()); }) {
    options.betas({value, std::get<1>(options.betas())});
  } else if constexpr (requires { options.momentum(value); }) {
    options.momentum(value);
  }
}

// The fields that hone adds to LibTorch's options, and a record of the fields that a program has
// set: bit i is for field i of visit_fields. Copies keep the bits. Archives and JSON contain all
// fields.
struct AddedFields {
  static constexpr std::uint64_t kAllFields = ~std::uint64_t{0};

  virtual ~AddedFields() = default;
  // The momentum that schedules may change: `momentum`, or the first of `betas`. A rule without
  // either returns nothing, and ignores the setter.
  virtual std::optional<double> momentum_of_schedule() const = 0;
  virtual void set_momentum_of_schedule(double value) = 0;

  bool maximize_ = false;
  Implementation implementation_ = Implementation::Fused;
  StateDtype state_dtype_ = StateDtype::Float32;
  std::uint64_t set_fields_ = 0;
};

// Setters of Derived, and constructors that take a learning rate, note what they set.
template <class Derived>
class AddedOptions : public AddedFields {
 public:
  Derived& maximize(bool value) { return set(maximize_, value); }
  Derived& implementation(Implementation value) { return set(implementation_, value); }
  Derived& state_dtype(StateDtype value) { return set(state_dtype_, value); }
  bool maximize() const { return maximize_; }
  Implementation implementation() const { return implementation_; }
  StateDtype state_dtype() const { return state_dtype_; }

  std::optional<double> momentum_of_schedule() const final {
    return read_momentum(static_cast<const Derived&>(*this));
  }
  void set_momentum_of_schedule(double value) final {
    write_momentum(static_cast<Derived&>(*this), value);
  }

 protected:
  template <class T>
  Derived& set(T& field, T value) {
    field = value;
    std::uint64_t bit = 1;
    Derived::visit_fields(static_cast<const Derived&>(*this), [&](const char*, const auto& one) {
      if (static_cast<const void*>(&one) == &field) set_fields_ |= bit;
      bit <<= 1;
    });
    return static_cast<Derived&>(*this);
  }
  // Calls visit(key, field) for each.
  template <class Self, class Visit>
  static void visit_added(Self& self, const Visit& visit) {
    visit("maximize", self.maximize_);
    visit("implementation", self.implementation_);
    visit("state_dtype", self.state_dtype_);
  }
};

// Names of each option type's enumerators, in their order from 0.
constexpr auto names_of(Implementation) {
  return std::to_array<std::string_view>({"for_loop", "foreach", "fused"});
}
constexpr auto names_of(StateDtype) {
  return std::to_array<std::string_view>({"fp32", "bf16", "8bit"});
}

// Visitors that write fields to an archive and read them. Archives store enumerators as integers
// and omit empty optionals. With `required`, a missing field throws Error{CorruptFile}; otherwise
// the field keeps its value (for archives of LibTorch).
struct FieldWriter {
  torch::serialize::OutputArchive& archive;

  template <class T>
  void operator()(const char* key, const T& field) const {
    if constexpr (std::is_enum_v<T>) {
      archive.write(key, c10::IValue(static_cast<std::int64_t>(field)));
    } else {
      archive.write(key, c10::IValue(field));
    }
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& field) const {
    if (field.has_value()) (*this)(key, *field);
  }
};

struct FieldReader {
  torch::serialize::InputArchive& archive;
  bool required = true;

  template <class T>
  void operator()(const char* key, T& field) const {
    if (!read(key, field) && required) {
      fail_corrupt("optimizer archive", concat("an option ", key), "none");
    }
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& field) const {
    T value{};
    field.reset();
    if (read(key, value)) field = value;
  }

 private:
  template <class T>
  bool read(const char* key, T& field) const {
    c10::IValue stored;
    if (!archive.try_read(key, stored)) return false;
    if constexpr (std::is_enum_v<T>) {
      const std::int64_t number = stored.toInt();
      const auto last = static_cast<std::int64_t>(names_of(T{}).size()) - 1;
      if (number < 0 || number > last) {
        fail_corrupt("optimizer archive", concat(key, " from 0 to ", last), concat(number));
      }
      field = static_cast<T>(number);
    } else {
      field = stored.to<T>();
    }
    return true;
  }
};

// Visitors for JSON. Enumerators are names and tuples are arrays. Missing fields keep their values,
// so that Python's groups can be read. A wrong type throws Error{InvalidArgument} that names the
// field.
struct JsonFieldWriter {
  Json& json;

  template <class T>
  void operator()(const char* key, const T& field) const {
    if constexpr (std::is_enum_v<T>) {
      json[key] = names_of(field)[static_cast<std::size_t>(field)];
    } else {
      json[key] = field;
    }
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& field) const {
    if (field.has_value()) (*this)(key, *field);
  }
};

struct JsonFieldReader {
  const Json& json;
  const std::string& where;

  template <class T>
  void operator()(const char* key, T& field) const {
    const auto found = json.find(key);
    if (found != json.end()) read(key, *found, field);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& field) const {
    const auto found = json.find(key);
    field.reset();
    if (found == json.end() || found->is_null()) return;
    read(key, *found, field.emplace());
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json& got) const {
    fail_argument(concat(where, ".", key), expected, got.dump());
  }
  void read(const char* key, const Json& from, double& field) const {
    if (!from.is_number()) refuse(key, "a number", from);
    field = from.get<double>();
  }
  void read(const char* key, const Json& from, std::int64_t& field) const {
    if (!from.is_number_integer()) refuse(key, "an integer", from);
    field = from.get<std::int64_t>();
  }
  void read(const char* key, const Json& from, bool& field) const {
    if (!from.is_boolean()) refuse(key, "true or false", from);
    field = from.get<bool>();
  }
  template <class... Numbers>
  void read(const char* key, const Json& from, std::tuple<Numbers...>& field) const {
    const bool numbers =
        from.is_array() && from.size() == sizeof...(Numbers) &&
        std::all_of(from.begin(), from.end(), [](const Json& item) { return item.is_number(); });
    if (!numbers) refuse(key, concat(sizeof...(Numbers), " numbers"), from);
    field = from.get<std::tuple<Numbers...>>();
  }
  template <class T>
  requires std::is_enum_v<T>
  void read(const char* key, const Json& from, T& field) const {
    constexpr auto kNames = names_of(T{});
    const auto found = std::find(kNames.begin(), kNames.end(),
                                 from.is_string() ? from.get<std::string>() : std::string());
    if (found == kNames.end()) {
      std::string expected(kNames[0]);
      for (std::size_t i = 1; i < kNames.size(); ++i) expected += concat(" or ", kNames[i]);
      refuse(key, expected, from);
    }
    field = static_cast<T>(found - kNames.begin());
  }
};

template <class Options>
Json options_to_json(const Options& options) {
  Json json = Json::object();
  Options::visit_fields(options, JsonFieldWriter{json});
  return json;
}
template <class Options>
std::unique_ptr<Options> options_from_json(const Options& now, const Json& json,
                                           const std::string& where) {
  auto changed = std::make_unique<Options>(now);
  Options::visit_fields(*changed, JsonFieldReader{json, where});
  changed->set_fields_ = AddedFields::kAllFields;
  return changed;
}

// Throws Error{Unsupported} if the decoupled_weight_decay of a saved group differs from that of the
// optimizer `name` and the weight decay is not 0. `other` names the class that supports it.
void check_saved_decay(const Json& group, const std::string& where, const std::string& name,
                       bool decoupled, double weight_decay, const char* other);

// Completes the options of a group. A field that was not set and has its constructor's value
// (`fresh`) takes the optimizer's value. LibTorch's classes do not record what is set, so for them
// the value alone decides. Afterwards all fields count as set.
template <class Options>
void inherit_fields(Options& given, const Options& fresh, const Options& defaults) {
  std::vector<const void*> fresh_fields, default_fields;
  Options::visit_fields(fresh, [&](const char*, const auto& f) { fresh_fields.push_back(&f); });
  Options::visit_fields(defaults,
                        [&](const char*, const auto& f) { default_fields.push_back(&f); });
  std::size_t i = 0;
  Options::visit_fields(given, [&](const char*, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    const bool was_set = (given.set_fields_ >> i & 1) != 0;
    if (!was_set && field == *static_cast<const T*>(fresh_fields[i])) {
      field = *static_cast<const T*>(default_fields[i]);
    }
    ++i;
  });
  given.set_fields_ = AddedFields::kAllFields;
}

// LibTorch's options with the fields of AddedOptions. Converts from LibTorch's own class, so that
// only the name of the optimizer changes in a program. Derived redefines LibTorch's other fields,
// returning itself so that calls chain, and defines visit_fields.
template <class Derived, class LibOptions>
struct WrappedOptions : LibOptions, AddedOptions<Derived> {
  using Base = LibOptions;

  WrappedOptions(double lr) : Base(lr) { WrappedOptions::set_lr(lr); }  // NOLINT: as LibTorch's
  WrappedOptions(const Base& options) : Base(options) {}  // NOLINT: conversion by intent

  Derived& lr(double value) { return this->set(Base::lr(), value); }
  Derived& weight_decay(double value) { return this->set(Base::weight_decay(), value); }
  const double& lr() const { return Base::lr(); }
  const double& weight_decay() const { return Base::weight_decay(); }

  void set_lr(double value) override { lr(value); }

  void serialize(torch::serialize::OutputArchive& archive) const override {
    Base::serialize(archive);
    this->visit_added(*this, FieldWriter{archive});
  }
  void serialize(torch::serialize::InputArchive& archive) override {
    Base::serialize(archive);
    this->visit_added(*this, FieldReader{archive, false});
    this->set_fields_ = AddedFields::kAllFields;
  }

 protected:
  static Base& base_of(WrappedOptions& self) { return self; }
  static const Base& base_of(const WrappedOptions& self) { return self; }

 private:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// Options of a rule that LibTorch does not have. Derived has lr and visit_fields.
template <class Derived>
struct PlainOptions : torch::optim::OptimizerCloneableOptions<Derived>, AddedOptions<Derived> {
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double value) override { static_cast<Derived&>(*this).lr(value); }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    Derived::visit_fields(static_cast<const Derived&>(*this), FieldWriter{archive});
  }
  void serialize(torch::serialize::InputArchive& archive) override {
    Derived::visit_fields(static_cast<Derived&>(*this), FieldReader{archive});
    this->set_fields_ = AddedFields::kAllFields;
  }
};

// The fields that hone adds to the state of a parameter.
template <class Derived, class Base>
struct AddedState : Base {
  TORCH_ARG(torch::Tensor, momentum_scale);
  TORCH_ARG(torch::Tensor, second_moment_scale);
  TORCH_ARG(torch::Tensor, average);

 public:
  void serialize(torch::serialize::OutputArchive& archive) const override {
    Base::serialize(archive);
    const auto write = [&](const char* key, const torch::Tensor& value) {
      if (value.defined()) archive.write(key, value);
    };
    write("momentum_scale", momentum_scale());
    write("second_moment_scale", second_moment_scale());
    write("average", average());
  }
  void serialize(torch::serialize::InputArchive& archive) override {
    Base::serialize(archive);
    for (const auto& [key, value] : {std::pair{"momentum_scale", &momentum_scale()},
                                     std::pair{"second_moment_scale", &second_moment_scale()},
                                     std::pair{"average", &average()}}) {
      torch::Tensor stored;
      if (archive.try_read(key, stored)) *value = stored;
    }
  }

 private:
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

}  // namespace hone::optim
