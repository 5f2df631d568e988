// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/serialize/archive.h>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Options of the wanted class; Error{InvalidArgument} naming the optimiser otherwise.
template <class Wanted>
const Wanted& options_as(const std::string& optimizer,
                         const torch::optim::OptimizerOptions& options) {
  const auto* typed = dynamic_cast<const Wanted*>(&options);
  HONE_CHECK(typed != nullptr, optimizer, concat(optimizer, "Options for every group"),
             "options of another optimiser");
  return *typed;
}

// The fields that hone adds to LibTorch's options.
struct AddedFields {
  bool maximize_ = false;
  Implementation implementation_ = Implementation::Fused;
  StateDtype state_dtype_ = StateDtype::Float32;
};

template <class Derived>
class AddedOptions : public AddedFields {
 public:
  Derived& maximize(bool value) { return set(maximize_, value); }
  Derived& implementation(Implementation value) { return set(implementation_, value); }
  Derived& state_dtype(StateDtype value) { return set(state_dtype_, value); }
  bool maximize() const { return maximize_; }
  Implementation implementation() const { return implementation_; }
  StateDtype state_dtype() const { return state_dtype_; }

 protected:
  template <class T>
  Derived& set(T& field, T value) {
    field = value;
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

// Largest enumerator of each option type.
inline Implementation last_of(Implementation) { return Implementation::Fused; }
inline StateDtype last_of(StateDtype) { return StateDtype::Block8; }

// Visitors that write fields into an archive and read them. Enumerators are integers there; an
// empty optional is absent. With `required`, an absent field is Error{CorruptFile}; else it stays
// as it is (an archive of LibTorch's).
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
      fail_corrupt("optimiser archive", concat("an option ", key), "none");
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
      const std::int64_t number = stored.toInt(), last = static_cast<std::int64_t>(last_of(T{}));
      if (number < 0 || number > last) {
        fail_corrupt("optimiser archive", concat(key, " from 0 to ", last), concat(number));
      }
      field = static_cast<T>(number);
    } else {
      field = stored.to<T>();
    }
    return true;
  }
};

// LibTorch's rule for groups with partial options: a field that still has its constructor's value
// (`fresh`) takes the optimiser's. Options::visit_fields(self, visit) lists the fields.
template <class Options>
void inherit_fields(Options& given, const Options& fresh, const Options& defaults) {
  std::vector<const void*> fresh_fields, default_fields;
  Options::visit_fields(fresh, [&](const char*, const auto& f) { fresh_fields.push_back(&f); });
  Options::visit_fields(defaults,
                        [&](const char*, const auto& f) { default_fields.push_back(&f); });
  std::size_t i = 0;
  Options::visit_fields(given, [&](const char*, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    if (field == *static_cast<const T*>(fresh_fields[i])) {
      field = *static_cast<const T*>(default_fields[i]);
    }
    ++i;
  });
}

// LibTorch's options and those of AddedOptions. LibTorch's own convert, so that only the
// optimiser's name need change. Derived has LibTorch's fields again, returning itself so that calls
// chain, and visit_fields.
template <class Derived, class LibOptions>
struct WrappedOptions : LibOptions, AddedOptions<Derived> {
  using Base = LibOptions;

  WrappedOptions(double lr) : Base(lr) {}                 // NOLINT: as LibTorch's
  WrappedOptions(const Base& options) : Base(options) {}  // NOLINT: conversion by intent

  void serialize(torch::serialize::OutputArchive& archive) const override {
    Base::serialize(archive);
    this->visit_added(*this, FieldWriter{archive});
  }
  void serialize(torch::serialize::InputArchive& archive) override {
    Base::serialize(archive);
    this->visit_added(*this, FieldReader{archive, false});
  }

 protected:
  static Base& base_of(WrappedOptions& self) { return self; }
  static const Base& base_of(const WrappedOptions& self) { return self; }

 private:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// What hone adds to a parameter's state.
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
