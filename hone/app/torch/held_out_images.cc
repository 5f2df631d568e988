// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/held_out_images.h"

#include <algorithm>
#include <stop_token>

#include "hone/core/check.h"
#include "hone/data/leaves/leaves.h"
#include "hone/train/interop.h"

namespace hone::app {
namespace {

constexpr Index kKeptBytes = Index{1} << 30;

std::string text_of(const data::ImageShape& shape) {
  return concat(shape.channels, " x ", shape.height, " x ", shape.width);
}

}  // namespace

data::ImageCorpus load_held_out(const std::string& data, const task::VisionModel& model,
                                const std::stop_token& stop, data::ImageParts parts) {
  const data::ImageShape shape = model.image_shape();
  data::ImageCorpus corpus;
  if (data == data::kLeavesName) {
    HONE_REQUIRE(model.leaves.has_value(), "data",
                 "The model does not say that it was trained on leaves, so it is unknown which.");
    corpus.classes = data::leaf_class_names(model.leaves->classes);
    corpus.shape = {3, model.leaves->size, model.leaves->size};
    corpus.held_out = data::leaves_part(*model.leaves, data::LeafSplit::Val);
    if (parts != data::ImageParts::HeldOut) {
      corpus.train = data::leaves_part(*model.leaves, data::LeafSplit::Train);
    }
    if (parts == data::ImageParts::All) corpus.held_out = corpus.train.append(corpus.held_out);
  } else {
    corpus = data::load_images(
        data, {.side = shape.height, .memory_bytes = kKeptBytes, .parts = parts, .stop = stop},
        libtorch_executor());
  }
  HONE_CHECK(corpus.shape == shape, "data",
             concat("images of ", text_of(shape), ", the size of the model's images"),
             text_of(corpus.shape));
  return corpus;
}

std::vector<Index> labels_of(const data::ImageCorpus& corpus, const data::ImagePart& part,
                             const std::vector<std::string>& model) {
  std::vector<Index> known, labels;
  for (const std::string& name : corpus.classes) {
    const auto found = std::ranges::find(model, name);
    HONE_REQUIRE(found != model.end(), "data",
                 concat("The model does not know the class ", name, "."));
    known.push_back(found - model.begin());
  }
  for (Index i = 0; i < part.size(); ++i) {
    labels.push_back(known[static_cast<std::size_t>(part.label(i))]);
  }
  return labels;
}

}  // namespace hone::app
