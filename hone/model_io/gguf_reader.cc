// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/format/gguf.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/family/bind_tensors.h"
#include "hone/model_io/gguf_architecture.h"
#include "hone/model_io/gguf_parts.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/loaded_model.h"
#include "hone/model_io/metadata/gguf_metadata.h"
#include "hone/model_io/tokenizer_file.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
constexpr std::string_view kEmbedding = "token_embd.weight";

StoredMatrix to_stored(const GgufTensor& tensor) {
  StoredMatrix out;
  out.rows = tensor.dims[1];
  out.cols = tensor.dims[0];
  out.bytes = tensor.bytes;
  switch (static_cast<GgufType>(tensor.type)) {
    case GgufType::F32:
      return out;
    case GgufType::F16:
      out.dtype = Dtype::Float16;
      return out;
    case GgufType::BF16:
      out.dtype = Dtype::BFloat16;
      return out;
    default:  // parse_gguf() has refused what is not in gguf_type_info()
      out.layout = WeightLayout::GgufBlocks;
      out.block_type = static_cast<GgufType>(tensor.type);
      return out;
  }
}

void read_divisors(const GgufTensor& tensor, const std::string& where, RopeSpec& rope) {
  if (static_cast<GgufType>(tensor.type) != GgufType::F32 || tensor.dims[1] != 1 ||
      tensor.dims[2] != 1 || tensor.dims[3] != 1 || tensor.dims[0] != rope.rotary_dims / 2)
    fail_corrupt(where,
                 concat(kRopeDivisors, " does not have ", rope.rotary_dims / 2, " f32 values."));
  rope.frequency_divisors.resize(static_cast<std::size_t>(tensor.dims[0]));
  decode_row(to_stored(tensor), 0, rope.frequency_divisors);
}

void add_tensors(LoadedModel& model, const GgufFile& file, const std::string& where) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == kRopeDivisors) {
      read_divisors(tensor, where, model.arch.rope);
      continue;
    }
    NamedMatrix out;
    out.name = tensor.name;
    if (tensor.dims[2] != 1 || tensor.dims[3] != 1)
      fail_corrupt(where, concat("a vector or a matrix for ", quote_name(tensor.name)),
                   concat("rank ", tensor.rank));
    out.is_vector = tensor.rank < 2;
    out.matrix = to_stored(tensor);
    model.matrices.push_back(std::move(out));
  }
}

// Fills in what the keys leave open from the tensors.
void infer_from_tensors(std::span<const GgufPart> parts, const Family& family, Architecture& a) {
  const std::string attention = first_gguf_name(family, "self_attn.q_proj") + ".bias";
  const std::string mlp = first_gguf_name(family, "mlp.gate_proj") + ".bias";
  a.tied_embeddings = true;
  for (const GgufPart& part : parts) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      if (tensor.name == kEmbedding) a.vocab_size = tensor.dims[1];
      if (tensor.name == "output.weight") a.tied_embeddings = false;
      if (family.attention_bias == BiasRule::Key && tensor.name == attention)
        a.attention_bias = true;
      if (family.mlp_bias == BiasRule::Key && tensor.name == mlp) a.mlp_bias = true;
    }
  }
  if (a.vocab_size == 0)
    fail_corrupt(parts.front().where, concat("There is no tensor ", kEmbedding, "."));
}

// As llama.cpp does, leaves out ids of special tokens that the vocabulary does not have.
void drop_unknown_ids(const std::string& where, Architecture& a) {
  const auto is_unknown = [&](text::TokenId id) {
    if (id < a.vocab_size) return false;
    log_warning(concat(where, ": the special token ", id, " is not in the vocabulary: left out"));
    return true;
  };
  std::erase_if(a.stop_ids, is_unknown);
  if (a.bos_id && is_unknown(*a.bos_id)) a.bos_id.reset();
}

// Like llama.cpp, hone accepts trailing bytes. It warns about them, because the file may not be the
// intended one.
void warn_of_trailing_bytes(const GgufPart& part) {
  const auto& [where, bytes, file] = part;
  if (file.tensors().empty()) return;
  const std::byte* end = file.tensors().back().bytes.data() + file.tensors().back().bytes.size();
  const Index left = bytes.data() + bytes.size() - end;
  if (left >= file.integer("general.alignment").value_or(32)) {
    log_warning(concat(where, ": ", left, " bytes after the last tensor are ignored"));
  }
}

}  // namespace

std::unique_ptr<LoadedModel> open_gguf(const fs::path& path, const OpenOptions& options) {
  auto model = std::make_unique<LoadedModel>();
  const std::string where = path.string();
  const std::vector<GgufPart> parts = map_gguf_parts(path, model->mappings);
  const GgufFile& file = parts.front().file;
  if (std::ranges::all_of(parts, [](const GgufPart& part) { return part.file.tensors().empty(); }))
    fail_unsupported(where, "a model with tensors", "a vocabulary alone");
  GgufModelKeys keys = read_gguf_architecture(file, where);
  model->model_format = ModelFormat::Gguf;
  model->arch = std::move(keys.architecture);
  infer_from_tensors(parts, *keys.family, model->arch);
  drop_unknown_ids(where, model->arch);
  for (const GgufPart& part : parts) {
    model->bytes += static_cast<Index>(part.bytes.size());
    warn_of_trailing_bytes(part);
  }
  validate(model->arch, where);
  for (const GgufPart& part : parts) add_tensors(*model, part.file, part.where);
  validate(model->arch, where);  // again, now with the divisors
  bind_tensors(*model, FileFormat::Gguf, where);
  restore_llama3(file, model->arch.rope);
  model->vocabulary =
      load_model_tokenizer(options, where, [&]() -> std::shared_ptr<const text::Tokenizer> {
        if (!has_gguf_vocabulary(file)) {
          if (!options.need_tokenizer) return nullptr;
          fail_unsupported(
              where, "This file has no vocabulary (no_vocab). Pass a tokenizer with --tokenizer.");
        }
        return text::make_tokenizer(read_gguf_vocabulary(file, where), where);
      });
  model->generation = read_sampling_defaults(file);
  model->about = read_gguf_metadata(file, model->vocabulary != nullptr, where);
  take_tokenizer_metadata(options.tokenizer, model->about);
  model->finish(where);
  return model;
}

}  // namespace hone::model_io
