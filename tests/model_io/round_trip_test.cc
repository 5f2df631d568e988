// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/matrix_encoder.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using test::decoded;
using test::same_bits;
using test::TinyModel;

ModelSource source_of(const ModelFile& file) {
  return {file.architecture(), file.tensors(), file.tokenizer().get(), file.generation_defaults()};
}

// Same architecture (but for the pairing) and the same values under the same names.
template <class A, class B>
void expect_same_model(const A& a, const B& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  std::map<std::string, std::vector<float>> values;
  for (const NamedMatrix& tensor : a.tensors()) values[tensor.name] = decoded(tensor);
  for (const NamedMatrix& tensor : b.tensors())
    EXPECT_TRUE(same_bits(values[tensor.name], decoded(tensor))) << tensor.name;
  EXPECT_EQ(a.architecture().norm_eps, b.architecture().norm_eps);
  EXPECT_EQ(a.architecture().context, b.architecture().context);
  EXPECT_EQ(a.architecture().rope.theta, b.architecture().rope.theta);
  EXPECT_EQ(a.architecture().kv_heads, b.architecture().kv_heads);
  EXPECT_EQ(a.architecture().tied_embeddings, b.architecture().tied_embeddings);
}

std::vector<Architecture> varied_architectures() {
  std::vector<Architecture> all{test::tiny_architecture()};
  Architecture a = all[0];
  a.tied_embeddings = a.attention_bias = a.mlp_bias = true;
  a.kv_heads = 1;
  a.norm_eps = 1e-6;
  a.rope.theta = 500000;
  all.push_back(a);
  a.kv_heads = 4;
  a.rope.scaling = RopeScaling::Llama3;
  a.rope.factor = 8;
  a.rope.original_context = 16;
  all.push_back(a);
  a.rope = all[0].rope;
  a.rope.scaling = RopeScaling::Yarn;
  a.rope.factor = 4;
  a.rope.original_context = 16;
  a.rope.attention_factor = 1.25;
  all.push_back(a);
  return all;
}

TEST(RoundTrip, hugging_face_gguf_hugging_face_is_bit_identical) {
  for (const Architecture& architecture : varied_architectures()) {
    const test::TemporaryFolder folder;
    const TinyModel model(architecture);
    write_hugging_face(folder.path() / "a", model.source());
    const auto first = test::open_bare(folder.path() / "a");
    expect_same_model(model, *first);
    write_gguf(folder.path() / "b.gguf", source_of(*first));
    const auto second = test::open_bare(folder.path() / "b.gguf");
    EXPECT_EQ(second->architecture().rope.pairing, RopePairing::Adjacent);
    EXPECT_EQ(second->architecture().attention_bias, architecture.attention_bias);
    write_hugging_face(folder.path() / "c", source_of(*second));
    const auto third = test::open_bare(folder.path() / "c");
    expect_same_model(model, *third);
    EXPECT_EQ(read_text_file(folder.path() / "a/config.json"),
              read_text_file(folder.path() / "c/config.json"));
    EXPECT_EQ(read_text_file(folder.path() / "a/model.safetensors"),
              read_text_file(folder.path() / "c/model.safetensors"));
  }
}

TEST(RoundTrip, the_context_that_yarn_extends_survives_every_format) {
  const test::TemporaryFolder folder;
  Architecture a = test::tiny_architecture();
  a.context = 32'768;
  a.rope.scaling = RopeScaling::Yarn;
  a.rope.factor = 4;
  a.rope.original_context = 32'768;
  write_hugging_face(folder.path() / "a", TinyModel(a).source());
  ASSERT_EQ(read_json_file(folder.path() / "a/config.json")["max_position_embeddings"], 32'768);
  const auto first = test::open_bare(folder.path() / "a");
  write_gguf(folder.path() / "b.gguf", source_of(*first));
  const auto second = test::open_bare(folder.path() / "b.gguf");
  write_hugging_face(folder.path() / "c", source_of(*second));
  const auto third = test::open_bare(folder.path() / "c");
  for (const ModelFile* file : {first.get(), second.get(), third.get()}) {
    EXPECT_EQ(file->architecture().context, 131'072) << name_of(file->format());
    EXPECT_EQ(file->architecture().rope.original_context, 32'768) << name_of(file->format());
    EXPECT_EQ(file->architecture().rope.factor, 4) << name_of(file->format());
  }
  EXPECT_EQ(read_json_file(folder.path() / "c/config.json")["max_position_embeddings"], 131'072);
}

TEST(RoundTrip, pairing_permutes_rows_of_q_and_k_inside_each_head) {
  Architecture a = test::tiny_architecture();
  a.attention_bias = true;
  a.rope.rotary_dims = 12;  // of 16: the last four rows of a head stay
  const test::TemporaryFolder folder;
  const TinyModel model(a);
  write_gguf(folder.path() / "m.gguf", model.source());
  const auto file = test::open_bare(folder.path() / "m.gguf");
  const auto row_of = [](const NamedMatrix& tensor, Index row) {
    std::vector<float> all = decoded(tensor);
    const Index cols = tensor.is_vector ? 1 : tensor.matrix.cols;
    return std::vector<float>(all.begin() + row * cols, all.begin() + (row + 1) * cols);
  };
  for (const char* part : {"q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"}) {
    const std::string name = concat("model.layers.1.self_attn.", part);
    const NamedMatrix* half = nullptr;
    for (const NamedMatrix& tensor : model.tensors()) {
      if (tensor.name == name) half = &tensor;
    }
    ASSERT_NE(half, nullptr);
    const NamedMatrix& adjacent = file->tensor(name);
    const Index head = 16;  // second head
    for (Index b = 0; b < 6; ++b) {
      EXPECT_EQ(row_of(adjacent, head + 2 * b), row_of(*half, head + b)) << name;
      EXPECT_EQ(row_of(adjacent, head + 2 * b + 1), row_of(*half, head + 6 + b)) << name;
    }
    for (Index r = 12; r < 16; ++r)
      EXPECT_EQ(row_of(adjacent, head + r), row_of(*half, head + r)) << name;
  }
  try {  // config.json has no partial rotation for this family
    write_hugging_face(folder.path() / "hf", source_of(*file));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Unsupported);
  }
  EXPECT_FALSE(fs::exists(folder.path() / "hf"));
}

TEST(RoundTrip, stories_survive_every_format_bit_for_bit) {
  HONE_REQUIRE_TEST_DATA(path, "lm/stories260K.bin");
  const test::TemporaryFolder folder;
  const auto original = open_model_or_throw(path);
  ASSERT_NE(original->tokenizer(), nullptr);  // tok512.bin beside it
  EXPECT_EQ(original->architecture().stop_ids, (std::vector<text::TokenId>{1, 2}));
  write_hugging_face(folder.path() / "hf", source_of(*original));
  const auto hf = open_model_or_throw(folder.path() / "hf");
  write_gguf(folder.path() / "m.gguf", source_of(*hf));
  const auto gguf = open_model_or_throw(folder.path() / "m.gguf");
  write_llama2c(folder.path() / "m.bin", source_of(*gguf));
  const auto back = test::open_bare(folder.path() / "m.bin");
  expect_same_model(*original, *back);
  const std::string a = read_text_file(path), b = read_text_file(folder.path() / "m.bin");
  ASSERT_EQ(a.size(), b.size());
  const std::size_t tables = 28 + 4 * 260'032;  // what follows is not used by any reader
  EXPECT_EQ(a.substr(0, tables), b.substr(0, tables));
  const std::string text = "Once upon a time, there was a big dog.";
  const auto ids = original->tokenizer()->encode(text);
  EXPECT_EQ(hf->tokenizer()->encode(text), ids);
  EXPECT_EQ(gguf->tokenizer()->encode(text), ids);
}

TEST(RoundTrip, half_precision_rounds_each_value_to_nearest) {
  const test::TemporaryFolder folder;
  const TinyModel model(test::tiny_architecture());
  for (const StoreType type : {StoreType::F16, StoreType::BF16}) {
    write_hugging_face(folder.path() / "hf", model.source(), type);
    const auto hf = test::open_bare(folder.path() / "hf");
    write_gguf(folder.path() / "m.gguf", source_of(*hf));  // keeps the type
    const auto gguf = test::open_bare(folder.path() / "m.gguf");
    const double step = type == StoreType::F16 ? 0x1p-11 : 0x1p-8;
    for (const NamedMatrix& tensor : model.tensors()) {
      const std::vector<float> exact = decoded(tensor), got = decoded(hf->tensor(tensor.name));
      for (std::size_t i = 0; i < exact.size(); ++i)
        ASSERT_LE(std::abs(exact[i] - got[i]), std::abs(exact[i]) * step + 0x1p-24) << tensor.name;
    }
    EXPECT_EQ(gguf->tensor("lm_head.weight").matrix.dtype,
              hf->tensor("lm_head.weight").matrix.dtype);
    EXPECT_EQ(gguf->tensor("model.norm.weight").matrix.dtype, Dtype::Float32);
  }
}

TEST(RoundTrip, quantized_codes_are_copied_between_gguf_and_artifact) {
  const test::TemporaryFolder folder;
  const TinyModel model(test::tiny_architecture());
  for (const StoreType type : {StoreType::Q8_0, StoreType::Q4_0}) {
    const WriteReport report = write_gguf(folder.path() / "a.gguf", model.source(), type);
    ASSERT_EQ(report.kept.size(), 2u);  // down_proj has 40 columns
    EXPECT_EQ(report.kept[0].name, "model.layers.0.mlp.down_proj.weight");
    EXPECT_EQ(report.kept[0].dtype, "f16");
    const auto gguf = test::open_bare(folder.path() / "a.gguf");
    EXPECT_EQ(gguf->tensor("lm_head.weight").matrix.layout, WeightLayout::GgufBlocks);
    write_artifact(folder.path() / "b", source_of(*gguf));
    const auto artifact = test::open_bare(folder.path() / "b");
    EXPECT_EQ(artifact->format(), ModelFormat::HoneArtifact);
    EXPECT_EQ(artifact->tensor("lm_head.weight").matrix.quant.spec, canonical_spec(type));
    write_gguf(folder.path() / "a2.gguf", source_of(*artifact));
    const auto again = test::open_bare(folder.path() / "a2.gguf");
    for (const NamedMatrix& tensor : gguf->tensors()) {
      const NamedMatrix& other = again->tensor(tensor.name);
      ASSERT_EQ(tensor.matrix.bytes.size(), other.matrix.bytes.size()) << tensor.name;
      EXPECT_EQ(std::memcmp(tensor.matrix.bytes.data(), other.matrix.bytes.data(),
                            other.matrix.bytes.size()),
                0)
          << tensor.name;
    }
    // From the same f32 weights, with rows in Hugging Face's order: the same values.
    write_artifact(folder.path() / "d", model.source(), type);
    expect_same_model(*artifact, *test::open_bare(folder.path() / "d"));
    write_hugging_face(folder.path() / "e", source_of(*artifact), StoreType::F32);
    expect_same_model(*artifact, *test::open_bare(folder.path() / "e"));
  }
}

// Canonical codes of random content for every matrix; vectors stay f32.
class RandomCodes {
 public:
  RandomCodes(const TinyModel& model, const QuantSpec& spec) {
    PhiloxStream random(3);
    for (NamedMatrix tensor : model.tensors()) {
      if (!tensor.is_vector) {
        StoredMatrix& matrix = tensor.matrix;
        const Index scales =
            spec.span == ScaleSpan::Tensor ? 1 : matrix.rows * spec.groups_per_row(matrix.cols);
        matrix.layout = WeightLayout::Canonical;
        matrix.act_int8 = false;
        matrix.quant.spec = spec;
        matrix.quant.rows = matrix.rows;
        matrix.quant.cols = matrix.cols;
        matrix.quant.codes = fill(matrix.rows * spec.code_bytes_per_row(matrix.cols), random);
        std::vector<std::byte>& bytes = blobs_.emplace_back();
        for (Index i = 0; i < scales; ++i) {
          const float scale = static_cast<float>(random.below(100) + 1) / 64;
          const auto half = float_to_f16(scale);
          const auto raw = spec.scale_dtype == Dtype::Float32 ? std::as_bytes(std::span(&scale, 1))
                                                              : std::as_bytes(std::span(&half, 1));
          bytes.insert(bytes.end(), raw.begin(), raw.end());
        }
        matrix.quant.scales = bytes;
        if (!spec.symmetric) matrix.quant.zeros = fill(scales, random, (1 << spec.bits));
      }
      tensors_.push_back(tensor);
    }
  }
  const std::vector<NamedMatrix>& tensors() const { return tensors_; }

 private:
  std::span<const std::byte> fill(Index count, PhiloxStream& random, std::uint32_t below = 256) {
    std::vector<std::byte>& bytes = blobs_.emplace_back();
    for (Index i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(random.below(below)));
    return bytes;
  }
  std::deque<std::vector<std::byte>> blobs_;
  std::vector<NamedMatrix> tensors_;
};

TEST(RoundTrip, artifact_holds_every_kind_of_code) {
  const test::TemporaryFolder folder;
  const TinyModel model(test::tiny_architecture());
  for (const char* text : {"int8:row", "int8:tensor", "int4:g32:asym", "int4:g16:sym",
                           "int3:g16:asym", "int2:g32:asym:f32", "int5:row:asym"}) {
    const QuantSpec spec = parse_quant_spec(text);
    const RandomCodes codes(model, spec);
    const ModelSource source{model.architecture(), codes.tensors(), nullptr, Json::object()};
    ArtifactNotes notes;
    notes.algorithm = "gptq";
    notes.metadata = {{"hone.source", "abc"}};
    notes.files = {{"recipe.toml", "x = 1\n"}};
    write_artifact(folder.path() / "m", source, std::nullopt, notes);
    const auto file = test::open_bare(folder.path() / "m");
    for (const NamedMatrix& tensor : codes.tensors()) {
      const NamedMatrix& read = file->tensor(tensor.name);
      EXPECT_TRUE(same_bits(decoded(read), decoded(tensor))) << text << " " << tensor.name;
      if (tensor.is_vector) continue;
      EXPECT_EQ(read.matrix.quant.spec, spec);
      EXPECT_FALSE(read.matrix.act_int8);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.matrix.quant.codes.data()) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.matrix.quant.scales.data()) % 64, 0u);
    }
    EXPECT_EQ(read_text_file(folder.path() / "m/recipe.toml"), "x = 1\n");
  }
}

TEST(RoundTrip, writers_refuse_values_that_a_type_cannot_hold) {
  const test::TemporaryFolder folder;
  std::vector<NamedMatrix> tensors;
  const TinyModel model(test::tiny_architecture());
  for (const NamedMatrix& tensor : model.tensors()) tensors.push_back(tensor);
  std::vector<float> values = decoded(tensors[0]);
  tensors[0].matrix.bytes = std::as_bytes(std::span(values));
  const ModelSource source{model.architecture(), tensors, nullptr, Json::object()};
  values[5] = 1e5f;
  EXPECT_THROW(write_hugging_face(folder.path() / "a", source, StoreType::F16), Error);
  EXPECT_NO_THROW(write_hugging_face(folder.path() / "b", source, StoreType::BF16));
  values[5] = std::nanf("");
  EXPECT_THROW(write_gguf(folder.path() / "c.gguf", source, StoreType::Q8_0), Error);
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
  EXPECT_FALSE(fs::exists(folder.path() / "c.gguf"));
  // The scale of a block must be a finite f16.
  for (const StoreType type : {StoreType::Q8_0, StoreType::Q4_0}) {
    const float largest = 65519.0f * (type == StoreType::Q8_0 ? 127 : 8);
    for (const float sign : {1.0f, -1.0f}) {
      values[5] = sign * largest;
      write_gguf(folder.path() / "d.gguf", source, type);
      EXPECT_TRUE(std::ranges::all_of(
          decoded(test::open_bare(folder.path() / "d.gguf")->tensor(tensors[0].name)),
          [](float value) { return std::isfinite(value); }));
      values[5] = sign * largest * 1.0001f;
      const auto refused = [&](const auto& write) {
        return test::refusal(write, ErrorCategory::CorruptFile);
      };
      EXPECT_THAT(refused([&] { write_gguf(folder.path() / "e.gguf", source, type); }),
                  testing::HasSubstr("values in the range of " + std::string(name_of(type))));
      EXPECT_NE(refused([&] { write_artifact(folder.path() / "e", source, type); }), "");
    }
  }
}

TEST(RoundTrip, writers_refuse_tensors_that_do_not_fit_the_architecture) {
  const test::TemporaryFolder folder;
  const TinyModel model(test::tiny_architecture());
  std::vector<NamedMatrix> tensors = model.tensors();
  const auto write = [&] {
    write_gguf(folder.path() / "m.gguf", {model.architecture(), tensors, nullptr, Json::object()});
  };
  EXPECT_NO_THROW(write());
  tensors.push_back(tensors.back());
  EXPECT_THROW(write(), Error);  // twice
  tensors.pop_back();
  tensors.pop_back();
  EXPECT_THROW(write(), Error);  // one missing
  tensors = model.tensors();
  tensors[0].matrix.rows -= 1;
  EXPECT_THROW(write(), Error);  // wrong shape
}

TEST(RoundTrip, llama2c_says_what_it_cannot_express) {
  const test::TemporaryFolder folder;
  Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  EXPECT_NO_THROW(write_llama2c(folder.path() / "ok.bin", TinyModel(a).source()));
  const TinyModel ok(a);
  write_llama2c(folder.path() / "ok.bin", ok.source());
  const auto file = test::open_bare(folder.path() / "ok.bin");
  EXPECT_FALSE(file->architecture().tied_embeddings);
  write_hugging_face(folder.path() / "hf", source_of(*file));
  expect_same_model(ok, *test::open_bare(folder.path() / "hf"));
  std::vector<Architecture> others(4, a);
  others[0].attention_bias = true;
  others[1].rope.theta = 5e5;
  others[2].norm_eps = 1e-6;
  others[3].head_dim = others[3].rope.rotary_dims = 16;
  for (const Architecture& other : others) {
    try {
      write_llama2c(folder.path() / "no.bin", TinyModel(other).source());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Unsupported);
    }
  }
  EXPECT_FALSE(fs::exists(folder.path() / "no.bin"));
}

TEST(RoundTrip, sentencepiece_vocabulary_survives_gguf) {
  const test::TemporaryFolder folder;
  Architecture a = test::tiny_architecture();
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(a.vocab_size - 4));
  const TinyModel model(a);
  write_gguf(folder.path() / "m.gguf", model.source(tokenizer.get()));
  const auto file = open_model_or_throw(folder.path() / "m.gguf");
  const text::Vocabulary& v = file->tokenizer()->vocabulary();
  ASSERT_EQ(v.pieces.size(), 48u);  // filled up to the embedding's rows
  EXPECT_EQ(v.pieces[5], tokenizer->vocabulary().pieces[5]);
  EXPECT_EQ(v.types[47], text::TokenType::Unused);
  EXPECT_EQ(v.bos, 1);
  EXPECT_EQ(file->tokenizer()->encode("a bad cab"), tokenizer->encode("a bad cab"));
}

// Padding tokens of a GGUF are rows of the embedding, not tokens of a folder.
TEST(RoundTrip, types_of_padding_tokens_survive_a_folder) {
  const test::TemporaryFolder folder;
  const Architecture a = test::tiny_architecture();
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(a.vocab_size - 4));
  const TinyModel model(a);
  write_gguf(folder.path() / "m.gguf", model.source(tokenizer.get()));
  const auto gguf = open_model_or_throw(folder.path() / "m.gguf");
  write_hugging_face(folder.path() / "hf", source_of(*gguf));
  const auto hf = open_model_or_throw(folder.path() / "hf");
  EXPECT_EQ(hf->tokenizer()->vocab_size(), a.vocab_size - 4);
  write_gguf(folder.path() / "back.gguf", source_of(*hf));
  const auto back = open_model_or_throw(folder.path() / "back.gguf");
  EXPECT_EQ(back->tokenizer()->vocabulary().pieces, gguf->tokenizer()->vocabulary().pieces);
  EXPECT_EQ(back->tokenizer()->vocabulary().types, gguf->tokenizer()->vocabulary().types);
}

// As llama.cpp's converter does it for Gemma, whose runs of spaces are user-defined pieces.
TEST(RoundTrip, user_defined_pieces_have_plain_spaces_in_gguf) {
  const test::TemporaryFolder folder;
  const Architecture a = test::tiny_architecture();
  text::Vocabulary v = test::tiny_sentencepiece(a.vocab_size);
  v.pieces[47] = "\u2581\u2581";
  v.types[47] = text::TokenType::UserDefined;
  const auto tokenizer = text::make_tokenizer(v);
  const TinyModel model(a);
  write_gguf(folder.path() / "m.gguf", model.source(tokenizer.get()));
  const MmapFile file(folder.path() / "m.gguf");
  const GgufFile gguf = parse_gguf(file.bytes(), "m.gguf");
  EXPECT_EQ(gguf.strings("tokenizer.ggml.tokens")->at(47), "  ");
  const auto opened = open_model_or_throw(folder.path() / "m.gguf");
  EXPECT_EQ(opened->tokenizer()->vocabulary().pieces[47], "\u2581\u2581");
  for (const auto* one : {tokenizer.get(), opened->tokenizer().get()}) {
    const auto ids = one->encode("a  b");
    EXPECT_EQ(std::ranges::count(ids, 47), 1);
    EXPECT_EQ(one->decode(ids), "a  b");
  }
}

// What GGUF has no keys for, hone has.
TEST(RoundTrip, flags_of_added_tokens_and_nfc_survive_gguf) {
  const test::TemporaryFolder folder;
  const Architecture a = test::tiny_architecture();
  text::Vocabulary v = test::tiny_sentencepiece(a.vocab_size);
  for (const int id : {44, 45, 46}) {
    v.types[static_cast<std::size_t>(id)] = text::TokenType::Control;
    v.pieces[static_cast<std::size_t>(id)] = concat("<|", id, "|>");
  }
  v.added_tokens = {{.id = 44, .special = true, .rstrip = true},
                    {.id = 45, .special = true, .lstrip = true, .single_word = true}};
  const auto tokenizer = text::make_tokenizer(v);
  const TinyModel model(a);
  write_gguf(folder.path() / "m.gguf", model.source(tokenizer.get()));
  write_hugging_face(folder.path() / "hf",
                     source_of(*open_model_or_throw(folder.path() / "m.gguf")));
  for (const char* name : {"m.gguf", "hf"}) {
    const auto opened = open_model_or_throw(folder.path() / name);
    for (const char* text : {"a<|44|>  b", "a <|45|> b", "a<|45|>b", "a<|46|> b"}) {
      EXPECT_EQ(opened->tokenizer()->encode(text, {.parse_special = true}),
                tokenizer->encode(text, {.parse_special = true}))
          << name << " " << text;
    }
  }
  text::Vocabulary composed = test::tiny_sentencepiece(a.vocab_size);
  composed.nfc = true;
  const auto other = text::make_tokenizer(composed);
  write_gguf(folder.path() / "nfc.gguf", model.source(other.get()));
  EXPECT_TRUE(open_model_or_throw(folder.path() / "nfc.gguf")->tokenizer()->vocabulary().nfc);
}

TEST(RoundTrip, ggufs_of_qwen_normalize) {
  const test::TemporaryFolder folder;
  const auto nfc_of = [&](const char* pre) {
    GgufWriter writer(folder.path() / "v.gguf");
    writer.set_string("tokenizer.ggml.model", "gpt2");
    writer.set_string("tokenizer.ggml.pre", pre);
    writer.set_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
    writer.set_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    writer.commit();
    const MmapFile file(folder.path() / "v.gguf");
    return read_gguf_vocabulary(parse_gguf(file.bytes(), "v.gguf"), "v.gguf").nfc;
  };
  EXPECT_TRUE(nfc_of("qwen2"));
  EXPECT_FALSE(nfc_of("gpt-2"));
}

TEST(RoundTrip, tokens_of_phi3_take_the_white_space_behind_them_along) {
  const test::TemporaryFolder folder;
  GgufWriter writer(folder.path() / "v.gguf");
  writer.set_string("general.architecture", "phi3");
  text::Vocabulary v = test::tiny_sentencepiece(48);
  v.types[47] = text::TokenType::Control;
  v.pieces[47] = "<|end|>";
  write_gguf_vocabulary(v, 48, writer);
  writer.commit();
  const MmapFile file(folder.path() / "v.gguf");
  const auto read = read_gguf_vocabulary(parse_gguf(file.bytes(), "v.gguf"), "v.gguf");
  ASSERT_EQ(read.added_tokens.size(), 2u);
  EXPECT_EQ(read.added_tokens[0].id, 2) << "</s>";
  EXPECT_EQ(read.added_tokens[1].id, 47);
  EXPECT_TRUE(read.added_tokens[0].rstrip && read.added_tokens[1].rstrip);
}

// Some published models have a tokenizer whose last added tokens no embedding knows.
TEST(RoundTrip, added_tokens_without_rows_are_left_out) {
  const test::TemporaryFolder folder;
  const Architecture a = test::tiny_architecture();
  const TinyModel model(a);
  const auto write = [&](text::TokenType type) {
    text::Vocabulary v = test::tiny_sentencepiece(a.vocab_size);
    for (const char* piece : {"<image>", "<audio>"}) {
      v.pieces.emplace_back(piece);
      v.types.push_back(type);
      v.scores.push_back(0);
    }
    const auto tokenizer = text::make_tokenizer(v);
    write_hugging_face(folder.path() / "hf", model.source(tokenizer.get()));
  };
  write(text::TokenType::Control);
  const auto opened = open_model_or_throw(folder.path() / "hf");
  EXPECT_EQ(opened->tokenizer()->vocab_size(), a.vocab_size);
  EXPECT_EQ(opened->tokenizer()->encode("a<image>", {.parse_special = true}),
            opened->tokenizer()->encode("a<image>"));
  write(text::TokenType::Normal);
  EXPECT_THROW(open_model_or_throw(folder.path() / "hf"), Error);
}

TEST(RoundTrip, a_model_without_vocabulary_opens_only_when_none_is_needed) {
  const test::TemporaryFolder folder;
  const TinyModel model(test::tiny_architecture());
  write_gguf(folder.path() / "m.gguf", model.source());
  write_hugging_face(folder.path() / "hf", model.source());
  EXPECT_EQ(test::open_bare(folder.path() / "m.gguf")->tokenizer(), nullptr);
  EXPECT_EQ(test::open_bare(folder.path() / "hf")->tokenizer(), nullptr);
  const auto category = [](const fs::path& path) {
    try {
      open_model_or_throw(path);
    } catch (const Error& error) {
      return error.category();
    }
    return ErrorCategory::Internal;
  };
  EXPECT_EQ(category(folder.path() / "m.gguf"), ErrorCategory::Unsupported);
  EXPECT_EQ(category(folder.path() / "hf"), ErrorCategory::NotFound);
}

Architecture factored_architecture() {
  Architecture a = test::tiny_architecture();
  a.attention_bias = true;
  using enum FactoredLayer::Mode;
  a.factored = {{.name = "model.layers.0.self_attn.qkv_proj", .mode = LowRank, .rank = 5},
                {.name = "model.layers.1.mlp.gate_up_proj",
                 .mode = Sketched,
                 .rank = 8,
                 .terms = 2,
                 .seed = 7}};
  return a;
}

TEST(RoundTrip, factored_layers_survive_a_folder_bit_for_bit) {
  const test::TemporaryFolder folder;
  const TinyModel model(factored_architecture());
  write_hugging_face(folder.path() / "a", model.source());
  const auto first = test::open_bare(folder.path() / "a");
  expect_same_model(model, *first);
  EXPECT_EQ(first->architecture().factored, model.architecture().factored);
  EXPECT_NE(first->find("model.layers.0.self_attn.qkv_proj.bias"), nullptr);
  EXPECT_EQ(first->find("model.layers.0.self_attn.q_proj.weight"), nullptr);
  write_hugging_face(folder.path() / "b", source_of(*first));
  for (const char* file : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(read_text_file(folder.path() / "a" / file),
              read_text_file(folder.path() / "b" / file));
  }
}

TEST(RoundTrip, factored_layers_are_refused_where_no_format_has_them) {
  const test::TemporaryFolder folder;
  const TinyModel model(factored_architecture());
  const auto said = [](const auto& write) {
    return test::refusal(write, ErrorCategory::Unsupported);
  };
  for (const std::string& message :
       {said([&] { write_gguf(folder.path() / "m.gguf", model.source()); }),
        said([&] { write_llama2c(folder.path() / "m.bin", model.source()); })}) {
    EXPECT_NE(message.find("model.layers.0.self_attn.qkv_proj is factored (low_rank, rank 5)"),
              std::string::npos)
        << message;
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RoundTrip, a_folder_whose_tensors_are_not_those_of_its_factored_layers_is_refused) {
  const test::TemporaryFolder folder;
  const fs::path config = folder.path() / "a" / "config.json";
  const auto said = [&] {
    return test::refusal([&] { test::open_bare(folder.path() / "a"); }, ErrorCategory::CorruptFile);
  };
  write_hugging_face(folder.path() / "a", TinyModel(factored_architecture()).source());
  Json json = read_json_file(config);
  json["factored_layers"]["model.layers.0.self_attn.qkv_proj"]["rank"] = 6;
  write_json_file(config, json);
  EXPECT_NE(said().find("qkv_proj.a"), std::string::npos) << said();
  json["factored_layers"].erase("model.layers.0.self_attn.qkv_proj");
  write_json_file(config, json);
  EXPECT_NE(said().find("There is no tensor model.layers.0.self_attn.q_proj.weight"),
            std::string::npos)
      << said();
}

}  // namespace
}  // namespace hone::model_io
