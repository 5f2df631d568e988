// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "tests/model_io/llama2c_export.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

using test::decoded;
using test::export_model;
using test::TinyModel;

Architecture llama2c_architecture(bool tied) {
  Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  a.tied_embeddings = tied;
  a.rope.pairing = RopePairing::Adjacent;
  return a;
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
