// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/synthetic_model.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/philox.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/text/vocabulary.h"

namespace hone::bench {
namespace {

using model_io::Architecture;
using model_io::StoreType;

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

// Random blocks: f16 scale, then codes of 32 weights. Uniform codes have the standard deviation
// 4.6 (4 bits) and 73.9 (8 bits) in units of the scale.
std::vector<std::byte> random_blocks(StoreType type, Index count) {
  const Index bytes = type == StoreType::Q8_0 ? kQ8_0Bytes : kQ4_0Bytes;
  const float scale = kSpread / (type == StoreType::Q8_0 ? 73.9f : 4.6f);
  const std::uint16_t bits = float_to_f16(scale);
  std::vector<std::byte> blocks(static_cast<std::size_t>(count * bytes));
  PhiloxStream random(1);
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(bytes)) {
    std::memcpy(blocks.data() + at, &bits, sizeof bits);
    for (Index i = 2; i < bytes; i += 4) {
      const std::uint32_t word = random();
      std::memcpy(blocks.data() + at + i, &word,
                  static_cast<std::size_t>(std::min<Index>(4, bytes - i)));
    }
  }
  return blocks;
}

// Tensors of the architecture as windows of one pool of random blocks, each at its own place.
class SyntheticTensors {
 public:
  SyntheticTensors(const Architecture& arch, StoreType type)
      : type_(type), ones_(static_cast<std::size_t>(arch.hidden_size), 1.0f) {
    const auto plan = model_io::plan_tensors(arch);
    Index most = 0;
    for (const auto& tensor : plan) most = std::max(most, tensor.rows * tensor.cols / kQ8_0Block);
    const auto shifts = static_cast<Index>(plan.size());
    pool_ = random_blocks(type, most + shifts);
    for (const auto& tensor : plan) add(tensor, static_cast<Index>(tensors_.size()));
  }
  std::span<const model_io::NamedMatrix> get() const { return tensors_; }

 private:
  void add(const model_io::PlannedTensor& plan, Index shift) {
    StoredMatrix matrix;
    matrix.rows = plan.rows;
    matrix.cols = plan.cols;
    if (plan.is_vector) {
      matrix.bytes = std::as_bytes(std::span(ones_));
    } else {
      const Index bytes = type_ == StoreType::Q8_0 ? kQ8_0Bytes : kQ4_0Bytes;
      matrix.layout = WeightLayout::GgufBlocks;
      matrix.block_type = type_ == StoreType::Q8_0 ? GgufType::Q8_0 : GgufType::Q4_0;
      matrix.bytes = std::span(pool_).subspan(
          static_cast<std::size_t>(shift * bytes),
          static_cast<std::size_t>(plan.rows * plan.cols / kQ8_0Block * bytes));
    }
    tensors_.push_back({plan.name, matrix, plan.is_vector});
  }

  StoreType type_;
  std::vector<float> ones_;
  std::vector<std::byte> pool_;
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
  } else {
    fail_argument("shape of a model", "llama-1b or llama-160m", shape);
  }
  arch.head_dim = 64;
  arch.rope.rotary_dims = 64;
  arch.rope.pairing = model_io::RopePairing::Adjacent;
  return arch;
}

std::filesystem::path synthetic_model(std::string_view shape, StoreType type,
                                      const std::filesystem::path& folder) {
  HONE_CHECK(model_io::is_quantized(type), "bench llm", "dtype q8_0 or q4_0", name_of(type));
  const Architecture arch = shape_architecture(shape);
  const std::filesystem::path path =
      folder / concat(shape, "-", name_of(type), "-v", kVersion, ".gguf");
  if (std::filesystem::exists(path)) return path;
  log_info(concat("writing ", path.string()));
  std::filesystem::create_directories(folder);
  const auto tokenizer = text::make_tokenizer(make_vocabulary(arch.vocab_size));
  const SyntheticTensors tensors(arch, type);
  model_io::write_gguf(path, {.architecture = arch,
                              .tensors = tensors.get(),
                              .tokenizer = tokenizer.get(),
                              .generation_defaults = Json::object()});
  return path;
}

}  // namespace hone::bench
