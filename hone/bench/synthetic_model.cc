// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/synthetic_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/format/quant_format.h"
#include "hone/core/log.h"
#include "hone/core/philox.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/model_io/write_model.h"
#include "hone/text/vocabulary.h"

namespace hone::bench {
namespace {

using model_io::Architecture;

constexpr int kVersion = 1;       // of the generated content, part of the file's name
constexpr float kSpread = 0.02f;  // standard deviation of a weight, as models are initialized

// <unk>, <s>, </s>, 256 bytes, then words over a-z of growing length with falling scores.
text::Vocabulary make_vocabulary(Index size) {
  text::Vocabulary vocabulary;
  vocabulary.model = text::TokenizerModel::SentencePieceBpe;
  const auto add = [&](std::string piece, float score, text::TokenType type) {
    vocabulary.pieces.push_back(std::move(piece));
    vocabulary.scores.push_back(score);
    vocabulary.types.push_back(type);
  };
  add("<unk>", 0, text::TokenType::Unknown);
  add("<s>", 0, text::TokenType::Control);
  add("</s>", 0, text::TokenType::Control);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", 0, text::TokenType::Byte);
  }
  for (Index i = 0; static_cast<Index>(vocabulary.pieces.size()) < size; ++i) {
    std::string word;
    for (Index rest = i + 1; rest > 0; rest = (rest - 1) / 26) {
      word += static_cast<char>('a' + (rest - 1) % 26);
    }
    add(std::move(word), -static_cast<float>(i), text::TokenType::Normal);
  }
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = true;
  return vocabulary;
}

// A mixture of one or more types of blocks: which tensor has which.
struct Mixture {
  std::string_view name;
  GgufType type;          // of all but
  bool has_q6_k = false;  // the tensors that llama.cpp keeps in Q6_K in its file type Q4_K_M
};
constexpr std::array kMixtures{
    Mixture{"q8_0", GgufType::Q8_0}, Mixture{"q4_0", GgufType::Q4_0},
    Mixture{"q4_k", GgufType::Q4_K}, Mixture{"q5_k", GgufType::Q5_K},
    Mixture{"q6_k", GgufType::Q6_K}, Mixture{"q4_k_m", GgufType::Q4_K, true}};

const Mixture& find_mixture(std::string_view name) {
  const auto found = std::ranges::find(kMixtures, name, &Mixture::name);
  if (found != kMixtures.end()) return *found;
  fail_argument("bench llm", "dtype q8_0, q4_0, q4_k, q5_k, q6_k or q4_k_m", name);
}

// use_more_bits() of llama.cpp: the first and the last eighth of the layers and every third one of
// the others.
bool has_more_bits(Index layer, Index layers) {
  const Index eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

GgufType type_of(const Mixture& mixture, const std::string& tensor, const Architecture& arch) {
  if (!mixture.has_q6_k) return mixture.type;
  const char* output = arch.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  if (tensor == output) return GgufType::Q6_K;
  for (Index layer = 0; layer < arch.layers; ++layer) {
    const bool is_wide = tensor == model_io::layer_name(layer, "self_attn.v_proj.weight") ||
                         tensor == model_io::layer_name(layer, "mlp.down_proj.weight");
    if (is_wide) return has_more_bits(layer, arch.layers) ? GgufType::Q6_K : mixture.type;
  }
  return mixture.type;
}

const GgufTypeInfo& info_of(GgufType type) {
  return gguf_type_info(static_cast<std::uint32_t>(type), "a synthetic model");
}

// Where a block has its scales in f16, and how many of them the standard deviation of its weights
// is if all other bits are random. The minimum of Q4_K and Q5_K is set so that the mean is 0.
struct BlockScale {
  Index at = 0, minimum_at = -1;
  float deviation = 1, minimum = 0;
};
BlockScale scale_of(GgufType type) {
  switch (type) {
    case GgufType::Q8_0:
      return {.deviation = 73.9f};
    case GgufType::Q4_K:
      return {.minimum_at = 2, .deviation = 257, .minimum = 7.5f};
    case GgufType::Q5_K:
      return {.minimum_at = 2, .deviation = 524, .minimum = 15.5f};
    case GgufType::Q6_K:
      return {.at = 208, .deviation = 1366};
    default:
      return {.deviation = 4.6f};  // Q4_0
  }
}

void put_half(std::byte* to, float value) {
  const std::uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// Seeded random bits with a sane scale: valid blocks, but no encoder made them.
std::vector<std::byte> random_blocks(GgufType type, Index count) {
  const Index bytes = info_of(type).bytes;
  const BlockScale scale = scale_of(type);
  const Index first = scale.at == 0 && scale.minimum_at < 0 ? 2 : 0;
  std::vector<std::byte> blocks(static_cast<std::size_t>(count * bytes));
  PhiloxStream random(1);
  for (std::byte* block = blocks.data(); block < blocks.data() + blocks.size(); block += bytes) {
    for (Index i = first; i < bytes; i += 4) {
      const std::uint32_t word = random();
      std::memcpy(block + i, &word, static_cast<std::size_t>(std::min<Index>(4, bytes - i)));
    }
    const float unit = kSpread / scale.deviation;
    put_half(block + scale.at, unit);
    if (scale.minimum_at >= 0) put_half(block + scale.minimum_at, unit * scale.minimum);
  }
  return blocks;
}

// Tensors of the architecture as windows of pools of random blocks, one for each type, each at its
// own place.
class SyntheticTensors {
 public:
  SyntheticTensors(const Architecture& arch, const Mixture& mixture)
      : ones_(static_cast<std::size_t>(arch.hidden_size), 1.0f) {
    const auto plan = model_io::plan_tensors(arch);
    std::map<GgufType, Index> most;  // blocks
    for (const auto& tensor : plan) {
      const GgufType type = type_of(mixture, tensor.name, arch);
      most[type] = std::max(most[type], ceil_div(tensor.rows * tensor.cols, info_of(type).block));
    }
    const auto shifts = static_cast<Index>(plan.size());
    for (const auto& [type, count] : most) pools_[type] = random_blocks(type, count + shifts);
    for (const auto& tensor : plan) {
      add(tensor, type_of(mixture, tensor.name, arch), static_cast<Index>(tensors_.size()));
    }
  }
  std::span<const model_io::NamedMatrix> get() const { return tensors_; }

 private:
  void add(const model_io::PlannedTensor& plan, GgufType type, Index shift) {
    StoredMatrix matrix;
    matrix.rows = plan.rows;
    matrix.cols = plan.cols;
    if (plan.is_vector) {
      matrix.bytes = std::as_bytes(std::span(ones_));
    } else {
      const GgufTypeInfo& info = info_of(type);
      matrix.layout = WeightLayout::GgufBlocks;
      matrix.block_type = type;
      matrix.bytes =
          std::span(pools_.at(type))
              .subspan(static_cast<std::size_t>(shift * info.bytes),
                       static_cast<std::size_t>(plan.rows * plan.cols / info.block * info.bytes));
    }
    tensors_.push_back({plan.name, matrix, plan.is_vector});
  }

  std::vector<float> ones_;
  std::map<GgufType, std::vector<std::byte>> pools_;
  std::vector<model_io::NamedMatrix> tensors_;
};

}  // namespace

Architecture shape_architecture(std::string_view shape) {
  Architecture arch;
  arch.vocab_size = 32000;
  arch.context = 8192;
  arch.stop_ids = {2};
  arch.bos_id = 1;
  if (shape == "llama-1b") {
    arch.layers = 22;
    arch.hidden_size = 2048;
    arch.intermediate_size = 5632;
    arch.heads = 32;
    arch.kv_heads = 4;
  } else if (shape == "llama-160m") {
    arch.layers = 12;
    arch.hidden_size = 768;
    arch.intermediate_size = 3072;
    arch.heads = 12;
    arch.kv_heads = 12;
  } else if (shape == "llama3-1b") {
    arch.vocab_size = 128256;
    arch.layers = 16;
    arch.hidden_size = 2048;
    arch.intermediate_size = 8192;
    arch.heads = 32;
    arch.kv_heads = 8;
    arch.tied_embeddings = true;
  } else {
    fail_argument("shape of a model", "llama-1b, llama3-1b or llama-160m", shape);
  }
  arch.head_dim = 64;
  arch.rope.rotary_dims = 64;
  arch.rope.pairing = model_io::RopePairing::Adjacent;
  return arch;
}

std::filesystem::path synthetic_model(std::string_view shape, std::string_view dtype,
                                      const std::filesystem::path& folder) {
  const Mixture& mixture = find_mixture(dtype);
  const Architecture arch = shape_architecture(shape);
  const std::filesystem::path path = folder / concat(shape, "-", dtype, "-v", kVersion, ".gguf");
  if (std::filesystem::exists(path)) return path;
  log_info(concat("writing ", path.string()));
  std::filesystem::create_directories(folder);
  const auto tokenizer = text::make_tokenizer(make_vocabulary(arch.vocab_size));
  const SyntheticTensors tensors(arch, mixture);
  model_io::write_gguf(path, {.architecture = arch,
                              .tensors = tensors.get(),
                              .tokenizer = tokenizer.get(),
                              .generation_defaults = Json::object()});
  return path;
}

}  // namespace hone::bench
