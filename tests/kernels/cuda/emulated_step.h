// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hone/kernels/multi_tensor/cuda/gather_step.h"
#include "hone/kernels/multi_tensor/cuda/rule_policy.h"
#include "hone/kernels/multi_tensor/cuda/update_step.h"
#include "hone/kernels/multi_tensor/cuda/work_list.h"
#include "hone/kernels/multi_tensor/layout/plan.h"

// The device code of a step run on the host: every thread of every block of every launch in a loop.
namespace hone::kernels::cuda::test {

inline std::vector<TensorEntry> entries_of(const MultiTensorPlan& plan) {
  std::vector<TensorEntry> entries(static_cast<std::size_t>(plan.tensors()));
  for (Index i = 0; i < plan.tensors(); ++i) {
    TensorEntry& entry = entries[static_cast<std::size_t>(i)];
    for (int slot = 0; slot < kSlots; ++slot) entry.address[slot] = plan.tensor(i).data(slot);
    entry.elements = plan.tensor(i).elements;
  }
  return entries;
}

inline std::vector<Index> sizes_of(const MultiTensorPlan& plan) {
  std::vector<Index> sizes;
  for (Index i = 0; i < plan.tensors(); ++i) sizes.push_back(plan.tensor(i).elements);
  return sizes;
}

// Calls run(arguments, block) for every block, by structs or by one table.
template <class Table, class Run>
void for_each_block(const WorkList& list, const std::vector<TensorEntry>& entries,
                    const PassArguments& pass, const Run& run) {
  if constexpr (std::is_same_v<Table, DeviceTable>) {
    const auto blocks = list.all_blocks();
    ListArguments<Table> a;
    a.pass = pass;
    a.chunk_elements = list.chunk_elements();
    a.table = {entries.data(), blocks.data()};
    for (int b = 0; b < list.blocks(); ++b) run(a, b);
  } else {
    auto a = std::make_unique<ListArguments<Table>>();
    a->pass = pass;
    a->chunk_elements = list.chunk_elements();
    for (const TableRange& range : list.split(Table::kTensors, Table::kBlocks)) {
      a->first_tensor = range.first_tensor;
      a->first_block = range.first_block;
      fill_table(list, entries, range, a->table);
      for (int b = 0; b < range.blocks; ++b) run(*a, b);
    }
  }
}

using AllSlots = StructTable<1, kParam, kGrad, kMomentum, kSecondMoment, kExtra, kEma, kCopy>;

// Sums of pass 1, chunk by chunk: threads in order, which the device adds as a tree.
template <Statistics kKind, class G, class Table>
std::vector<double> gather(const WorkList& list, const std::vector<TensorEntry>& entries) {
  std::vector<double> sums(static_cast<std::size_t>(list.blocks()) * kSums<kKind>, 0.0);
  for_each_block<Table>(list, entries, {}, [&](const auto& a, int block) {
    double* to = sums.data() + (a.first_block + block) * kSums<kKind>;
    for (int thread = 0; thread < kBlockThreads; ++thread) {
      double own[6] = {};
      gather_thread<kKind, G>(a, block, thread, kBlockThreads, own);
      for (int s = 0; s < kSums<kKind>; ++s) to[s] += own[s];
    }
  });
  return sums;
}

// Whether this table carries moving averages and copies.
template <class Table>
constexpr bool carries_copies() {
  if constexpr (std::is_same_v<Table, DeviceTable>) {
    return true;
  } else {
    return Table::position(kEma) >= 0;
  }
}

// Pass 2 with everything that follows the rule, as far as the table carries it.
template <class Policy, class G, class C, class Table>
void update(const WorkList& list, const std::vector<TensorEntry>& entries, const Control& control,
            const std::vector<typename Policy::Scalars>& scalars) {
  for_each_block<Table>(
      list, entries, {&control, scalars.data(), nullptr}, [&](const auto& a, int block) {
        for (int thread = 0; thread < kBlockThreads; ++thread) {
          update_thread<Policy, G, C, carries_copies<Table>()>(a, block, thread, kBlockThreads);
        }
      });
}

// What a stepper keeps in device memory, and its step: pass 1, scalars, pass 2.
template <class Policy, class G = float, class C = BF16>
struct EmulatedStepper {
  std::vector<typename Policy::Group> groups;
  std::vector<double> correlation = {};
  Control control = {};

  template <class Table>
  void step(const MultiTensorPlan& plan, Index chunk) {
    const WorkList list(sizes_of(plan), chunk);
    const auto entries = entries_of(plan);
    const auto tensors = static_cast<std::size_t>(plan.tensors());
    constexpr auto kKind = Policy::kTorque ? Statistics::TorqueWithDecay : Statistics::Norm;
    const auto chunks = gather<kKind, G, Table>(list, entries);
    std::vector<TorqueSums> sums(tensors);
    double total = 0;
    Index first_bad = -1;
    for (std::size_t i = 0; i < tensors; ++i) {
      double own[6] = {};
      for (Index b = list.first_block(static_cast<Index>(i));
           b < list.first_block(static_cast<Index>(i) + 1); ++b) {
        for (int s = 0; s < kSums<kKind>; ++s) {
          own[s] += chunks[static_cast<std::size_t>(b * kSums<kKind> + s)];
        }
      }
      sums[i] = sums_of(own, 6);
      total += sums[i].gg;
      if (!std::isfinite(sums[i].gg) && first_bad < 0) first_bad = static_cast<Index>(i);
    }
    control.results = {};
    if (needs_global_norm(control.values)) {
      control.results = finish_norm(control.values, 1, total, first_bad);
    }
    std::vector<std::uint16_t> group_of(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      group_of[i] = plan.tensor(static_cast<Index>(i)).group;
    }
    correlation.resize(tensors);
    std::vector<typename Policy::Scalars> scalars(tensors);
    const PrepareArguments<Policy> prepare{
        &control,       groups.data(), group_of.data(), plan.step().data(), correlation.data(),
        scalars.data(), false};
    for (std::size_t i = 0; i < tensors; ++i) {
      prepare_tensor(prepare, static_cast<Index>(i), sums[i]);
    }
    update<Policy, G, C, Table>(list, entries, control, scalars);
  }
};

}  // namespace hone::kernels::cuda::test
