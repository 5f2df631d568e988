// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/model_io/model_file.h"
#include "tests/model_io/tiny_model.h"

namespace hone::test {

// A model file whose layers have other windows than the file says.
class WindowedFile final : public model_io::ModelFile {
 public:
  WindowedFile(std::unique_ptr<model_io::ModelFile> file, std::vector<Index> windows)
      : file_(std::move(file)), architecture_(file_->architecture()) {
    architecture_.windows = std::move(windows);
  }
  model_io::ModelFormat format() const override { return file_->format(); }
  const model_io::Architecture& architecture() const override { return architecture_; }
  std::shared_ptr<const text::Tokenizer> tokenizer() const override { return file_->tokenizer(); }
  const std::vector<model_io::NamedMatrix>& tensors() const override { return file_->tensors(); }
  Index file_bytes() const override { return file_->file_bytes(); }
  std::vector<std::filesystem::path> files() const override { return file_->files(); }
  const Json& generation_defaults() const override { return file_->generation_defaults(); }
  const model_io::ModelMetadata& metadata() const override { return file_->metadata(); }
  void drop_pages(const model_io::NamedMatrix& tensor) const override { file_->drop_pages(tensor); }
  bool is_damaged() const override { return file_->is_damaged(); }
  void check_intact() const override { file_->check_intact(); }
  std::string identity() const override { return file_->identity(); }

 private:
  std::unique_ptr<model_io::ModelFile> file_;
  model_io::Architecture architecture_;
};

// Writes a random model with a layer for each window, and opens it.
inline std::unique_ptr<WindowedFile> windowed_model(const std::filesystem::path& path,
                                                    const std::vector<Index>& windows,
                                                    Index context) {
  model_io::Architecture a = tiny_architecture();
  a.layers = std::ssize(windows);
  a.context = context;
  const TinyModel model(a);
  model_io::write_hugging_face(path, model.source());
  return std::make_unique<WindowedFile>(open_bare(path), windows);
}

}  // namespace hone::test
