// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/cuda/runtime.cuh"
#include "hone/kernels/multi_tensor/cuda/cuda_step.h"
#include "hone/kernels/multi_tensor/cuda/gather_step.h"
#include "hone/kernels/multi_tensor/cuda/work_list.h"

// Launches one kernel over a list by any transport.
namespace hone::kernels::cuda {

// The list and its tables, for launches.
struct LaunchContext {
  const WorkList* list = nullptr;
  std::span<const TensorEntry> entries;
  Transport transport = Transport::DeviceTable;
  const TensorEntry* device_entries = nullptr;  // DeviceTable
  const BlockEntry* device_blocks = nullptr;
  Stream stream;
  CudaStepReport* report = nullptr;
};

template <class Table>
ListArguments<Table> make_arguments(const LaunchContext& context, const PassArguments& pass,
                                    Index first_tensor, Index first_block) {
  ListArguments<Table> a;
  a.pass = pass;
  a.chunk_elements = context.list->chunk_elements();
  a.first_tensor = first_tensor;
  a.first_block = first_block;
  return a;
}

// Kernels has `template <class Table> static auto kernel()` and `kName`.
template <class Kernels, class Table>
void launch_blocks(const LaunchContext& context, const ListArguments<Table>& a, Index blocks) {
  Kernels::template kernel<
      Table>()<<<static_cast<unsigned>(blocks), kBlockThreads, 0, native(context.stream)>>>(a);
  check(cudaGetLastError(), Kernels::kName);
  ++context.report->launches;
  context.report->argument_bytes += static_cast<Index>(sizeof(a));
}

template <class Kernels, class Table>
void launch_structs(const LaunchContext& context, const PassArguments& pass) {
  for (const TableRange& range : context.list->split(Table::kTensors, Table::kBlocks)) {
    auto a = make_arguments<Table>(context, pass, range.first_tensor, range.first_block);
    fill_table(*context.list, context.entries, range, a.table);
    launch_blocks<Kernels>(context, a, range.blocks);
  }
}

template <class Kernels, int... kSlots>
void launch_list(SlotList<kSlots...>, const LaunchContext& context, const PassArguments& pass) {
  if (context.transport == Transport::StructSmall) {
    return launch_structs<Kernels, StructTable<1, kSlots...>>(context, pass);
  }
  if (context.transport == Transport::StructLarge) {
    return launch_structs<Kernels, StructTable<kLargeScale, kSlots...>>(context, pass);
  }
  if (context.list->blocks() == 0) return;
  auto a = make_arguments<DeviceTable>(context, pass, 0, 0);
  a.table = {context.device_entries, context.device_blocks};
  launch_blocks<Kernels>(context, a, context.list->blocks());
}

}  // namespace hone::kernels::cuda
