// SPDX-License-Identifier: Apache-2.0
// Versions 1 and 2 of llama2.c, written here field by field as the format's export script does.
#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/core/file_io.h"
#include "hone/model_io/llama2c/layout.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

using test::decoded;
using test::TinyModel;

Architecture llama2c_architecture(bool tied) {
  Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  a.tied_embeddings = tied;
  a.rope.pairing = RopePairing::Adjacent;
  return a;
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string header(const Architecture& a, std::int32_t version, std::int32_t group) {
  std::string out;
  put(out, kLlama2cMagic);
  put(out, version);
  for (const Index field :
       {a.hidden_size, a.intermediate_size, a.layers, a.heads, a.kv_heads, a.vocab_size, a.context})
    put(out, static_cast<std::int32_t>(field));
  put(out, static_cast<std::uint8_t>(a.tied_embeddings));
  if (version == 2) put(out, group);
  out.resize(256);
  return out;
}

// Every tensor in file order; norms and version 1 as f32, others in groups of i8 with f32 scales.
std::string export_model(const TinyModel& model, std::int32_t version, std::size_t group) {
  std::string out = header(model.architecture(), version, static_cast<std::int32_t>(group));
  const auto add = [&](const std::string& name) {
    for (const NamedMatrix& tensor : model.tensors()) {
      if (tensor.name != name) continue;
      const std::vector<float> values = decoded(tensor);
      if (version == 1 || tensor.is_vector) {
        for (const float value : values) put(out, value);
        return;
      }
      for (std::size_t i = 0; i < values.size(); ++i)
        put(out, static_cast<std::int8_t>(std::lround(values[i] * 127)));
      for (std::size_t g = 0; g < values.size() / group; ++g) put(out, 1.0f / 127);
    }
  };
  for (const Llama2cBlock& block : llama2c_blocks(model.architecture(), false)) {
    for (Index layer = 0; layer < (block.per_layer ? model.architecture().layers : 1); ++layer)
      add(block.per_layer ? layer_name(layer, block.part) : block.part);
  }
  if (!model.architecture().tied_embeddings) add("lm_head.weight");
  return out;
}

TEST(Llama2c, reads_version_1_in_place) {
  const test::TemporaryFolder folder;
  for (const bool tied : {true, false}) {
    const TinyModel model(llama2c_architecture(tied));
    write_text_file(folder.path() / "m.bin", export_model(model, 1, 0));
    const auto file = test::open_bare(folder.path() / "m.bin");
    EXPECT_EQ(file->architecture().tied_embeddings, tied);
    for (const NamedMatrix& tensor : model.tensors())
      EXPECT_EQ(decoded(file->tensor(tensor.name)), decoded(tensor)) << tensor.name;
  }
}

TEST(Llama2c, reads_version_2_with_groups_that_cross_rows) {
  const test::TemporaryFolder folder;
  const TinyModel model(llama2c_architecture(false));
  // down_proj has 40 columns: groups of 16 run over the ends of its rows.
  write_text_file(folder.path() / "m.bin", export_model(model, 2, 16));
  const auto file = test::open_bare(folder.path() / "m.bin");
  for (const NamedMatrix& tensor : model.tensors()) {
    const std::vector<float> exact = decoded(tensor), got = decoded(file->tensor(tensor.name));
    for (std::size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(got[i], exact[i], tensor.is_vector ? 0 : 0.5 / 127 + 1e-6) << tensor.name;
  }
}

TEST(Llama2c, refuses_other_sizes_flags_and_groups) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "m.bin";
  const TinyModel model(llama2c_architecture(true));
  const auto expect_corrupt = [&](const std::string& bytes) {
    write_text_file(path, bytes);
    try {
      test::open_bare(path);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::CorruptFile) << error.what();
    }
  };
  const std::string good = export_model(model, 2, 16);
  expect_corrupt(good + "x");
  expect_corrupt(good.substr(0, good.size() - 1));
  std::string flag = good;
  flag[36] = 2;
  expect_corrupt(flag);
  for (const std::int32_t group : {0, -16, 33, 64}) {
    std::string bytes = good;
    std::memcpy(bytes.data() + 37, &group, sizeof group);
    expect_corrupt(bytes);
  }
}

}  // namespace
}  // namespace hone::model_io
