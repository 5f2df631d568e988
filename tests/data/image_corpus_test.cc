// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/image_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <set>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/data/image/gzip.h"
#include "hone/data/image/readers.h"
#include "tests/support/image_codecs.h"
#include "tests/support/program.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Images : public testing::Test {
 protected:
  Images() { set_log_level(LogLevel::Error); }

  ImageCorpus load(const ImageOptions& options = {}) const {
    return load_images(folder(), options, serial_executor());
  }
  std::string refusal(ErrorCategory category = ErrorCategory::CorruptFile,
                      const ImageOptions& options = {}) const {
    try {
      load(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), category) << error.what();
      return error.what();
    }
    return {};
  }
  static std::vector<std::uint8_t> read(const ImageCorpus& corpus, const ImagePart& part,
                                        Index index) {
    std::vector<std::uint8_t> planes(static_cast<std::size_t>(corpus.shape.values()));
    part.read(index, planes);
    return planes;
  }
  const fs::path& folder() const { return folder_.path(); }
  void write(const std::string& name, const std::string& bytes) const {
    test::write_bytes(folder() / name, bytes);
  }

  test::TemporaryFolder folder_;
};

// ---- IDX

class Idx : public Images {
 protected:
  void SetUp() override {
    write("train-images-idx3-ubyte", test::idx_file({20, 2, 3}, pixels_));
    write("train-labels-idx1-ubyte.gz", test::gzip(test::idx_file({20}, labels_)));
  }
  std::string pixels_ = test::scene(20, 6, 1),
              labels_ = std::string(17, '\2') + std::string(3, '\0');
};

TEST_F(Idx, all_images_are_those_of_both_parts) {
  write("t10k-images-idx3-ubyte.gz", test::gzip(test::idx_file({1, 2, 3}, "abcdef")));
  write("t10k-labels-idx1-ubyte", test::idx_file({1}, "\1"));
  const ImageCorpus both = load(), all = load({.parts = ImageParts::All});
  ASSERT_EQ(both.train.size(), 20);
  ASSERT_EQ(all.held_out.size(), 21);
  EXPECT_EQ(all.train.size(), 0);
  for (const Index i : {Index{0}, Index{19}}) {
    EXPECT_EQ(read(all, all.held_out, i), read(both, both.train, i));
    EXPECT_EQ(all.held_out.label(i), both.train.label(i));
  }
  EXPECT_EQ(read(all, all.held_out, 20), read(both, both.held_out, 0));
  EXPECT_EQ(all.held_out.label(20), 1);
  // A part whose images are read one by one is read through.
  const ImagePart drawn(all.shape, std::vector<std::uint16_t>{2},
                        [](Index, std::span<std::uint8_t> planes) { planes[0] = 99; });
  const ImagePart mixed = both.held_out.append(drawn);
  EXPECT_EQ(read(all, mixed, 0), read(both, both.held_out, 0));
  EXPECT_EQ(read(all, mixed, 1)[0], 99);
  EXPECT_EQ(mixed.label(1), 2);
}

TEST_F(Idx, reads_plain_and_gzip_files_and_holds_out_every_tenth_image) {
  const ImageCorpus corpus = load();
  EXPECT_EQ(corpus.shape, (ImageShape{1, 2, 3}));
  EXPECT_THAT(corpus.classes, ElementsAre("0", "1", "2"));
  EXPECT_EQ(corpus.train.size(), 18);
  EXPECT_EQ(corpus.held_out.size(), 2);
  EXPECT_EQ(corpus.name, folder().filename().string());
  const auto image = read(corpus, corpus.train, 17), held_out = read(corpus, corpus.held_out, 0);
  EXPECT_EQ(std::string(image.begin(), image.end()), pixels_.substr(18 * 6, 6));
  EXPECT_EQ(std::string(held_out.begin(), held_out.end()), pixels_.substr(9 * 6, 6));
  EXPECT_EQ(corpus.train.label(17), 0);
  EXPECT_EQ(corpus.held_out.label(0), 2);
}

TEST_F(Idx, takes_the_test_files_where_there_are_and_hashes_labels_and_pixels) {
  const std::string without = load().hash;
  write("t10k-images-idx3-ubyte.gz", test::gzip(test::idx_file({1, 2, 3}, "abcdef")));
  write("t10k-labels-idx1-ubyte", test::idx_file({1}, "\1"));
  const ImageCorpus corpus = load();
  EXPECT_EQ(corpus.train.size(), 20);
  EXPECT_THAT(read(corpus, corpus.held_out, 0), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_NE(corpus.hash, without);
  write("t10k-labels-idx1-ubyte", test::idx_file({1}, std::string(1, '\0')));
  EXPECT_NE(load().hash, corpus.hash) << "a label counts";
  write("t10k-labels-idx1-ubyte", test::idx_file({1}, "\1"));
  EXPECT_EQ(load().hash, corpus.hash);
  write("t10k-images-idx3-ubyte.gz", test::gzip(test::idx_file({1, 3, 2}, "abcdef")));
  EXPECT_THAT(refusal(), HasSubstr("images of 2 x 3, got 3 x 2"));
  write("t10k-images-idx3-ubyte.gz", test::gzip(test::idx_file({1, 2, 3}, "abcdef")));
  write("t10k-labels-idx1-ubyte", test::idx_file({1}, "\5"));
  EXPECT_THAT(refusal(), HasSubstr("labels up to 2, got 5"));
}

TEST_F(Idx, refuses_other_magic_counts_that_do_not_fit_and_cut_gzip) {
  const std::string good = test::idx_file({20}, labels_);
  fs::remove(folder() / "train-labels-idx1-ubyte.gz");
  EXPECT_THAT(refusal(ErrorCategory::NotFound), HasSubstr("no labels for train-images"));
  const auto with_labels = [&](const std::string& bytes) {
    write("train-labels-idx1-ubyte", bytes);
    return refusal();
  };
  EXPECT_THAT(with_labels(test::idx_file({20, 1}, labels_)), HasSubstr("magic number 2049"));
  EXPECT_THAT(with_labels(test::idx_file({19}, labels_)), HasSubstr("expected 19 values, got 20"));
  EXPECT_THAT(with_labels(test::idx_file({19}, labels_.substr(1))), HasSubstr("20 labels"));
  EXPECT_THAT(with_labels("ab"), HasSubstr("2 bytes"));
  EXPECT_THAT(with_labels(test::idx_file({0}, "")), HasSubstr("no values"));
  EXPECT_EQ(with_labels(good), "");
  write("train-images-idx3-ubyte", test::idx_file({0xffffffff, 0xffffffff, 0xffffffff}, "x"));
  EXPECT_NE(refusal(), "") << "sizes whose product does not fit";
  const std::string packed = test::gzip(test::idx_file({20, 2, 3}, pixels_));
  fs::remove(folder() / "train-images-idx3-ubyte");
  write("train-images-idx3-ubyte.gz", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(refusal(), HasSubstr("The gzip data is"));
}

TEST_F(Idx, refuses_a_gzip_that_unpacks_to_far_more_than_its_head_says) {
  fs::remove(folder() / "train-images-idx3-ubyte");
  write("train-images-idx3-ubyte.gz",
        test::gzip(test::idx_file({20, 2, 3}, pixels_) + std::string(16 << 20, '\0')));
  EXPECT_THAT(refusal(), HasSubstr("unpacks to more than"));
}

// A magic number that is wrong is found before the sizes behind it decide how much is unpacked.
TEST_F(Idx, unpacks_no_file_of_another_kind) {
  std::string other = test::idx_file({1 << 20, 1 << 10, 1}, "");
  other[2] = 9;
  const std::string packed = test::gzip(other + std::string(1 << 20, '\0'));
  // Only the beginning can be unpacked: who reads on finds the damage.
  write("train-images-idx3-ubyte", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(refusal(), HasSubstr("magic number 2051), got magic number 2307"));
}

TEST_F(Idx, takes_both_t10k_files_or_neither) {
  write("t10k-images-idx3-ubyte", test::idx_file({20, 2, 3}, pixels_));
  EXPECT_THAT(refusal(ErrorCategory::NotFound), HasSubstr("t10k-labels-idx1-ubyte"));
}

TEST(Gzip, stops_at_the_limit_whatever_the_file_promises) {
  const std::string bomb = test::gzip(std::string(10 << 20, '\0'));
  EXPECT_EQ(unpack_gzip(std::as_bytes(std::span(bomb)), "x", 10 << 20).size(), 10u << 20);
  EXPECT_THROW(unpack_gzip(std::as_bytes(std::span(bomb)), "x", (10 << 20) - 1), Error);
}

// ---- CIFAR-10

std::string cifar_records(Index count, Index first_label) {
  std::string out;
  for (Index i = 0; i < count; ++i) {
    out += static_cast<char>((first_label + i) % 10);
    out += test::scene(32, 32, 3, static_cast<std::uint64_t>(i));
  }
  return out;
}

TEST_F(Images, reads_cifar_batches_also_one_folder_below) {
  write("cifar-10-batches-bin/data_batch_1.bin", cifar_records(3, 7));
  write("cifar-10-batches-bin/data_batch_2.bin", cifar_records(2, 1));
  for (int batch = 3; batch <= 5; ++batch) {
    write(concat("cifar-10-batches-bin/data_batch_", batch, ".bin"), cifar_records(1, 4));
  }
  write("cifar-10-batches-bin/test_batch.bin", cifar_records(4, 0));
  const ImageCorpus corpus = load();
  EXPECT_EQ(corpus.shape, (ImageShape{3, 32, 32}));
  EXPECT_EQ(corpus.train.size(), 8);
  EXPECT_EQ(corpus.held_out.size(), 4);
  EXPECT_EQ(corpus.train.label(0), 7);
  EXPECT_EQ(corpus.train.label(3), 1);
  EXPECT_EQ(corpus.classes[9], "truck");
  const auto planes = read(corpus, corpus.train, 3);
  EXPECT_EQ(std::string(planes.begin(), planes.end()), test::scene(32, 32, 3, 0));
  write("cifar-10-batches-bin/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ(load().classes[2], "c");
  write("cifar-10-batches-bin/batches.meta.txt", "a\nb\n");
  EXPECT_THAT(refusal(), HasSubstr("10 class names, got 2"));
}

// As an interrupted extraction leaves it.
TEST_F(Images, names_the_cifar_batches_that_are_missing) {
  write("cifar-10-batches-bin/data_batch_1.bin", cifar_records(20, 0));
  EXPECT_THAT(refusal(ErrorCategory::NotFound),
              HasSubstr("there is no data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, "
                        "data_batch_5.bin."));
  for (int batch = 2; batch <= 5; ++batch) {
    write(concat("cifar-10-batches-bin/data_batch_", batch, ".bin"), cifar_records(1, 4));
  }
  EXPECT_EQ(refusal(ErrorCategory::NotFound), "");
  fs::remove(folder() / "cifar-10-batches-bin" / "data_batch_1.bin");
  EXPECT_THAT(refusal(ErrorCategory::NotFound), HasSubstr("there is no data_batch_1.bin."));
}

TEST_F(Images, refuses_a_cifar_batch_that_is_cut_or_has_another_label) {
  for (int batch = 2; batch <= 5; ++batch) {
    write(concat("data_batch_", batch, ".bin"), cifar_records(1, 4));
  }
  write("data_batch_1.bin", cifar_records(2, 0).substr(1));
  EXPECT_THAT(refusal(), HasSubstr("a multiple of 3073 bytes"));
  std::string bytes = cifar_records(2, 0);
  bytes[3073] = 10;
  write("data_batch_1.bin", bytes);
  EXPECT_THAT(refusal(), HasSubstr("a label below 10 in record 1, got 10"));
}

// ---- folders

TEST_F(Images, reads_a_folder_of_classes_and_holds_out_of_each) {
  for (int i = 0; i < 20; ++i) {
    const std::string number = std::to_string(100 + i);
    write("b_dog/" + number + ".PNG", test::png_file(9, 12, 8, 2, test::scene(9, 12, 3)));
    write("a_cat/deep/" + number + ".jpg", test::jpeg_file(16, 9, test::scene(16, 9, 3)));
  }
  write("c_one/1.ppm", test::ppm_file(8, 8, test::scene(8, 8, 3)));
  write("d_two/1.ppm", test::ppm_file(8, 8, test::scene(8, 8, 3)));
  write("d_two/2.ppm", test::ppm_file(8, 8, test::scene(8, 8, 3)));
  write("d_two/readme.txt", "no image");
  write(".hidden/1.ppm", "no image");
  const ImageCorpus corpus = load({.side = 8});
  EXPECT_THAT(corpus.classes, ElementsAre("a_cat", "b_dog", "c_one", "d_two"));
  EXPECT_EQ(corpus.shape, (ImageShape{3, 8, 8}));
  std::map<Index, Index> train, held_out;
  for (Index i = 0; i < corpus.train.size(); ++i) ++train[corpus.train.label(i)];
  for (Index i = 0; i < corpus.held_out.size(); ++i) ++held_out[corpus.held_out.label(i)];
  EXPECT_EQ(train, (std::map<Index, Index>{{0, 18}, {1, 18}, {2, 1}, {3, 1}}));
  EXPECT_EQ(held_out, (std::map<Index, Index>{{0, 2}, {1, 2}, {3, 1}}));
  EXPECT_EQ(corpus.broken, 0);
}

TEST_F(Images, takes_train_and_test_folders_and_refuses_a_class_of_the_test_alone) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  write("train/x/1.ppm", image);
  write("train/y/1.ppm", image);
  write("test/y/1.ppm", image);
  const ImageCorpus corpus = load();
  EXPECT_EQ(corpus.train.size(), 2);
  EXPECT_EQ(corpus.held_out.size(), 1);
  EXPECT_EQ(corpus.held_out.label(0), 1);
  EXPECT_EQ(corpus.shape.height, 64);
  write("test/z/1.ppm", image);
  EXPECT_THAT(refusal(), HasSubstr("Class z does not occur in train"));
  fs::remove_all(folder() / "train");
  EXPECT_THAT(refusal(), HasSubstr("expected a folder train beside test, got none"));
}

TEST_F(Images, takes_the_other_names_of_a_held_out_part) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const std::string name : {"val", "valid", "validation"}) {
    for (const char* part : {"train/", "test/"}) {
      for (const char* in : {"x/1.ppm", "y/1.ppm"}) write(concat(name, "_set/", part, in), image);
    }
    const fs::path set = folder() / (name + "_set");
    fs::rename(set / "test", set / name);
    const ImageCorpus corpus = load_images(set, {.side = 8}, serial_executor());
    EXPECT_EQ(corpus.train.size(), 2) << name;
    EXPECT_EQ(corpus.held_out.size(), 2) << name;
  }
}

// One folder too high, "flowers" and "birds" would be the classes.
TEST_F(Images, refuses_folders_of_data_sets_and_names_one_to_pass) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* set : {"birds", "flowers"}) {
    for (const char* part : {"train", "test"}) {
      for (const char* name : {"c01", "c02"})
        write(concat(set, "/", part, "/", name, "/1.ppm"), image);
    }
  }
  EXPECT_THAT(refusal(), HasSubstr(concat("a data set with a folder test: pass ",
                                          (folder() / "birds").string(), " instead")));
  EXPECT_THAT(refusal(ErrorCategory::CorruptFile, {.parts = ImageParts::HeldOut}),
              HasSubstr("a data set with a folder test"));
  EXPECT_EQ(load_images(folder() / "birds", {.side = 8}, serial_executor()).classes.size(), 2u);
}

TEST_F(Images, refuses_parts_below_each_class) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"cat", "dog"}) {
    for (const char* part : {"train", "val"}) write(concat(name, "/", part, "/1.ppm"), image);
  }
  EXPECT_THAT(refusal(), HasSubstr("put the parts above the classes, as train/cat"));
}

// Parts of other names, or data sets of the same classes.
TEST_F(Images, refuses_classes_that_have_the_same_folders) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* part : {"2023", "2024"}) {
    for (const char* name : {"a", "b", "c"}) write(concat(part, "/", name, "/1.ppm"), image);
  }
  EXPECT_THAT(refusal(), HasSubstr("got 2023 and 2024, which both have the folders a and b: "
                                   "pass one of the two, or name them train and test"));
  fs::rename(folder() / "2023", folder() / "train");
  fs::rename(folder() / "2024", folder() / "test");
  EXPECT_EQ(load({.side = 8}).classes.size(), 3u);
}

TEST_F(Images, refuses_parts_that_it_does_not_know_by_their_names) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"Training/a/1.ppm", "Training/b/1.ppm", "Testing/a/1.ppm"}) {
    write(name, image);
  }
  EXPECT_THAT(refusal(), HasSubstr("name the parts train and test"));
}

TEST_F(Images, takes_no_held_out_part_for_a_class) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"a/1.ppm", "b/1.ppm", "val/a/1.ppm"}) write(name, image);
  EXPECT_THAT(refusal(), HasSubstr("expected a folder train beside val, got none"));
}

TEST_F(Images, refuses_a_data_set_further_below) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"a/1.ppm", "b/flowers/train/x/1.ppm", "b/flowers/train/y/1.ppm"}) {
    write(name, image);
  }
  EXPECT_THAT(refusal(), HasSubstr(concat("pass ", (folder() / "b/flowers").string())));
}

TEST_F(Images, counts_files_that_are_no_images_by_their_names) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"a/1.ppm", "a/2.ppm", "a/3.webp", "b/1.ppm", "b/2.ppm", "b/notes.txt"}) {
    write(name, image);
  }
  set_log_level(LogLevel::Warning);
  testing::internal::CaptureStderr();
  EXPECT_EQ(load({.side = 8}).classes.size(), 2u);
  set_log_level(LogLevel::Error);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("2 files are skipped"));
}

TEST_F(Images, takes_classes_with_folders_of_their_own) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"cat/persian/", "cat/siamese/", "dog/beagle/", "dog/poodle/",
                           "fox/images/", "wolf/images/", "owl/", "owl/persian/", "owl/siamese/"}) {
    for (const char* number : {"1.ppm", "2.ppm"}) write(concat(name, number), image);
  }
  EXPECT_THAT(load({.side = 8}).classes, ElementsAre("cat", "dog", "fox", "owl", "wolf"));
}

TEST_F(Images, says_how_many_it_holds_out_of_a_folder_without_a_held_out_part) {
  for (int i = 0; i < 20; ++i) {
    write("a/" + std::to_string(i) + ".ppm", test::ppm_file(8, 8, test::scene(8, 8, 3)));
  }
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  load({.side = 8, .parts = ImageParts::HeldOut});
  set_log_level(LogLevel::Error);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("has neither test/ nor val/: 2 of 20 images are held out"));
}

TEST_F(Images, leaves_out_broken_files_and_counts_them_unless_all_are) {
  const std::string image = test::jpeg_file(32, 32, test::scene(32, 32, 3));
  for (int i = 0; i < 30; ++i) {
    write("x/" + std::to_string(100 + i) + ".jpg", i % 7 == 3 ? image.substr(0, 200) : image);
  }
  for (const Index memory : {Index{1} << 30, Index{0}}) {
    const ImageCorpus corpus = load({.side = 16, .memory_bytes = memory});
    EXPECT_EQ(corpus.broken, 4);
    EXPECT_EQ(corpus.train.size() + corpus.held_out.size(), 26);
    EXPECT_EQ(corpus.train.in_memory(), memory > 0);
  }
  for (int i = 0; i < 30; ++i) write("x/" + std::to_string(100 + i) + ".jpg", "broken");
  EXPECT_THAT(refusal(), HasSubstr("None of the 30 images can be decoded"));
}

TEST_F(Images, gives_the_same_images_in_memory_or_not_and_on_any_number_of_threads) {
  for (int i = 0; i < 25; ++i) {
    const Index height = 20 + i, width = 40 - i;
    write((i % 2 == 0 ? "x/" : "y/") + std::to_string(i) + ".jpg",
          test::jpeg_file(height, width,
                          test::scene(height, width, 3, static_cast<std::uint64_t>(i))));
  }
  const ImageCorpus kept = load({.side = 16});
  ThreadPool pool(3);
  const ImageCorpus again = load_images(folder(), {.side = 16, .memory_bytes = 0}, pool);
  EXPECT_FALSE(again.train.in_memory());
  EXPECT_EQ(again.hash, kept.hash);
  EXPECT_EQ(read(again, again.train, 5), read(kept, kept.train, 5));
  EXPECT_NE(load({.side = 17}).hash, kept.hash);
}

// Pieces of 256 images are hashed by different threads, which wait for each other here.
TEST_F(Images, are_hashed_by_several_threads_to_the_same_value) {
  constexpr Index kCount = 600;
  std::atomic<int> together{0};
  std::atomic<bool> met{false};
  const auto corpus_of = [&](int threads) {
    ImageCorpus corpus;
    corpus.shape = {1, 1, 2};
    corpus.train =
        ImagePart(corpus.shape, std::vector<std::uint16_t>(kCount, 3),
                  [&together, &met, threads](Index index, std::span<std::uint8_t> planes) {
                    planes[0] = static_cast<std::uint8_t>(index);
                    planes[1] = static_cast<std::uint8_t>(index >> 8);
                    if (threads == 1 || index % 256 != 0) return;
                    if (++together >= threads) met = true;
                    test::wait_until([&] { return met.load(); });
                  });
    return corpus;
  };
  ThreadPool pool(2);
  const std::string parallel = hash_images(corpus_of(2), {}, pool);
  EXPECT_TRUE(met);
  EXPECT_EQ(parallel, hash_images(corpus_of(1), {}, serial_executor()));
}

// A model that never sees a class cannot learn it.
TEST_F(Images, names_the_classes_of_which_no_training_image_can_be_decoded) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const std::string name : {"a", "b", "c"}) {
    for (const std::string number : {"0", "1", "2"}) {
      write("train/" + name + "/" + number + ".ppm", name == "a" ? image : "broken");
    }
    write("test/" + name + "/0.ppm", image);
  }
  for (const Index memory : {Index{1} << 30, Index{0}}) {
    EXPECT_THAT(refusal(ErrorCategory::CorruptFile, {.side = 8, .memory_bytes = memory}),
                HasSubstr("No training image of b, c can be decoded."));
  }
  EXPECT_EQ(refusal(ErrorCategory::CorruptFile, {.side = 8, .parts = ImageParts::HeldOut}), "")
      << "training images are not read";
  write("train/b/1.ppm", image), write("train/c/2.ppm", image);
  EXPECT_EQ(load({.side = 8}).train.size(), 5);
}

TEST_F(Images, names_the_classes_of_which_no_image_is_held_out) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (char name = 'a'; name <= 'h'; ++name) {
    write(std::string("train/") + name + "/0.ppm", image);
    write(std::string("test/") + name + "/0.ppm", name == 'b' ? "broken" : image);
  }
  const auto warnings = [&](bool held_out_only) {
    set_log_level(LogLevel::Warning);
    testing::internal::CaptureStderr();
    load({.side = 8, .parts = held_out_only ? ImageParts::HeldOut : ImageParts::Both});
    set_log_level(LogLevel::Error);
    return testing::internal::GetCapturedStderr();
  };
  for (const bool held_out_only : {false, true}) {
    EXPECT_THAT(warnings(held_out_only), HasSubstr(": no image is held out of b, so that"));
  }
  for (const char name : {'c', 'd', 'e', 'f', 'g', 'h'}) {
    fs::remove_all(folder() / "test" / std::string(1, name));
  }
  EXPECT_THAT(warnings(false), HasSubstr("no image is held out of b, c, d, e, f and 2 more, so"));
  write("test/b/0.ppm", image);
  for (const char name : {'c', 'd', 'e', 'f', 'g', 'h'}) {
    write(std::string("test/") + name + "/0.ppm", image);
  }
  EXPECT_EQ(warnings(false), "");
}

// Drops root's access to files for the current thread until it is destroyed.
class WithoutRights {
 public:
  WithoutRights() { ::setfsuid(65534); }
  ~WithoutRights() { ::setfsuid(::geteuid()); }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;
};

TEST_F(Images, refuses_a_folder_that_cannot_be_read_instead_of_leaving_it_out) {
  const std::string image = test::ppm_file(8, 8, test::scene(8, 8, 3));
  for (const char* name : {"a", "b", "c/deep"}) {
    for (int i = 0; i < 2; ++i) write(concat(name, "/", i, ".ppm"), image);
  }
  fs::permissions(folder(), fs::perms::all);
  const auto refusal_without = [&](const char* name) {
    const fs::perms before = fs::status(folder() / name).permissions();
    fs::permissions(folder() / name, fs::perms::none);
    std::string message;
    {
      const WithoutRights user;
      message = refusal(ErrorCategory::NotFound, {.side = 8});
    }
    fs::permissions(folder() / name, before);
    return message;
  };
  if (::geteuid() == 0) {
    const WithoutRights user;
    if (::setfsuid(static_cast<uid_t>(-1)) != 65534) GTEST_SKIP() << "root keeps its rights here";
  }
  EXPECT_THAT(refusal_without("b"),
              HasSubstr((folder() / "b").string() + "] Could not read the folder: "));
  EXPECT_THAT(refusal_without("c/deep"),
              HasSubstr((folder() / "c").string() + "] Could not read the folder: "));
  EXPECT_EQ(refusal(ErrorCategory::NotFound, {.side = 8}), "");
}

TEST_F(Images, refuses_a_link_that_goes_in_circles_and_ignores_one_to_nothing) {
  for (int i = 0; i < 20; ++i) {
    write(concat(i % 2 == 0 ? "a/" : "b/", i, ".ppm"), test::ppm_file(8, 8, test::scene(8, 8, 3)));
  }
  fs::create_symlink("none", folder() / "gone");
  EXPECT_EQ(load({.side = 8}).classes.size(), 2u);
  fs::create_symlink("c", folder() / "c");
  EXPECT_THAT(refusal(ErrorCategory::NotFound),
              HasSubstr((folder() / "c").string() + "] Could not read the folder: "));
}

TEST_F(Images, stops_reading_when_it_is_told_to) {
  for (int i = 0; i < 12; ++i) write("x/" + std::to_string(i) + ".jpg", "broken");
  const hone::test::StopFlag stop{true};
  EXPECT_THAT(refusal(ErrorCategory::Cancelled, {.side = 16, .stop = stop}),
              HasSubstr("interrupted"));
}

TEST_F(Images, refuses_what_holds_no_images) {
  EXPECT_THAT(refusal(), HasSubstr("no folders of images"));
  write("x.ppm", "a file beside no class");
  EXPECT_THAT(refusal(), HasSubstr("no folders of images"));
  const auto load_path = [](const fs::path& path) {
    return load_images(path, {}, serial_executor());
  };
  EXPECT_THROW(load_path(folder() / "none"), Error);
  EXPECT_THROW(load_path(folder() / "x.ppm"), Error);
}

TEST(RealImageSets, mnist_has_its_counts_and_its_first_labels) {
  HONE_REQUIRE_TEST_DATA(path, "vision/mnist");
  const ImageCorpus corpus = load_images(path, {}, serial_executor());
  EXPECT_EQ(corpus.train.size(), 60000);
  EXPECT_EQ(corpus.held_out.size(), 10000);
  EXPECT_EQ(corpus.classes.size(), 10u);
  std::string labels;
  for (Index i = 0; i < 10; ++i) labels += std::to_string(corpus.train.label(i));
  EXPECT_EQ(labels, "5041921314");
}

TEST(RealImageSets, flowers_have_their_classes_and_no_broken_file) {
  HONE_REQUIRE_TEST_DATA(path, "vision/17flowers");
  ThreadPool pool;
  const ImageCorpus corpus = load_images(path, {.side = 32}, pool);
  EXPECT_EQ(corpus.train.size(), 17 * 48);
  EXPECT_EQ(corpus.held_out.size(), 17 * 16);
  EXPECT_EQ(corpus.classes.size(), 17u);
  EXPECT_EQ(corpus.broken, 0);
}

// What Pillow's convert("L") gives for the corners of the color cube.
TEST_F(Images, files_of_one_channel_are_the_luma) {
  const std::vector<std::pair<std::string, int>> corners = {
      {{"\xff\0\0", 3}, 76},    {{"\0\xff\0", 3}, 150},  {{"\0\0\xff", 3}, 29},
      {"\xff\xff\xff", 255},    {{"\0\0\0", 3}, 0},      {{"\xff\xff\0", 3}, 226},
      {{"\0\xff\xff", 3}, 179}, {{"\xff\0\xff", 3}, 105}};
  std::vector<fs::path> paths;
  for (const auto& [color, luma] : corners) {
    const std::string name = std::to_string(luma) + ".ppm";
    write(name, test::ppm_file(2, 2, color + color + color + color));
    paths.push_back(folder() / name);
  }
  const ImagePart part = read_image_files(paths, {1, 2, 2});
  ASSERT_EQ(part.size(), 8);
  for (Index i = 0; i < 8; ++i) {
    std::vector<std::uint8_t> planes(4);
    part.read(i, planes);
    EXPECT_THAT(planes, testing::Each(corners[static_cast<std::size_t>(i)].second));
  }
  EXPECT_THROW(read_image_files(paths, {1, 2, 3}), Error);
  EXPECT_THROW(read_image_files(paths, {2, 2, 2}), Error);
}

// Pictures to train on need not even be readable.
TEST_F(Images, only_what_is_held_out_is_read_where_told) {
  for (const std::string name : {"a", "b"}) {
    write("train/" + name + "/0.ppm", "broken");
    write("test/" + name + "/1.ppm", test::ppm_file(4, 4, test::scene(4, 4, 3)));
  }
  const ImageCorpus corpus = load({.side = 4, .parts = ImageParts::HeldOut});
  EXPECT_EQ(corpus.train.size(), 0);
  EXPECT_EQ(corpus.held_out.size(), 2);
  EXPECT_EQ(corpus.broken, 0);
  EXPECT_THAT(refusal(), HasSubstr("images can be decoded"));
  fs::remove_all(folder() / "train");
  EXPECT_EQ(load({.side = 4, .parts = ImageParts::HeldOut}).classes, corpus.classes);
}

TEST_F(Images, all_of_a_folder_are_held_out_where_that_is_asked_for) {
  const auto picture = [](Index brightness) {
    return test::ppm_file(4, 4, std::string(48, static_cast<char>(brightness)));
  };
  const auto brightness = [&](const ImageCorpus& corpus) {
    std::vector<int> values;
    for (Index i = 0; i < corpus.held_out.size(); ++i) {
      values.push_back(read(corpus, corpus.held_out, i)[0]);
    }
    std::ranges::sort(values);
    return values;
  };
  const auto load_all = [&](Index memory) {
    const ImageCorpus corpus = load({.side = 4, .memory_bytes = memory, .parts = ImageParts::All});
    EXPECT_EQ(corpus.train.size(), 0);
    EXPECT_EQ(corpus.hash, "");
    return corpus;
  };
  for (const Index memory : {Index{1} << 30, Index{0}}) {
    write("a/0.ppm", picture(10)), write("a/1.ppm", picture(20)), write("b/0.ppm", picture(30));
    EXPECT_EQ(brightness(load_all(memory)), (std::vector<int>{10, 20, 30}));
    fs::remove_all(folder() / "a"), fs::remove_all(folder() / "b");
    write("test/a/0.ppm", picture(40)), write("val/b/0.ppm", picture(50));
    EXPECT_EQ(brightness(load_all(memory)), (std::vector<int>{40, 50})) << "no train/";
    write("train/a/0.ppm", picture(60)), write("train/b/1.ppm", picture(70));
    const ImageCorpus corpus = load_all(memory);
    EXPECT_EQ(brightness(corpus), (std::vector<int>{40, 50, 60, 70}));
    EXPECT_EQ(corpus.classes, (std::vector<std::string>{"a", "b"}));
    for (Index i = 0; i < 4; ++i) {
      const int value = read(corpus, corpus.held_out, i)[0];
      EXPECT_EQ(corpus.held_out.label(i), value == 50 || value == 70 ? 1 : 0) << value;
    }
    for (const char* part : {"train", "test", "val"}) fs::remove_all(folder() / part);
  }
}

}  // namespace
}  // namespace hone::data
