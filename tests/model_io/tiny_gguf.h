// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/format/gguf.h"
#include "hone/core/philox.h"
#include "hone/text/vocabulary.h"

namespace hone::test {

// A llama of one layer whose rows are 256 long, so that every block type fits.
inline std::vector<std::pair<std::string, std::vector<Index>>> tiny_gguf_tensors() {
  return {{"token_embd.weight", {256, 48}},      {"output.weight", {256, 48}},
          {"blk.0.attn_q.weight", {256, 256}},   {"blk.0.attn_k.weight", {256, 64}},
          {"blk.0.attn_v.weight", {256, 64}},    {"blk.0.attn_output.weight", {256, 256}},
          {"blk.0.ffn_gate.weight", {256, 256}}, {"blk.0.ffn_up.weight", {256, 256}},
          {"blk.0.ffn_down.weight", {256, 256}}, {"blk.0.attn_norm.weight", {256}},
          {"blk.0.ffn_norm.weight", {256}},      {"output_norm.weight", {256}}};
}

// Random blocks with scales of about 1e-3, in Q6_K, Q3_K and IQ4_NL, whose factors or levels are
// larger, of 3e-5; f32 values of 1.
inline std::vector<std::byte> random_blocks(GgufType type, Index values, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  if (type == GgufType::F32) {
    const std::vector<float> ones(static_cast<std::size_t>(values), 1.0f);
    const auto raw = std::as_bytes(std::span(ones));
    return {raw.begin(), raw.end()};
  }
  const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), "test");
  const bool minimum = type == GgufType::Q4_1 || type == GgufType::Q5_1 || type == GgufType::Q4_K ||
                       type == GgufType::Q5_K;
  const bool small = type == GgufType::Q6_K || type == GgufType::Q3_K || type == GgufType::IQ4_NL;
  const Index first = type == GgufType::Q6_K ? 208 : type == GgufType::Q3_K ? 108 : 0;
  const Index last = minimum ? 2 : first;
  PhiloxStream random(seed);
  for (Index block = 0; block < values / info.block; ++block) {
    const std::size_t begin = bytes.size();
    for (Index i = 0; i < info.bytes; ++i)
      bytes.push_back(static_cast<std::byte>(random.below(256)));
    for (Index at = first; at <= last; at += 2) {
      const float largest = small ? 5e-5f : 1.5e-3f;
      const std::uint16_t scale = float_to_f16(largest * (1 + 2 * random.uniform()) / 3);
      std::memcpy(bytes.data() + begin + at, &scale, sizeof scale);
    }
  }
  return bytes;
}

// One file of a GGUF model. Without `count` it has no keys of a split.
struct GgufPartSpec {
  std::vector<std::size_t> tensors;  // of tiny_gguf_tensors()
  bool model_keys = true;
  std::string architecture = "llama";  // absent if empty
  std::optional<Index> number = {}, count = {}, all_tensors = {};
  std::function<void(GgufWriter&)> more_keys = {};
};

// Matrices take the types in turn, by their place in tiny_gguf_tensors().
inline void write_gguf_part(const std::filesystem::path& path, const GgufPartSpec& part,
                            const std::vector<GgufType>& types) {
  GgufWriter writer(path);
  if (!part.architecture.empty()) writer.set_string("general.architecture", part.architecture);
  if (part.more_keys) part.more_keys(writer);
  if (part.model_keys) {
    writer.set_integer("llama.context_length", 64);
    writer.set_integer("llama.embedding_length", 256);
    writer.set_integer("llama.block_count", 1);
    writer.set_integer("llama.feed_forward_length", 256);
    writer.set_integer("llama.attention.head_count", 4);
    writer.set_integer("llama.attention.head_count_kv", 1);
    writer.set_number("llama.attention.layer_norm_rms_epsilon", 1e-5);
    if (!writer.has("tokenizer.ggml.model")) writer.set_string("tokenizer.ggml.model", "no_vocab");
  }
  if (part.number) writer.set_integer("split.no", *part.number);
  if (part.count) writer.set_integer("split.count", *part.count);
  if (part.all_tensors) writer.set_integer("split.tensors.count", *part.all_tensors);
  const auto all = tiny_gguf_tensors();
  const auto type_of = [&](std::size_t i) {
    return all[i].second.size() == 1 ? GgufType::F32 : types[i % types.size()];
  };
  for (const std::size_t i : part.tensors)
    writer.add_tensor(all[i].first, type_of(i), all[i].second);
  for (const std::size_t i : part.tensors) {
    Index values = 1;
    for (const Index dim : all[i].second) values *= dim;
    writer.write(random_blocks(type_of(i), values, i));
  }
  writer.commit();
}

inline std::vector<std::size_t> tensor_range(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> range;
  for (std::size_t i = begin; i < end; ++i) range.push_back(i);
  return range;
}

// Types that hone convert reads and does not write.
inline std::vector<GgufType> read_only_types() {
  return {GgufType::Q4_K, GgufType::Q6_K, GgufType::Q5_K, GgufType::Q5_0,
          GgufType::Q5_1, GgufType::Q4_1, GgufType::Q3_K, GgufType::IQ4_NL};
}

inline void write_tiny_gguf(const std::filesystem::path& path,
                            const std::vector<GgufType>& types = read_only_types(),
                            const std::function<void(GgufWriter&)>& more_keys = {}) {
  write_gguf_part(path,
                  {.tensors = tensor_range(0, tiny_gguf_tensors().size()), .more_keys = more_keys},
                  types);
}

// The specs of a true split into three parts, the first of which has keys only.
inline std::vector<GgufPartSpec> tiny_split() {
  const auto total = static_cast<Index>(tiny_gguf_tensors().size());
  std::vector<GgufPartSpec> parts{{.tensors = {}},
                                  {.tensors = tensor_range(0, 5), .model_keys = false},
                                  {.tensors = tensor_range(5, 12), .model_keys = false}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) parts[i].architecture.clear();
    parts[i].number = static_cast<Index>(i);
    parts[i].count = 3;
    parts[i].all_tensors = total;
  }
  return parts;
}

inline std::filesystem::path part_path(const std::filesystem::path& folder, std::size_t i) {
  return folder / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf");
}

inline void write_parts(const std::filesystem::path& folder,
                        const std::vector<GgufPartSpec>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    write_gguf_part(part_path(folder, i), parts[i], read_only_types());
}

}  // namespace hone::test
