// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/log.h"
#include "hone/data/hold_out.h"
#include "hone/data/image/readers.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;

constexpr Index kDefaultSide = 64;
constexpr Index kMaxClasses = 65535;
constexpr Index kNamedFiles = 20;
constexpr std::string_view kTrainName = "train";
constexpr std::array<std::string_view, 4> kHeldOutNames = {"test", "val", "valid", "validation"};

struct Files {
  std::vector<fs::path> paths;
  std::vector<std::uint16_t> labels;
};

bool is_held_out_name(std::string_view name) {
  return std::ranges::find(kHeldOutNames, name) != kHeldOutNames.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// A folder that is not there has nothing in it.
void check_read(const std::error_code& error, const fs::path& folder) {
  if (!error || error == std::errc::no_such_file_or_directory) return;
  fail(ErrorCategory::NotFound, folder.string(),
       concat("Could not read the folder: ", error.message()));
}

std::vector<fs::path> list_folders(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_hidden(entry->path())) continue;
    std::error_code unknown;
    if (entry->is_directory(unknown)) out.push_back(entry->path());
    check_read(unknown, entry->path());
  }
  check_read(error, folder);
  std::sort(out.begin(), out.end());
  return out;
}

// Files whose names are not those of images.
struct OtherFiles {
  Index count = 0;
  fs::path first;
};

std::vector<fs::path> list_images(const fs::path& folder, OtherFiles& others) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (!entry->is_directory(ignored)) {
      if (has_image_name(entry->path())) {
        out.push_back(entry->path());
      } else if (others.count++ == 0) {
        others.first = entry->path();
      }
    }
  }
  check_read(error, folder);
  std::sort(out.begin(), out.end());
  return out;
}

// The folders below a class that have images, if it has no images of its own beside them.
std::set<std::string> folders_instead_of_images(const fs::path& class_folder,
                                                const std::vector<fs::path>& images) {
  std::set<std::string> out;
  const std::size_t begin = class_folder.native().size() + 1;
  for (const fs::path& image : images) {
    const std::size_t end = image.native().find('/', begin);
    if (end == std::string::npos) return {};
    out.insert(image.native().substr(begin, end - begin));
  }
  return out;
}

// The folder below a class in which an image lies and whose name is that of a part; empty if none.
fs::path part_within(const fs::path& class_folder, const fs::path& image) {
  fs::path folder = class_folder;
  for (const fs::path& name : image.parent_path().lexically_relative(class_folder)) {
    folder /= name;
    if (name == kTrainName || is_held_out_name(name.native())) return folder;
  }
  return {};
}

// The images of a class may lie in folders, but these must not be the parts of a data set.
void check_no_parts(const fs::path& class_folder, const std::vector<fs::path>& images) {
  for (const fs::path& image : images) {
    const fs::path part = part_within(class_folder, image);
    if (part.empty()) continue;
    const std::string name = part.filename().string();
    const bool is_data_set = !list_folders(part).empty();
    fail_corrupt(class_folder.string(), "the images of one class",
                 is_data_set ? concat("a data set with a folder ", name, ": pass ",
                                      part.parent_path().string(), " instead")
                             : concat("a folder ", name, ": put the parts above the classes, as ",
                                      name, "/", class_folder.filename().string()));
  }
}

// Refuses folders of folders that are named like parts, but not as hone names them.
void check_no_part_name(const fs::path& class_folder) {
  std::string name = class_folder.filename().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 9> kPartNames = {
      "train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"};
  if (std::ranges::find(kPartNames, name) == kPartNames.end()) return;
  fail_corrupt(class_folder.string(), "the images of one class",
               "a part with folders of its own: name the parts train and test");
}

// Refuses two classes whose images lie in folders of the same names, two or more: those are the
// classes, and what is taken for classes are parts or data sets. `below` has the folders of each.
void check_are_classes(const fs::path& folder,
                       const std::map<std::string, std::set<std::string>>& below) {
  std::map<std::string, std::string> first_owner;
  for (const auto& [name, folders] : below) {
    std::map<std::string, std::string> shared;  // an earlier class, and a folder of both
    for (const std::string& inner : folders) {
      const auto [owner, is_new] = first_owner.emplace(inner, name);
      if (is_new) continue;
      const auto [other, is_first] = shared.emplace(owner->second, inner);
      if (is_first) continue;
      fail_corrupt(
          folder.string(), "a folder for each class",
          concat(other->first, " and ", name, ", which both have the folders ", other->second,
                 " and ", inner, ": pass one of the two, or name them train and test"));
    }
  }
}

// Adds a class, or rejects it unless `may_add`. Returns its label.
std::uint16_t label_of(const fs::path& class_folder, std::vector<std::string>& classes,
                       bool may_add) {
  const std::string name = class_folder.filename().string();
  auto found = std::find(classes.begin(), classes.end(), name);
  if (found == classes.end()) {
    if (!may_add)
      fail_corrupt(class_folder.string(), concat("Class ", name, " does not occur in train."));
    found = classes.insert(classes.end(), name);
    if (static_cast<Index>(classes.size()) > kMaxClasses) {
      fail_corrupt(class_folder.parent_path().string(),
                   concat("There are more than ", kMaxClasses, " classes."));
    }
  }
  return static_cast<std::uint16_t>(found - classes.begin());
}

// Lists the class folders of one part. A name that is not in `classes` is added if `may_add`,
// otherwise rejected.
Files list_part(const fs::path& folder, std::vector<std::string>& classes, bool may_add) {
  Files out;
  OtherFiles others;
  std::map<std::string, std::set<std::string>> below;
  for (const fs::path& class_folder : list_folders(folder)) {
    const std::vector<fs::path> images = list_images(class_folder, others);
    if (images.empty()) {
      log_warning(concat("skipped ", class_folder.string(), ", which has no image"));
      continue;
    }
    std::set<std::string> folders = folders_instead_of_images(class_folder, images);
    check_no_parts(class_folder, images);
    if (!folders.empty()) check_no_part_name(class_folder);
    below.emplace(class_folder.filename().string(), std::move(folders));
    const std::uint16_t label = label_of(class_folder, classes, may_add);
    out.paths.insert(out.paths.end(), images.begin(), images.end());
    out.labels.insert(out.labels.end(), images.size(), label);
  }
  check_are_classes(folder, below);
  if (others.count > 0) {
    log_warning(concat(folder.string(), ": ", others.count,
                       " files are skipped, because their names are not those of jpg, png, ppm or "
                       "pgm images, such as ",
                       others.first.string()));
  }
  return out;
}

void append(Files from, Files& to) {
  std::ranges::move(from.paths, std::back_inserter(to.paths));
  to.labels.insert(to.labels.end(), from.labels.begin(), from.labels.end());
}

// A folder with a held-out part lacks train/: the part is not a class, as `hone eval` takes it.
void check_has_train(const fs::path& folder) {
  const std::vector<fs::path> all = list_folders(folder);
  const auto part = std::ranges::find_if(
      all, [](const fs::path& path) { return is_held_out_name(path.filename().native()); });
  if (part == all.end()) return;
  fail_corrupt(folder.string(), concat("a folder train beside ", part->filename().string()),
               "none");
}

// Moves every tenth image of each class out of `train`, or the last one of a class of 2 to 9.
Files take_held_out(Files& train) {
  std::map<std::uint16_t, std::size_t> size_of;
  for (const std::uint16_t label : train.labels) ++size_of[label];
  Files kept, held_out;
  std::map<std::uint16_t, std::size_t> seen;
  for (std::size_t i = 0; i < train.paths.size(); ++i) {
    const std::uint16_t label = train.labels[i];
    const std::size_t number = ++seen[label], all = size_of[label];
    const bool take = all < kHoldOutEvery ? all > 1 && number == all : number % kHoldOutEvery == 0;
    Files& to = take ? held_out : kept;
    to.paths.push_back(std::move(train.paths[i]));
    to.labels.push_back(label);
  }
  train = std::move(kept);
  return held_out;
}

void decode_file(const fs::path& path, ImageShape shape, std::span<std::uint8_t> planes) {
  const MmapFile file(path);
  decode_square(file.bytes(), path.string(), shape, planes);
}

ImagePart with_labels(Files files, ImageShape shape) {
  return {shape, std::move(files.labels),
          [paths = std::make_shared<const std::vector<fs::path>>(std::move(files.paths)), shape](
              Index index, std::span<std::uint8_t> planes) {
            decode_file((*paths)[static_cast<std::size_t>(index)], shape, planes);
          }};
}

// Decodes all files once to find broken ones. Keeps the pixels in memory if `keep`.
ImagePart decode_part(Files files, ImageShape shape, bool keep, const std::stop_token& stop,
                      Executor& executor, Index& broken) {
  const auto count = static_cast<Index>(files.paths.size());
  const auto bytes = static_cast<std::size_t>(shape.values());
  std::vector<std::string> failures(files.paths.size());
  std::vector<std::uint8_t> pixels(keep ? files.paths.size() * bytes : 0);
  executor.parallel_for(count, 1, [&](Index begin, Index end, int) {
    std::vector<std::uint8_t> own(keep ? 0 : bytes);
    for (Index i = begin; i < end && !stop.stop_requested(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      try {
        decode_file(files.paths[at], shape,
                    keep ? std::span(pixels).subspan(at * bytes, bytes) : std::span(own));
      } catch (const Error& error) {
        failures[at] = error.what();
      }
    }
  });
  if (stop.stop_requested())
    throw Error(ErrorCategory::Cancelled, "[images] Reading was interrupted.");
  std::size_t whole = 0;
  for (std::size_t i = 0; i < files.paths.size(); ++i) {
    if (!failures[i].empty()) {
      if (++broken <= kNamedFiles) log_warning(concat("skipped ", failures[i]));
      continue;
    }
    if (keep && whole != i) {
      std::copy_n(pixels.begin() + static_cast<Index>(i * bytes), bytes,
                  pixels.begin() + static_cast<Index>(whole * bytes));
    }
    if (whole != i) files.paths[whole] = std::move(files.paths[i]);
    files.labels[whole++] = files.labels[i];
  }
  files.paths.resize(whole);
  files.labels.resize(whole);
  if (keep) {
    pixels.resize(whole * bytes);
    return {shape, std::move(files.labels), std::move(pixels)};
  }
  return with_labels(std::move(files), shape);
}

// The classes without an image in a part, "a, b and 3 more"; empty if each has one.
std::string missing_classes(const ImagePart& part, const std::vector<std::string>& classes) {
  constexpr Index kNamedClasses = 5;
  std::vector<bool> has_image(classes.size());
  for (Index i = 0; i < part.size(); ++i) {
    has_image[static_cast<std::size_t>(part.label(i))] = true;
  }
  std::string names;
  Index missing = 0;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    if (has_image[label]) continue;
    if (++missing <= kNamedClasses) names += concat(missing > 1 ? ", " : "", classes[label]);
  }
  if (missing > kNamedClasses) names += concat(" and ", missing - kNamedClasses, " more");
  return names;
}

// A class without a training image cannot be learned, which is an error. One without a held-out
// image is only not measured.
void check_classes(const ImageCorpus& corpus, const fs::path& folder, ImageParts parts) {
  if (parts == ImageParts::Both) {
    const std::string unseen = missing_classes(corpus.train, corpus.classes);
    if (!unseen.empty()) {
      fail_corrupt(folder.string(), concat("No training image of ", unseen, " can be decoded."));
    }
  }
  const std::string unmeasured = missing_classes(corpus.held_out, corpus.classes);
  if (corpus.held_out.size() > 0 && !unmeasured.empty()) {
    log_warning(concat(folder.string(), ": no image is held out of ", unmeasured,
                       ", so that nothing is measured there"));
  }
}

}  // namespace

ImagePart read_image_files(std::vector<fs::path> paths, ImageShape shape) {
  HONE_CHECK(shape.height == shape.width && (shape.channels == 1 || shape.channels == 3),
             "image files", "squares of 1 or 3 channels",
             concat(shape.channels, " x ", shape.height, " x ", shape.width));
  std::vector<std::uint16_t> labels(paths.size());
  return with_labels({std::move(paths), std::move(labels)}, shape);
}

ImageCorpus read_image_folder(const fs::path& folder, const ImageOptions& options,
                              Executor& executor) {
  const Index side = options.side == 0 ? kDefaultSide : options.side;
  ImageCorpus corpus;
  corpus.shape = {3, side, side};
  Files train, held_out;
  const auto has_folder = [&](std::string_view name) {
    std::error_code ignored;
    return fs::is_directory(folder / name, ignored);
  };
  const bool is_all = options.parts == ImageParts::All;
  const bool wants_train = options.parts == ImageParts::Both;
  const bool alone = !wants_train && std::ranges::any_of(kHeldOutNames, has_folder);
  if (alone || has_folder(kTrainName)) {
    train = list_part(folder / kTrainName, corpus.classes, /*may_add=*/true);
    for (const std::string_view name : kHeldOutNames) {
      if ((!is_all && !held_out.paths.empty()) || !has_folder(name)) continue;
      append(list_part(folder / name, corpus.classes, /*may_add=*/!wants_train), held_out);
    }
  } else {
    check_has_train(folder);
    train = list_part(folder, corpus.classes, /*may_add=*/true);
  }
  if (train.paths.empty() && held_out.paths.empty()) {
    fail_corrupt(folder.string(),
                 "This folder has no IDX files, no CIFAR-10 batches, and no folders of images "
                 "(jpg, png, ppm, pgm) for each class.");
  }
  if (is_all) {
    append(std::move(train), held_out);
  } else if (held_out.paths.empty()) {
    const std::size_t all = train.paths.size();
    held_out = take_held_out(train);
    log_info(concat(folder.string(), " has neither test/ nor val/: ", held_out.paths.size(), " of ",
                    all, " images are held out, every tenth of a class"));
  }
  if (!wants_train) train = {};
  const auto files = static_cast<Index>(train.paths.size() + held_out.paths.size());
  const bool keep = files <= options.memory_bytes / corpus.shape.values();
  const std::stop_token& stop = options.stop;
  const auto decode = [&](Files& part) {
    return decode_part(std::move(part), corpus.shape, keep, stop, executor, corpus.broken);
  };
  corpus.train = decode(train);
  corpus.held_out = decode(held_out);
  if (corpus.broken > 0) {
    log_warning(concat(folder.string(), ": ", corpus.broken, " of ", files,
                       " images cannot be decoded and are skipped"));
  }
  const ImagePart& needed = wants_train ? corpus.train : corpus.held_out;
  if (files > 0 && needed.size() == 0) {
    fail_corrupt(folder.string(), concat("None of the ", files, " images can be decoded."));
  }
  check_classes(corpus, folder, options.parts);
  return corpus;
}

}  // namespace hone::data
