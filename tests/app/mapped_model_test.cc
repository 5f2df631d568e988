// SPDX-License-Identifier: Apache-2.0
// Large files are opened without being read. The files have holes, so that they take no space.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "hone/app/inspect.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/model_io/hf_config.h"
#include "hone/model_io/model_file.h"
#include "hone/model_io/tensor_plan.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// The share of the file's pages that are in memory.
double resident_share(const fs::path& path) {
  const MmapFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  std::vector<unsigned char> pages(bytes.size() / 4096 + 1);
  if (::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) != 0) return 1;
  const auto resident = std::ranges::count_if(pages, [](unsigned char page) { return page & 1; });
  return static_cast<double>(resident) / static_cast<double>(pages.size());
}

model_io::Architecture large_architecture() {
  model_io::Architecture a = test::tiny_architecture();
  a.hidden_size = 1024;
  a.intermediate_size = 4096;
  a.heads = a.kv_heads = 16;
  a.head_dim = a.rope.rotary_dims = 64;
  a.layers = 16;
  return a;
}

// A folder whose f32 weights are zeros that no disk holds.
fs::path write_large_model(const fs::path& folder) {
  const model_io::Architecture a = large_architecture();
  Json header = Json::object();
  Index at = 0;
  for (const auto& tensor : model_io::plan_tensors(a)) {
    const Index end = at + tensor.rows * tensor.cols * 4;
    Json shape = tensor.is_vector ? Json{tensor.cols} : Json{tensor.rows, tensor.cols};
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", std::move(shape)}, {"data_offsets", {at, end}}};
    at = end;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  fs::create_directories(folder);
  write_text_file(folder / "model.safetensors", bytes + text);
  fs::resize_file(folder / "model.safetensors", bytes.size() + text.size() + at);
  write_json_file(folder / "config.json", model_io::write_hf_config(a, "float32"));
  return folder / "model.safetensors";
}

TEST(MappedModel, opening_and_inspecting_touch_a_twentieth_of_a_file_at_most) {
  const test::TemporaryFolder folder;
  const fs::path file = write_large_model(folder.path() / "m");
  EXPECT_GT(fs::file_size(file), std::uintmax_t{1} << 30);
  {
    const auto model = test::open_bare(folder.path() / "m");
    EXPECT_EQ(model->tensors().size(), 16u * 9 + 3);
  }
  EXPECT_LT(resident_share(file), 0.05);
  EXPECT_EQ(inspect_file({.file = folder.path() / "m", .tokenizer = {}})["bytes"],
            fs::file_size(file));
  EXPECT_EQ(inspect_file({.file = file, .tokenizer = {}})["format"], "safetensors");
  EXPECT_LT(resident_share(file), 0.05);
  EXPECT_GT(resident_share(file), 0);  // the header: mincore() tells
}

}  // namespace
}  // namespace hone::app
