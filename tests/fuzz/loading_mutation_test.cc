// SPDX-License-Identifier: Apache-2.0
// 10,000 seeded mutations of the files that loading maps: those of the cache of packed weights, and
// models that are truncated while they are read. Each opens or throws one hone::Error.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/log.h"
#include "hone/infer/model/packed_file.h"
#include "hone/infer/model/weights.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class LoadingMutation : public testing::Test {
 protected:
  LoadingMutation() : folder_(test::make_memory_folder()) { set_log_level(LogLevel::Error); }
  fs::path at(const char* name) const { return folder_.path() / name; }

  // Cuts the file at any byte once it is mapped, and hands the mapping to `parse`.
  test::Outcome truncate_while_mapped(const fs::path& path,
                                      const std::function<void(const MmapFile&)>& parse) const {
    const std::string seed = read_text_file(path);
    PhiloxStream random(9);
    return test::run_mutations(
        seed, [](std::string&, PhiloxStream&) {},
        [&](const std::string& bytes) {
          test::write_plainly(path, bytes);
          const MmapFile file(path);
          if (random.below(2) == 0) static_cast<void>(sum(file));  // the pages are there already
          fs::resize_file(path, random.below(static_cast<std::uint32_t>(bytes.size())));
          parse(file);
          sum(file);
          file.check_intact();
          ADD_FAILURE() << "a truncated file passes for intact";
        },
        false);
  }
  static int sum(const MmapFile& file) {
    int total = 0;
    for (const std::byte byte : file.bytes()) total += std::to_integer<int>(byte);
    return total;
  }

  test::TemporaryFolder folder_;
};

TEST_F(LoadingMutation, packed_file) {
  const test::TinyModel tiny(test::tiny_architecture());
  write_gguf(at("m.gguf"), tiny.source(), model_io::StoreType::Q8_0);
  const auto model = test::open_bare(at("m.gguf"));
  infer::WeightPacker packer(*model, infer::WeightFormat::File, serial_executor());
  const infer::ModelWeights weights = pack_weights(*model, packer, serial_executor());
  const infer::PackedOrigin origin{
      .identity = "i", .layout = "l", .weights = "file", .model = "m.gguf"};
  write_packed_file(at("p"), origin, packer.entries(), serial_executor());
  const auto open = [&](const std::string& bytes) {
    test::write_plainly(at("p"), bytes);
    const infer::PackedFile file(at("p"), origin);
    infer::WeightPacker mapped(*model, infer::WeightFormat::File, serial_executor(), &file);
    pack_weights(*model, mapped,
                 serial_executor());  // views panels before their checksums are looked at
    file.verify(serial_executor());
  };
  const std::string seed = read_text_file(at("p"));
  open(seed);
  EXPECT_GT(test::run_mutations(seed, test::mutate_safetensors, open).refused, 1000);
  EXPECT_GT(test::run_mutations(seed, test::mutate_binary, open).refused, 1000);
}

TEST_F(LoadingMutation, safetensors_truncated_while_mapped) {
  write_hugging_face(at("hf"), test::TinyModel(test::tiny_architecture()).source());
  EXPECT_GT(
      truncate_while_mapped(at("hf") / "model.safetensors",
                            [](const MmapFile& file) { parse_safetensors(file.bytes(), "fuzz"); })
          .refused,
      1000);
}

TEST_F(LoadingMutation, gguf_truncated_while_mapped) {
  test::write_tiny_gguf(at("k.gguf"));
  EXPECT_GT(truncate_while_mapped(at("k.gguf"),
                                  [](const MmapFile& file) { parse_gguf(file.bytes(), "fuzz"); })
                .refused,
            1000);
}

}  // namespace
}  // namespace hone
