// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/load_llama.h"

#include <ATen/ATen.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/model_io/family/written_tensor.h"
#include "hone/train/stop_scope.h"

namespace hone::nn {
namespace {

void copy_rows(const model_io::NamedMatrix& tensor, const model_io::StorageRules& rules,
               const torch::Tensor& target) {
  HONE_CHECK(target.is_cpu() && target.is_contiguous() && target.scalar_type() == at::kFloat,
             tensor.name, "contiguous f32 memory of the CPU", c10::str(target.options()));
  auto* to = static_cast<std::byte*>(target.data_ptr());
  model_io::encode_part(tensor, rules, model_io::StoreType::F32,
                        [&to](std::span<const std::byte> row) {
                          std::memcpy(to, row.data(), row.size());
                          to += row.size();
                        });
  if (!at::isfinite(target).all().item<bool>()) {
    fail_corrupt(tensor.name, "finite values", "NaN or infinity");
  }
}

}  // namespace

Index load_llama(LlamaImpl& model, const model_io::ModelFile& file) {
  HONE_TRACE_ZONE("load weights");
  const std::vector<NamedTensor> targets = model.model_tensors();
  const auto count = static_cast<Index>(targets.size());
  HONE_CHECK(static_cast<Index>(file.tensors().size()) == count, "load_llama",
             concat(count, " tensors"), file.tensors().size());
  const model_io::StorageRules rules{file.architecture(), model_io::RopePairing::HalfSplit,
                                     model.architecture().norm_offset};
  for (const NamedTensor& target : targets) {
    check_stop();
    const model_io::NamedMatrix* const tensor = file.find(target.name);
    HONE_CHECK(tensor != nullptr, "load_llama", concat("a tensor ", target.name), "none");
    const std::vector<Index> stored =
        tensor->is_vector ? std::vector<Index>{tensor->matrix.cols}
                          : std::vector<Index>{tensor->matrix.rows, tensor->matrix.cols};
    HONE_CHECK(target.value.sizes() == at::IntArrayRef(stored), target.name,
               concat("the shape ", c10::str(target.value.sizes())),
               c10::str(at::IntArrayRef(stored)));
    copy_rows(*tensor, rules, target.value);
    file.drop_pages(*tensor);
  }
  file.check_intact();
  return count;
}

}  // namespace hone::nn
