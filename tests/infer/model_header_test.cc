// SPDX-License-Identifier: Apache-2.0
// A model whose weights have not been read refuses what the engine would refuse.
#include "hone/infer/model_header.h"

#include <gmock/gmock.h>

#include "hone/text/load_tokenizer.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"

namespace hone::infer {
namespace {

using hone::test::refusal;
using testing::HasSubstr;

class ModelHeaderTest : public testing::Test {
 protected:
  ModelHeaderTest() {
    options_.executor = &serial_executor();
    write(model_);
  }
  void write(const hone::test::TinyModel& model) const {
    const auto tokenizer = text::make_tokenizer(hone::test::tiny_sentencepiece(48));
    model_io::write_hugging_face(path_, model.source(tokenizer.get()));
  }
  std::string refused_with(const EngineOptions& options) const {
    return refusal([&] { ModelHeader::open_or_throw(path_, options); });
  }

  hone::test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "model";
  hone::test::TinyModel model_{hone::test::tiny_architecture()};
  EngineOptions options_;
};

TEST_F(ModelHeaderTest, refuses_the_requests_that_the_engine_refuses) {
  const ModelHeader header = ModelHeader::open_or_throw(path_, options_);
  const auto engine = Engine::open_or_throw(path_, options_);
  const Request good = test::greedy({1, 5}, 4);
  EXPECT_EQ(refusal([&] { header.check(good); }), "");
  std::vector<Request> bad(10, good);
  bad[0].tokens.clear();
  bad[1].tokens = {48};
  bad[2].tokens.assign(64, 1);
  bad[3].max_tokens = 0;
  bad[4].min_tokens = 5;
  bad[5].stop = {""};
  bad[6].sampling.top_p = 0;
  bad[7].sampling.logit_bias = {{.id = 48, .bias = 1}};
  bad[8].json_schema = "true";  // beside ignore_eos
  bad[9].visible_ids = {1, 48};
  for (const Request& request : bad) {
    const std::string early = refusal([&] { header.check(request); });
    EXPECT_NE(early, "");
    EXPECT_EQ(early,
              refusal([&] { engine->submit(request, std::make_shared<test::CollectSink>()); }));
  }
}

TEST_F(ModelHeaderTest, reads_no_weights) {
  hone::test::TinyModel model(hone::test::tiny_architecture());
  const float huge = 1e30f;  // whose block has no scale in f16
  for (const model_io::NamedMatrix& tensor : model.tensors()) {
    if (tensor.is_vector) continue;
    std::memcpy(const_cast<std::byte*>(tensor.matrix.bytes.data()), &huge, sizeof huge);
  }
  write(model);
  options_.weights.format = WeightFormat::Q8;
  ModelHeader header = ModelHeader::open_or_throw(path_, options_);
  EXPECT_EQ(header.vocab_size(), 48);
  EXPECT_EQ(header.context(), 64);
  EXPECT_EQ(header.tokenizer().encode("ab").front(), 1);
  EXPECT_THAT(refusal([&] { Engine::load(std::move(header)); }, ErrorCategory::CorruptFile),
              HasSubstr(".weight"));
}

TEST_F(ModelHeaderTest, refuses_options_that_do_not_fit_the_model) {
  EngineOptions options = options_;
  options.context = 65;
  EXPECT_THAT(refused_with(options), HasSubstr("[context] expected at most the model's 64"));
  options = options_;
  options.kv_bytes = Index{1} << 60;
  EXPECT_THAT(refused_with(options), HasSubstr("that are free"));
  options.kv_bytes = 1;
  EXPECT_THAT(refused_with(options), HasSubstr("[KV cache] expected at least"));
  model_io::Architecture other = hone::test::tiny_architecture();
  other.vocab_size = 47;
  const auto pieces = text::make_tokenizer(hone::test::tiny_sentencepiece(47));
  const hone::test::TinyModel draft(other);
  model_io::write_hugging_face(folder_.path() / "draft", draft.source(pieces.get()));
  options = options_;
  options.draft.model = folder_.path() / "draft";
  EXPECT_THAT(refused_with(options), HasSubstr("vocabulary of 48"));
}

}  // namespace
}  // namespace hone::infer
