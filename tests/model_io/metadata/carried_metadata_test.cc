// SPDX-License-Identifier: Apache-2.0
// What a model says of itself survives every way between GGUF files and folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/model_io/metadata/gguf_metadata.h"
#include "hone/model_io/metadata/model_card.h"
#include "tests/model_io/metadata/described_model.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class CarriedMetadata : public testing::Test {
 protected:
  CarriedMetadata() { test::write_described_gguf(path("in.gguf")); }
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  void to_gguf(const char* in, const char* out, std::optional<StoreType> type = {}) const {
    const auto file = open_model_or_throw(path(in));
    write_gguf(path(out), test::source_of(*file), type);
  }
  void to_folder(const char* in, const char* out) const {
    const auto file = open_model_or_throw(path(in));
    write_hugging_face(path(out), test::source_of(*file), std::nullopt);
  }
  // Keys of `in` that `out` lacks or has with another value.
  std::vector<std::string> lost(const char* in, const char* out) const {
    const auto before = test::keys_of(path(in)), after = test::keys_of(path(out));
    std::vector<std::string> keys;
    for (const auto& [key, value] : before) {
      if (const auto at = after.find(key); at == after.end() || at->second != value)
        keys.push_back(key);
    }
    return keys;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CarriedMetadata, gguf_to_gguf_keeps_every_key) {
  to_gguf("in.gguf", "out.gguf");
  EXPECT_THAT(lost("in.gguf", "out.gguf"), testing::IsEmpty());
}

TEST_F(CarriedMetadata, other_types_drop_only_what_told_of_the_old_ones) {
  to_gguf("in.gguf", "out.gguf", StoreType::Q8_0);
  EXPECT_THAT(lost("in.gguf", "out.gguf"),
              testing::ElementsAre("general.file_type", "quantize.imatrix.entries_count"));
  EXPECT_EQ(test::keys_of(path("out.gguf"))["general.file_type"], Json({"u32", 7}));
}

TEST_F(CarriedMetadata, a_folder_gives_back_every_key_that_does_not_tell_of_types) {
  to_folder("in.gguf", "hf");
  to_gguf("hf", "out.gguf");
  std::vector<std::string> keys = lost("in.gguf", "out.gguf");
  std::erase(keys, "tokenizer.ggml.scores");  // in a folder their order alone counts
  EXPECT_THAT(keys, testing::ElementsAre("general.file_type", "llama.rope.scaling.type",
                                         "quantize.imatrix.entries_count"));
}

TEST_F(CarriedMetadata, an_artifact_gives_back_the_same_keys_as_a_folder) {
  const auto file = open_model_or_throw(path("in.gguf"));
  write_artifact(path("packed"), test::source_of(*file));
  to_folder("in.gguf", "hf");
  to_gguf("hf", "a.gguf");
  to_gguf("packed", "b.gguf");
  std::vector<std::string> keys = lost("a.gguf", "b.gguf");
  std::erase(keys, "general.file_type");  // codes against floats
  EXPECT_THAT(keys, testing::IsEmpty());
}

TEST_F(CarriedMetadata, a_folder_has_each_thing_where_others_look_for_it) {
  to_folder("in.gguf", "hf");
  const Json tokenizer = read_json_file(path("hf/tokenizer_config.json"));
  ASSERT_EQ(tokenizer["chat_template"].size(), 2u);
  EXPECT_EQ(tokenizer["chat_template"][0]["name"], "default");
  EXPECT_EQ(tokenizer["chat_template"][0]["template"], test::kChat);
  EXPECT_EQ(tokenizer["chat_template"][1]["name"], "tool_use");
  const std::string card = read_text_file(path("hf/README.md"));
  EXPECT_THAT(card, HasSubstr("\nlanguage:\n- \"en\"\n- \"no\"\n"));
  EXPECT_THAT(card, HasSubstr("\nbase_model:\n- \"zoo/big-cat-7b\"\n"));
  EXPECT_THAT(card, HasSubstr("\n# Tiny L\u00f6we 7b \"v1\"\n"));
  const Json generation = read_json_file(path("hf/generation_config.json"));
  EXPECT_EQ(generation["temperature"], 0.7);
  EXPECT_EQ(generation["top_k"], 40);
  EXPECT_EQ(generation["do_sample"], true);
  const Json kept = read_json_file(path("hf/config.json"))["gguf_metadata"];
  EXPECT_EQ(kept["vendor.list"], Json({{"type", "i64"}, {"value", {-1, 1}}}));
  for (const char* key : {"general.license", "general.name", "general.base_model.0.name",
                          "general.file_type", "llama.block_count", "tokenizer.ggml.eos_token_id",
                          "general.sampling.temp", "quantize.imatrix.entries_count"})
    EXPECT_FALSE(kept.contains(key)) << key;
}

TEST_F(CarriedMetadata, a_card_that_is_there_is_copied_and_counts_when_it_is_edited) {
  to_folder("in.gguf", "hf");
  const std::string card =
      "---\nlicense: mit\npipeline_tag: text-generation\ntags: chat\nlanguage: de\n"
      "base_model: https://huggingface.co/zoo/small-cat\n---\n\n# Mine\n\nText.\n";
  write_text_file(path("hf/README.md"), card);
  to_folder("hf", "copy");
  EXPECT_EQ(read_text_file(path("copy/README.md")), card);
  to_gguf("copy", "out.gguf");
  auto keys = test::keys_of(path("out.gguf"));
  EXPECT_EQ(keys["general.license"][1], "mit");
  EXPECT_EQ(keys["general.tags"][1], Json::array({"chat", "text-generation"}));
  EXPECT_EQ(keys["general.languages"][1], Json::array({"de"}));
  EXPECT_EQ(keys["general.base_model.0.name"][1], "Small Cat");
  EXPECT_EQ(keys["general.base_model.0.repo_url"][1], "https://huggingface.co/zoo/small-cat");
}

// transformers 5 writes the files, earlier versions the key of tokenizer_config.json.
TEST_F(CarriedMetadata, chat_templates_are_read_from_every_place_of_a_folder) {
  to_folder("in.gguf", "hf");
  fs::create_directory(path("hf/additional_chat_templates"));
  write_text_file(path("hf/chat_template.jinja"), "new");
  write_text_file(path("hf/additional_chat_templates/rag.jinja"), "rag");
  const ModelMetadata from_files = open_model_or_throw(path("hf"))->metadata();
  ASSERT_EQ(from_files.chat_templates().size(), 2u) << "files win over the key";
  EXPECT_EQ(*from_files.chat_template(), "new");
  EXPECT_EQ(*from_files.chat_template("rag"), "rag");
  to_gguf("hf", "out.gguf");
  auto keys = test::keys_of(path("out.gguf"));
  EXPECT_EQ(keys["tokenizer.chat_template"][1], "new");
  EXPECT_EQ(keys["tokenizer.chat_template.rag"][1], "rag");
  EXPECT_EQ(keys["tokenizer.chat_templates"][1], Json::array({"rag"}));
}

TEST_F(CarriedMetadata, a_tokenizer_that_replaces_the_models_brings_its_chat_templates) {
  to_folder("in.gguf", "hf");
  Json config = read_json_file(path("hf/tokenizer_config.json"));
  config["chat_template"] = "other";
  write_json_file(path("hf/tokenizer_config.json"), config);
  const auto file = open_model_or_throw(path("in.gguf"), {.tokenizer = path("hf")});
  EXPECT_EQ(*file->metadata().chat_template(), "other");
  EXPECT_EQ(file->metadata().find("tokenizer.ggml.mask_token_id"), nullptr) << "an old id";
  config.erase("chat_template");
  write_json_file(path("hf/tokenizer_config.json"), config);
  EXPECT_EQ(
      *open_model_or_throw(path("in.gguf"), {.tokenizer = path("hf")})->metadata().chat_template(),
      test::kChat);
}

TEST_F(CarriedMetadata, hostile_descriptions_leave_the_model_readable) {
  const auto set = [](GgufWriter& writer) {
    writer.set_string("tokenizer.chat_template", "\xff");
    writer.set_string("tokenizer.chat_template.../../x", "y");
    writer.set_string("general.license", std::string(2 << 20, 'x'));
    writer.set_number("general.name", 1);
    writer.set_strings("general.sampling.temp", std::vector<std::string>{"hot"});
    model_io::write_gguf_vocabulary(test::tiny_sentencepiece(48), 48, writer);
  };
  test::write_tiny_gguf(path("bad.gguf"), test::read_only_types(), set);
  const auto file = open_model_or_throw(path("bad.gguf"));
  EXPECT_EQ(file->metadata().chat_template(), nullptr);
  EXPECT_EQ(file->metadata().text("general.license"), "");
  EXPECT_EQ(file->metadata().text("general.name"), "");
  EXPECT_TRUE(file->generation_defaults().empty());
  to_folder("bad.gguf", "hf");
  write_text_file(path("hf/README.md"), "---\n[[[\n---\n");
  write_text_file(path("hf/chat_template.jinja"), std::string(2 << 20, 'x'));
  Json config = read_json_file(path("hf/config.json"));
  config["gguf_metadata"] = {
      {"a", 1}, {"b", {{"type", "u8"}, {"value", 256}}}, {"c", {{"type", 1}}}};
  write_json_file(path("hf/config.json"), config);
  const auto folder = open_model_or_throw(path("hf"));
  EXPECT_TRUE(folder->metadata().entries().empty());
  EXPECT_NE(folder->metadata().chat_template("../../x"), nullptr);
  EXPECT_FALSE(fs::exists(folder_.path().parent_path() / "x"));
}

// A type stands for those that llama.cpp's own tool gives most of the matrices of the layers.
TEST_F(CarriedMetadata, the_file_type_is_that_of_most_matrices_of_the_layers) {
  using enum GgufType;
  const std::vector<std::pair<std::vector<GgufType>, Index>> cases{
      {{F32}, 0},
      {{F16}, 1},
      {{Q4_0}, 2},
      {{Q4_1}, 3},
      {{Q8_0}, 7},
      {{Q5_0}, 8},
      {{Q5_1}, 9},
      {{Q4_K}, 15},
      {{Q5_K}, 17},
      {{Q6_K}, 18},
      {{BF16}, 32},
      // The embedding and the output are of the first two; those of the layers follow.
      {{Q6_K, Q8_0, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q4_K, Q6_K, F32, F32, F32}, 15},
      {{Q8_0, Q8_0, Q4_1, Q4_1, Q4_1, Q4_1, Q8_0, Q8_0, Q8_0, F32, F32, F32}, 3}};
  for (const auto& [types, number] : cases) {
    test::write_tiny_gguf(path("typed.gguf"), types);
    const auto file = test::open_bare(path("typed.gguf"));
    write_gguf(path("out.gguf"), test::source_of(*file));
    EXPECT_EQ(test::keys_of(path("out.gguf"))["general.file_type"], Json({"u32", number}));
  }
}

TEST_F(CarriedMetadata, file_types_have_the_names_of_the_gguf_package) {
  HONE_REQUIRE_PEER("gguf");
  const Json names =
      parse_json(test::run_peer("tests/model_io/metadata/peer_metadata.py", {"types"}), "gguf");
  for (const auto& [type, name] :
       std::vector<std::pair<GgufType, const char*>>{{GgufType::F32, "ALL_F32"},
                                                     {GgufType::Q4_1, "MOSTLY_Q4_1"},
                                                     {GgufType::Q4_K, "MOSTLY_Q4_K_M"},
                                                     {GgufType::Q5_K, "MOSTLY_Q5_K_M"},
                                                     {GgufType::Q6_K, "MOSTLY_Q6_K"},
                                                     {GgufType::BF16, "MOSTLY_BF16"}}) {
    test::write_tiny_gguf(path("typed.gguf"), {type});
    const auto file = test::open_bare(path("typed.gguf"));
    write_gguf(path("out.gguf"), test::source_of(*file));
    EXPECT_EQ(test::keys_of(path("out.gguf"))["general.file_type"][1], names[name]) << name;
  }
}

TEST_F(CarriedMetadata, the_gguf_package_reads_the_same_from_a_card) {
  HONE_REQUIRE_PEER("gguf");
  to_folder("in.gguf", "hf");
  const auto expect_same = [&] {
    test::run_peer("tests/model_io/metadata/peer_metadata.py",
                   {"card", path("hf").string(), path("theirs.gguf").string()});
    auto theirs = test::keys_of(path("theirs.gguf"));
    const std::string card = read_text_file(path("hf/README.md"));
    const auto entries = read_model_card(card, "README.md");
    EXPECT_GT(entries.size(), 5u);
    for (const MetadataEntry& entry : entries)
      EXPECT_EQ(theirs[entry.key], Json({name_of(entry.type), entry.value})) << entry.key;
  };
  expect_same();
  write_text_file(path("hf/README.md"),
                  "---\nlicense: [mit, other]\nlicense_name: my # licence\nlanguages:\n  - en\n"
                  "language: [de]\ntags: chat\npipeline_tag: text-generation\nname: A B\n"
                  "base_model:\n- zoo/big-cat-v1.5\n- https://huggingface.co/ZOO/tiny_lion-8b\n"
                  "- https://example.org/x\ndatasets: zoo/meows\n---\n");
  expect_same();
}

TEST_F(CarriedMetadata, transformers_has_the_same_chat_template_and_its_text) {
  HONE_REQUIRE_PEER("transformers", "jinja2");
  to_folder("in.gguf", "hf");
  const auto ask = [&] {
    return parse_json(
        test::run_peer("tests/model_io/metadata/peer_metadata.py", {"chat", path("hf").string()}),
        "chat");
  };
  const Json several = ask();
  EXPECT_EQ(several["template"], Json({{"default", test::kChat}, {"tool_use", test::kToolChat}}));
  EXPECT_EQ(several["text"], "<s>user: a b\n<s>assistant: c\n");
  const auto tokenizer = open_model_or_throw(path("hf"))->tokenizer();
  EXPECT_EQ(several["ids"], Json(tokenizer->encode(several["text"].get<std::string>(),
                                                   {.add_bos = false, .parse_special = true})));
  test::write_tiny_gguf(path("one.gguf"), test::read_only_types(), [](GgufWriter& writer) {
    writer.set_string("tokenizer.chat_template", test::kChat);
    write_gguf_vocabulary(test::tiny_sentencepiece(48), 48, writer);
  });
  fs::remove_all(path("hf"));
  to_folder("one.gguf", "hf");
  EXPECT_EQ(ask()["template"], test::kChat);
}

}  // namespace
}  // namespace hone::model_io
