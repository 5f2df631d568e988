// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/llama2c/layout.h"
#include "hone/model_io/loaded_model.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/model_io/tokenizer_file.h"
#include "hone/text/load_tokenizer.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

struct Header {
  int version = 0;
  Index bytes = 0;  // of the header; the data follows
  Index group = 0;  // number of values that share a scale (version 2)
  Architecture arch;
};

std::int32_t load_i32(std::span<const std::byte> file, Index at) {
  std::int32_t value = 0;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

// Reads dim, hidden, layers, heads, kv_heads, vocab (negative if there is an output matrix) and
// seq_len.
Architecture read_shape(std::span<const std::byte> file, Index at, const std::string& where) {
  std::array<Index, 7> field{};
  for (std::size_t i = 0; i < field.size(); ++i)
    field[i] = load_i32(file, at + 4 * static_cast<Index>(i));
  Architecture a;
  a.hidden_size = field[0];
  a.intermediate_size = field[1];
  a.layers = field[2];
  a.heads = field[3];
  a.kv_heads = field[4];
  a.vocab_size = field[5] < 0 ? -field[5] : field[5];
  a.tied_embeddings = field[5] > 0;
  a.context = field[6];
  if (a.heads < 1 || a.hidden_size < 1 || a.hidden_size % a.heads != 0)
    fail_corrupt(where, concat("a number of heads that divides the width ", a.hidden_size),
                 concat(a.heads));
  a.head_dim = a.hidden_size / a.heads;
  a.norm_eps = kLlama2cEps;
  a.rope.theta = kLlama2cTheta;
  a.rope.rotary_dims = a.head_dim;
  a.rope.pairing = RopePairing::Adjacent;
  a.bos_id = 1;
  a.stop_ids = {1, 2};  // stories are delimited by BOS
  return a;
}

Header read_header(std::span<const std::byte> file, const std::string& where) {
  const auto need = [&](Index bytes) {
    if (static_cast<Index>(file.size()) < bytes)
      fail_corrupt(where, concat("a llama2.c header of ", bytes, " bytes"),
                   concat("a file of ", file.size()));
  };
  need(kLlama2cLegacyHeader);
  Header header;
  if (static_cast<std::uint32_t>(load_i32(file, 0)) != kLlama2cMagic) {
    header.bytes = kLlama2cLegacyHeader;
    header.arch = read_shape(file, 0, where);
    validate(header.arch, where);
    return header;
  }
  need(kLlama2cHeader);
  header.bytes = kLlama2cHeader;
  header.version = load_i32(file, 4);
  if (header.version != 1 && header.version != 2)
    fail_unsupported(where, "version 0, 1 or 2 of llama2.c", concat(header.version));
  header.arch = read_shape(file, 8, where);
  const auto shared = std::to_integer<int>(file[36]);
  if (shared > 1) fail_corrupt(where, "a flag of 0 or 1 for the shared classifier", concat(shared));
  header.arch.tied_embeddings = shared == 1;
  validate(header.arch, where);
  if (header.version == 2) {
    header.group = load_i32(file, 37);
    if (header.group < 1 || header.group > header.arch.hidden_size ||
        header.arch.hidden_size % header.group != 0)
      fail_corrupt(where, concat("a group size that divides ", header.arch.hidden_size),
                   concat(header.group));
  }
  return header;
}

// Reads the data sequentially and adds a matrix per tensor.
class DataReader {
 public:
  DataReader(LoadedModel& model, const Header& header, const std::string& where)
      : model_(model),
        header_(header),
        where_(where),
        file_(model.mappings.front().bytes()),
        position_(header.bytes) {}

  void read() {
    const Architecture& a = header_.arch;
    for (const Llama2cBlock& block : llama2c_blocks(a, header_.version == 0)) {
      for (Index layer = 0; layer < (block.per_layer ? a.layers : 1); ++layer)
        add(block, block.per_layer ? layer_name(layer, block.part) : block.part);
    }
    if (header_.version == 0) take(checked_mul(llama2c_table_values(a), 4, where_));
    if (!a.tied_embeddings)
      add({"lm_head.weight", false, a.vocab_size, a.hidden_size, false}, "lm_head.weight");
    if (position_ != static_cast<Index>(file_.size()))
      fail_corrupt(where_, concat("a file of ", position_, " bytes"), concat(file_.size()));
  }

 private:
  std::span<const std::byte> take(Index bytes) {
    if (bytes > static_cast<Index>(file_.size()) - position_)
      fail_corrupt(where_, concat("at least ", checked_add(position_, bytes, where_), " bytes"),
                   concat(file_.size()));
    const auto part =
        file_.subspan(static_cast<std::size_t>(position_), static_cast<std::size_t>(bytes));
    position_ += bytes;
    return part;
  }

  void add(const Llama2cBlock& block, std::string name) {
    const Index count = checked_mul(block.rows, block.cols, where_);
    NamedMatrix out;
    out.name = std::move(name);
    out.is_vector = block.is_vector;
    out.matrix.rows = block.rows;
    out.matrix.cols = block.cols;
    out.matrix.bytes = header_.version == 2 && !block.is_vector
                           ? dequantize(count, out.name)
                           : take(checked_mul(count, 4, where_));
    model_.matrices.push_back(std::move(out));
  }

  // Reads i8 codes, then one f32 scale per group. Groups may span rows.
  std::span<const std::byte> dequantize(Index count, const std::string& name) {
    if (count % header_.group != 0)
      fail_corrupt(where_, concat("a multiple of ", header_.group, " values for ", name),
                   concat(count));
    const auto codes = take(count);
    const auto scales = take(count / header_.group * 4);
    Buffer& buffer = model_.owned.emplace_back(count * 4);
    for (Index i = 0; i < count; ++i) {
      float scale = 0;
      std::memcpy(&scale, scales.data() + i / header_.group * 4, sizeof scale);
      buffer.as<float>()[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
    }
    return buffer.span();
  }

  LoadedModel& model_;
  const Header& header_;
  std::string where_;
  std::span<const std::byte> file_;
  Index position_;
};

// Finds tokenizer.bin or tok*.bin next to the model: the first by name that has a piece for every
// row of the embedding. If there is none, a warning explains why each file was rejected.
std::shared_ptr<const text::Tokenizer> find_beside(const fs::path& model, Index vocab_size) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : fs::path(".");
  std::vector<fs::path> candidates = text::list_tok_bins(folder);
  std::erase_if(candidates,
                [&](const fs::path& file) { return file.filename() == model.filename(); });
  std::vector<std::string> refusals;
  for (const fs::path& candidate : candidates) {
    try {
      auto tokenizer = open_tokenizer(candidate);
      if (tokenizer->vocab_size() == vocab_size) return tokenizer;
      refusals.push_back(concat("[", candidate.string(), "] expected a piece for each of ",
                                vocab_size, " rows of the embedding, got ",
                                tokenizer->vocab_size()));
    } catch (const Error& error) {
      refusals.emplace_back(error.what());
    }
  }
  for (const std::string& refusal : refusals) log_warning(refusal);
  return nullptr;
}

}  // namespace

std::unique_ptr<LoadedModel> open_llama2c(const fs::path& path, const OpenOptions& options) {
  auto model = std::make_unique<LoadedModel>();
  const std::string where = path.string();
  const std::span<const std::byte> file = model->mappings.emplace_back(path).bytes();
  const Header header = read_header(file, where);
  model->model_format = ModelFormat::Llama2c;
  model->arch = header.arch;
  model->bytes = static_cast<Index>(file.size());
  DataReader(*model, header, where).read();
  model->vocabulary = load_model_tokenizer(
      options, where, [&] { return find_beside(path, header.arch.vocab_size); });
  model->finish(where);
  return model;
}

}  // namespace hone::model_io
