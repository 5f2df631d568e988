// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper_core.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hone::kernels::cuda {
namespace {

constexpr std::string_view kOp = "multi_tensor cuda";
constexpr int kFinishThreads = 512;

// A kernel argument is copied when the launch is enqueued: no host memory has to outlive the call.
struct StorePiece {
  unsigned char* to;
  int bytes;
  unsigned char data[kSmallArgumentBytes - 16];
};

__global__ void store_kernel(const __grid_constant__ StorePiece piece) {
  for (int i = static_cast<int>(threadIdx.x); i < piece.bytes; i += static_cast<int>(blockDim.x)) {
    piece.to[i] = piece.data[i];
  }
}

void store_bytes(std::span<const std::byte> from, void* to, Stream stream) {
  constexpr std::size_t kPiece = sizeof(StorePiece::data);
  for (std::size_t done = 0; done < from.size(); done += kPiece) {
    StorePiece piece{};
    piece.to = static_cast<unsigned char*>(to) + done;
    piece.bytes = static_cast<int>(std::min(kPiece, from.size() - done));
    std::memcpy(piece.data, from.data() + done, static_cast<std::size_t>(piece.bytes));
    store_kernel<<<1, 256, 0, native(stream)>>>(piece);
    check(cudaGetLastError(), "store_kernel");
  }
}

template <Statistics kKind, class G, class Table>
__global__ void __launch_bounds__(kBlockThreads)
    gather_kernel(const __grid_constant__ ListArguments<Table> a) {
  constexpr int kCount = kSums<kKind>;
  const int block = static_cast<int>(blockIdx.x);
  double sums[kCount] = {};
  gather_thread<kKind, G>(a, block, static_cast<int>(threadIdx.x), kBlockThreads, sums);
  sum_over_block<kCount, kBlockThreads>(sums);
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kCount; ++s)
    a.pass.chunk_sums[(a.first_block + block) * kCount + s] = sums[s];
}

template <Statistics kKind, class G>
struct GatherKernels {
  static constexpr const char* kName = "gather_kernel";
  template <class Table>
  static auto kernel() {
    return gather_kernel<kKind, G, Table>;
  }
};

template <class G>
void launch_gather(Statistics kind, const LaunchContext& context, const PassArguments& pass) {
  switch (kind) {
    case Statistics::Norm:
      return launch_list<GatherKernels<Statistics::Norm, G>>(SlotList<kGrad>(), context, pass);
    case Statistics::Torque:
      return launch_list<GatherKernels<Statistics::Torque, G>>(SlotList<kGrad, kMomentum>(),
                                                               context, pass);
    case Statistics::TorqueWithDecay:
      return launch_list<GatherKernels<Statistics::TorqueWithDecay, G>>(
          SlotList<kParam, kGrad, kMomentum>(), context, pass);
    default:
      return;
  }
}

template <int kCount>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(CombineArguments a) {
  const Index tensor = blockIdx.x;
  double sums[kCount] = {};
  combine_tensor<kCount>(a, tensor, sums);
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kMostSums; ++s) {
    a.tensor_sums[tensor * kMostSums + s] = s < kCount ? sums[s] : 0;
  }
}

// One block: the global norm and what follows from it.
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(Control* control, const double* tensor_sums, Index tensors) {
  __shared__ Index first_bad[kFinishThreads];
  double total[1] = {};
  first_bad[threadIdx.x] = tensors;
  for (Index i = threadIdx.x; i < tensors; i += kFinishThreads) {
    const double gg = tensor_sums[i * kMostSums];
    if (!isfinite(gg) && first_bad[threadIdx.x] == tensors) first_bad[threadIdx.x] = i;
    total[0] += gg;
  }
  sum_over_block<1, kFinishThreads>(total);
  if (threadIdx.x != 0) return;
  Index first = tensors;
  for (int t = 0; t < kFinishThreads; ++t) first = first_bad[t] < first ? first_bad[t] : first;
  const ControlValues& values = control->values;
  const double scale = values.loss_scale == nullptr ? 1.0 : *values.loss_scale;
  control->results = cuda::finish_norm(values, scale, total[0], first == tensors ? -1 : first);
  if (control->results.skip != 0 && values.found_inf != nullptr) *values.found_inf = 1.0f;
}

void upload(const void* from, Index bytes, DeviceBuffer& to, Stream stream) {
  if (to.bytes() < bytes) to = DeviceBuffer(bytes);
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to.as<void>(), from, static_cast<std::size_t>(bytes),
                        cudaMemcpyHostToDevice, native(stream)),
        "cudaMemcpyAsync of the tensor table");
}

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

TransportSupport transport_support(int device) {
  TransportSupport support;
  check(cudaDriverGetVersion(&support.driver_version), "cudaDriverGetVersion");
  support.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
                               attribute(cudaDevAttrComputeCapabilityMinor, device);
  return support;
}

}  // namespace

StepperCore::StepperCore(const MultiTensorLists& lists, const CudaStepOptions& options,
                         const Sizes& sizes)
    : options_(options),
      sizes_(sizes),
      plan_(MultiTensorPlan::build_or_throw(lists)),
      kind_(kind_of(lists)) {
  check_device_lists(plan_, lists);
  take_plan();
}

void StepperCore::follow(const MultiTensorLists& lists) {
  check_kind(kind_, lists);
  MultiTensorPlan next = plan_;
  const auto change = next.follow_or_throw(lists);
  if (change == MultiTensorPlan::Change::None) return;
  check_device_lists(next, lists);
  plan_ = std::move(next);
  take_plan();
}

// Entries, work list and transport from the plan.
void StepperCore::take_plan() {
  std::vector<Index> elements;
  std::vector<std::uint16_t> groups;
  entries_.assign(static_cast<std::size_t>(plan_.tensors()), {});
  for (Index i = 0; i < plan_.tensors(); ++i) {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(i);
    TensorEntry& entry = entries_[static_cast<std::size_t>(i)];
    for (int slot = 0; slot < kSlots; ++slot) entry.address[slot] = tensor.data(slot);
    entry.elements = tensor.elements;
    elements.push_back(tensor.elements);
    groups.push_back(tensor.group);
  }
  const Index chunk = options_.chunk_elements > 0 ? options_.chunk_elements
                                                  : choose_chunk(elements, sizes_.resident_blocks);
  WorkList next(elements, chunk);
  const bool same = next == list_ && groups == group_numbers_;
  const Transport transport = choose_transport(forced_transport(options_.transport), next,
                                               sizes_.depth, transport_support(options_.device));
  check_launches(transport, next, sizes_.depth, options_.max_launches);
  layout_changed_ = layout_changed_ || !same || transport != transport_;
  entries_changed_ = true;
  gradients_checked_ = false;
  list_ = std::move(next);
  group_numbers_ = std::move(groups);
  transport_ = transport;
}

void StepperCore::check_groups(std::size_t groups) const {
  for (std::size_t i = 0; i < group_numbers_.size(); ++i) {
    HONE_CHECK(group_numbers_[i] < groups, kOp, concat("a group below ", groups, " for tensor ", i),
               group_numbers_[i]);
  }
}

void StepperCore::check_gradients_writable() {
  if (!gradients_checked_) plan_.check_gradients_writable();
  gradients_checked_ = true;
}

void StepperCore::store(std::span<const std::byte> groups, bool groups_changed,
                        const ControlValues& values, Stream stream) {
  const bool values_changed = control_.bytes() == 0 || !(values == stored_values_);
  if (!groups_changed && !values_changed) return;
  HONE_CHECK(!is_capturing(stream), kOp,
             "the groups and control of the last store() while the stream is captured",
             "others, which the graph would keep for ever");
  if (groups_changed) {
    const auto bytes = static_cast<Index>(groups.size());
    if (groups_.bytes() < bytes) groups_ = DeviceBuffer(bytes);
    store_bytes(groups, groups_.as<void>(), stream);
  }
  if (!values_changed) return;
  if (control_.bytes() == 0) control_ = DeviceBuffer(sizeof(Control));
  Control fresh;
  fresh.values = values;
  store_bytes(std::as_bytes(std::span(&fresh, 1)), control_.as<void>(), stream);
  stored_values_ = values;
}

// What depends on sizes and groups, not on addresses.
void StepperCore::upload_layout(Stream stream) {
  const Index tensors = list_.tensors();
  const auto grow = [](DeviceBuffer& buffer, Index bytes) {
    if (buffer.bytes() < bytes) buffer = DeviceBuffer(bytes);
  };
  grow(scalars_, tensors * sizes_.scalar_bytes);
  grow(tensor_sums_, tensors * kMostSums * Index{sizeof(double)});
  grow(chunk_sums_, list_.blocks() * kMostSums * Index{sizeof(double)});
  upload(list_.first_blocks().data(), (tensors + 1) * Index{sizeof(Index)}, first_block_, stream);
  upload(group_numbers_.data(), tensors * Index{sizeof(std::uint16_t)}, group_of_, stream);
  if (transport_ == Transport::DeviceTable) {
    blocks_ = list_.all_blocks();
    upload(blocks_.data(), list_.blocks() * Index{sizeof(BlockEntry)}, device_blocks_, stream);
  }
  layout_changed_ = false;
}

void StepperCore::upload_entries(Stream stream) {
  upload(entries_.data(), list_.tensors() * Index{sizeof(TensorEntry)}, device_entries_, stream);
}

LaunchContext StepperCore::begin(Stream stream, CudaStepReport& report) {
  const bool table = transport_ == Transport::DeviceTable;
  const bool upload_needed = layout_changed_ || (entries_changed_ && table);
  if (upload_needed) {
    HONE_CHECK(!is_capturing(stream), kOp,
               "the tensors of the last step while the stream is captured",
               "a list whose table is not on the device: take one step before the capture");
    if (layout_changed_) upload_layout(stream);
    if (table) upload_entries(stream);
    report.table_uploads = table ? 1 : 0;
  }
  entries_changed_ = false;
  report.transport = transport_;
  report.chunk_elements = list_.chunk_elements();
  return {&list_,
          entries_,
          transport_,
          device_entries_.as<TensorEntry>(),
          device_blocks_.as<BlockEntry>(),
          stream,
          &report};
}

void StepperCore::gather(const LaunchContext& context, Statistics kind) {
  const PassArguments pass{control(), nullptr, chunk_sums()};
  if (kind_.grad == Dtype::BFloat16) return launch_gather<BF16>(kind, context, pass);
  if (kind_.grad == Dtype::Float16) return launch_gather<F16>(kind, context, pass);
  launch_gather<float>(kind, context, pass);
}

void StepperCore::combine_all(const LaunchContext& context, Statistics kind) {
  if (list_.tensors() == 0) return;
  CombineArguments a;
  a.chunk_sums = chunk_sums();
  a.first_block = first_block();
  a.tensor_sums = tensor_sums();
  const auto grid = static_cast<unsigned>(list_.tensors());
  const cudaStream_t stream = native(context.stream);
  if (kind == Statistics::Norm) combine_kernel<1><<<grid, kCombineThreads, 0, stream>>>(a);
  if (kind == Statistics::Torque) combine_kernel<3><<<grid, kCombineThreads, 0, stream>>>(a);
  if (kind == Statistics::TorqueWithDecay) {
    combine_kernel<6><<<grid, kCombineThreads, 0, stream>>>(a);
  }
  check(cudaGetLastError(), "combine_kernel");
  ++context.report->scalar_launches;
}

void StepperCore::finish_norm(const LaunchContext& context) {
  finish_kernel<<<1, kFinishThreads, 0, native(context.stream)>>>(control(), tensor_sums(),
                                                                  list_.tensors());
  check(cudaGetLastError(), "finish_kernel");
  ++context.report->scalar_launches;
}

StepReport StepperCore::read_report(Stream stream) {
  StepReport report;
  if (control_.bytes() == 0) return report;  // no step yet
  Control read;
  check(cudaMemcpyAsync(&read, control(), sizeof(read), cudaMemcpyDeviceToHost, native(stream)),
        "cudaMemcpyAsync of the report");
  check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize after a step");
  report.stepped = read.results.skip == 0;
  report.grad_norm = read.results.grad_norm;
  report.clip_coef = read.results.clip_coef;
  report.first_nonfinite_tensor = read.results.first_nonfinite;
  return report;
}

}  // namespace hone::kernels::cuda
