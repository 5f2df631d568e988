// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/export_lm.h"

#include <ATen/ATen.h>

#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/model_io/write_model.h"
#include "hone/train/interop.h"
#include "hone/train/task/lm/factored_model.h"

namespace hone::task {

void export_lm(const std::filesystem::path& folder, nn::LlamaImpl& model,
               const ExportParts& parts) {
  HONE_TRACE_ZONE("export model");
  model_io::Architecture architecture = architecture_of(model);
  if (parts.context > 0) architecture.context = parts.context;
  model_io::validate(architecture, folder.string());  // what nobody could open is not written
  std::vector<model_io::NamedMatrix> tensors;
  std::vector<NamedTensor> on_host = model.model_tensors();  // until they are written
  for (NamedTensor& named : on_host) {
    named.value = named.value.to(at::kCPU);
    HONE_CHECK(named.value.is_contiguous() && named.value.scalar_type() == at::kFloat, "export",
               "contiguous weights in f32", named.name);
    const bool is_vector = named.value.dim() == 1;
    StoredMatrix matrix;
    matrix.rows = is_vector ? 1 : named.value.size(0);
    matrix.cols = named.value.size(-1);
    matrix.bytes = tensor_bytes(named.value);
    tensors.push_back({named.name, matrix, is_vector});
  }
  model_io::write_hugging_face(folder, {.architecture = architecture,
                                        .tensors = tensors,
                                        .tokenizer = parts.tokenizer,
                                        .generation_defaults = parts.generation_defaults,
                                        .metadata = parts.metadata});
}

}  // namespace hone::task
