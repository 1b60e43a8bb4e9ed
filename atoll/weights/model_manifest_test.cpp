// A model's name, manifest, parts and pieces, and the folder in which they are kept.
#include "atoll/weights/model_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "atoll/base/file.h"
#include "atoll/codec/ggml_types.h"
#include "atoll/testing/sample_models.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_parts.h"
#include "atoll/weights/part_store.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<float> values_of(const ModelConfig& config, float step = 0.25F) {
  std::vector<float> values(static_cast<size_t>(num_parameters(config)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251) * step - 7;
  return values;
}

std::shared_ptr<const ModelFiles> saved(const fs::path& folder, const ModelConfig& config,
                                        const SaveOptions& options = {}, float step = 0.25F) {
  fs::create_directories(folder);
  save_hf_model(folder, config, {}, values_of(config, step), options);
  return std::make_shared<const ModelFiles>(folder, config);
}

/// One with pieces: its layers have some 4 MiB, its embedding too.
ModelConfig large() {
  ModelConfig config = tiny();
  config.hidden_size = 256;
  config.intermediate_size = 1024;
  config.vocab_size = 4000;
  return config;
}

/// Fills it from who has all.
void fill(PartStore& store, const ModelParts& from, int32_t part) {
  store.keep_hashes(part, from.hashes(part).value());
  for (const uint32_t piece : store.missing(part)) {
    store.write(part, piece, from.piece(part, piece).value());
  }
  EXPECT_THAT(store.missing(part), IsEmpty());
  store.finish(part);
}

TEST(ModelManifestTest, NamesTheModelHoweverItsFilesAreCut) {
  const TestFolder folder;
  const ModelConfig config = large();
  const ModelParts whole(config, saved(folder / "whole", config), 1);
  const ModelParts cut(config, saved(folder / "cut", config, {.max_shard_bytes = 3 << 20}), 3);
  EXPECT_EQ(whole.digest(), cut.digest());
  const ModelParts bf16(config, saved(folder / "bf16", config, {.type = DType::kBF16}), 1);
  EXPECT_NE(whole.digest(), bf16.digest());
  const ModelParts others(config, saved(folder / "others", config, {}, 0.5F), 1);
  EXPECT_NE(whole.digest(), others.digest());
  ModelConfig turned = config;
  turned.rope_theta = 5000;
  EXPECT_NE(whole.digest(), ModelParts(turned, saved(folder / "t", turned), 1).digest());
}

TEST(ModelManifestTest, OneBitAnywhereIsAnotherModel) {
  const TestFolder folder;
  const ModelConfig config = large();
  const auto name_with_flip = [&](int64_t back) {
    saved(folder / "model", config);
    const fs::path file = folder / "model" / kWeightsFile;
    if (back > 0) {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(-back, std::ios::end);
      const auto value = static_cast<char>(bytes.peek() ^ 1);
      bytes.seekp(-back, std::ios::end);
      bytes.put(value);
    }
    return ModelParts(config, std::make_shared<const ModelFiles>(folder / "model", config), 2)
        .digest();
  };
  const std::string name = name_with_flip(0);
  for (const int64_t back : {1, 777'777, 5'000'001}) EXPECT_NE(name_with_flip(back), name) << back;
}

TEST(ModelManifestTest, ComesBackFromItsBytesForEveryFamily) {
  for (const ModelConfig& config : varieties()) {
    const TestFolder folder;
    const ModelParts parts(config, saved(folder / "model", config), 1);
    const Bytes bytes = encode(parts.manifest());
    const ModelManifest again = decode_manifest(bytes);
    EXPECT_EQ(encode(again), bytes) << config.architecture;
    EXPECT_EQ(again.config, canonical(config)) << config.architecture;
    EXPECT_EQ(digest_of(bytes), parts.digest());
    EXPECT_EQ(again.num_parts(), config.num_layers + 1);
  }
}

TEST(ModelManifestTest, WhatCannotBeIsRefused) {
  const TestFolder folder;
  const ModelConfig config = tiny();
  const ModelManifest good = ModelParts(config, saved(folder / "model", config), 1).manifest();
  const auto fault_with = [&](const std::function<void(ModelManifest&)>& edit) {
    ModelManifest manifest = good;
    edit(manifest);
    return message_of([&] { decode_manifest(encode(manifest)); });
  };
  EXPECT_EQ(fault_with([](ModelManifest&) {}), "");
  EXPECT_THAT(fault_with([](auto& m) { m.config.num_heads = 3; }), HasSubstr("num_heads"));
  EXPECT_THAT(fault_with([](auto& m) { m.tensors.pop_back(); }), HasSubstr("tensors"));
  EXPECT_NE(fault_with([](auto& m) { m.parts.pop_back(); }), "");
  EXPECT_NE(fault_with([](auto& m) { m.parts.emplace_back(); }), "");
  const std::vector<std::function<void(StoredTensor&)>> edits = {
      [](StoredTensor& t) { t.num_rows *= 2; },
      [](StoredTensor& t) { t.num_rows = -t.num_rows; },
      [](StoredTensor& t) { t.num_rows = 0; },
      [](StoredTensor& t) { std::swap(t.num_rows, t.width); },
      [](StoredTensor& t) { t.width = int64_t{1} << 62; },
      [](StoredTensor& t) { t.type = codec::GgmlType::kQ4_K; },  // Whose blocks are longer.
      [](StoredTensor& t) { t.order.outer = 0; },
      [](StoredTensor& t) { t.order.inner = 1'000; },
      [](StoredTensor& t) { t.order.run = int64_t{1} << 62; },
      [](StoredTensor& t) { t.order = {.outer = 3, .inner = 1, .run = 1}; },
      [](StoredTensor& t) { t.inputs_first = true; },
      [](StoredTensor& t) { t.added = std::numeric_limits<float>::quiet_NaN(); }};
  for (size_t i = 0; i < edits.size(); ++i) {
    EXPECT_THAT(fault_with([&](auto& m) { edits[i](m.tensors[0]); }), HasSubstr("other rows")) << i;
  }
  Bytes none = encode(good);
  none[0] ^= std::byte{1};
  EXPECT_THAT(message_of([&] { decode_manifest(none); }), HasSubstr("it is none"));
}

TEST(ModelPartsTest, GivesAllPiecesAndNothingElse) {
  const TestFolder folder;
  const ModelConfig config = large();
  const auto files = saved(folder / "model", config);
  const ModelParts parts(config, files, 1);
  const auto tensors = tensors_by_part(config);
  for (int32_t part = 0; part <= config.num_layers; ++part) {
    Bytes all;
    for (int64_t i = 0; const auto piece = parts.piece(part, i); ++i) {
      EXPECT_LE(piece->size(), kTreeChunkBytes);
      all.insert(all.end(), piece->begin(), piece->end());
    }
    Bytes wanted;
    for (const size_t index : tensors[static_cast<size_t>(part)]) {
      const auto bytes = files->tensors()[index].bytes;
      wanted.insert(wanted.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(all, wanted);
    EXPECT_GT(all.size(), 3 * kTreeChunkBytes);
    EXPECT_EQ(tree_digest(all), parts.manifest().parts[static_cast<size_t>(part)]);
    EXPECT_EQ(sha256(parts.hashes(part).value()), tree_digest(all));
  }
  EXPECT_EQ(parts.piece(-1, 0), encode(parts.manifest()));
  EXPECT_EQ(hex(sha256(parts.hashes(-1).value())), parts.digest());
  EXPECT_FALSE(parts.piece(-2, 0) || parts.piece(-1, 1) || parts.piece(3, 0) ||
               parts.piece(0, -1) || parts.piece(0, 99) || parts.hashes(3) || parts.hashes(-2));
}

class PartStoreTest : public ::testing::Test {
 protected:
  const TestFolder folder_;
  const ModelConfig config_ = large();
  const std::shared_ptr<const ModelFiles> files_ = saved(folder_ / "model", config_);
  const ModelParts parts_{config_, files_, 1};
};

TEST_F(PartStoreTest, WhatIsFetchedIsTheModelAsItsFilesHaveIt) {
  PartStore store(folder_ / "cache", parts_.manifest());
  fill(store, parts_, 1);
  const auto fetched = store.files(std::vector<int32_t>{1});
  const auto tensors = tensors_by_part(config_);
  for (const size_t index : tensors[1]) {
    EXPECT_TRUE(
        std::ranges::equal(fetched->tensors()[index].bytes, files_->tensors()[index].bytes));
  }
  for (const size_t index : tensors[0]) EXPECT_TRUE(fetched->tensors()[index].bytes.empty());
  // And others can have it from here, but not what is not here.
  const ModelParts again(store.manifest(), {{}, store.hashes(1), {}}, fetched);
  EXPECT_EQ(again.digest(), parts_.digest());
  EXPECT_EQ(again.piece(1, 2), parts_.piece(1, 2));
  EXPECT_EQ(again.hashes(1), parts_.hashes(1));
  EXPECT_FALSE(again.piece(0, 0) || again.hashes(0));
}

TEST_F(PartStoreTest, GoesOnWhereItWasKilled) {
  {
    PartStore store(folder_ / "cache", parts_.manifest());
    store.keep_hashes(0, parts_.hashes(0).value());
    store.write(0, 2, parts_.piece(0, 2).value());
    EXPECT_FALSE(fs::exists(store.file(0)));
  }
  const auto manifest = PartStore::manifest_in(folder_ / "cache", parts_.digest());
  ASSERT_TRUE(manifest);
  PartStore store(folder_ / "cache", *manifest);
  EXPECT_FALSE(store.hashes(0).empty());
  EXPECT_THAT(store.missing(0), ::testing::Not(::testing::Contains(2)));
  EXPECT_EQ(store.missing(0).size(), store.hashes(0).size() - 1);
  fill(store, parts_, 0);
  EXPECT_TRUE(fs::exists(store.file(0)));
  EXPECT_FALSE(fs::exists(folder_ / "cache/layer-00000.part"));
}

TEST_F(PartStoreTest, DamageIsFoundAndMended) {
  PartStore store(folder_ / "cache", parts_.manifest());
  fill(store, parts_, 0);
  const std::string right = read_file(store.file(0));
  const auto damage = [&](const std::function<void(std::string&)>& edit) {
    std::string bytes = right;
    edit(bytes);
    write_file_atomically(store.file(0), bytes);
    const std::vector<uint32_t> missing = store.missing(0);
    for (const uint32_t piece : missing) store.write(0, piece, parts_.piece(0, piece).value());
    EXPECT_THAT(store.missing(0), IsEmpty());
    store.finish(0);
    EXPECT_EQ(read_file(store.file(0)), right);
    return missing;
  };
  EXPECT_THAT(damage([](std::string& bytes) { bytes[kTreeChunkBytes + 5] ^= 1; }), ElementsAre(1));
  EXPECT_THAT(damage([](std::string& bytes) { bytes.resize(bytes.size() - 1); }),
              ElementsAre(store.hashes(0).size() - 1));
  EXPECT_THAT(damage([](std::string& bytes) { bytes += "more"; }), IsEmpty());
  EXPECT_EQ(damage([](std::string& bytes) { bytes.clear(); }).size(), store.hashes(0).size());
  // Hashes that are none of the part's are as good as none.
  write_file_atomically(folder_ / "cache/layer-00000.hashes", std::string(5 * 32, 'x'));
  EXPECT_THAT(PartStore(folder_ / "cache", parts_.manifest()).hashes(0), IsEmpty());
  write_file_atomically(folder_ / "cache/manifest", "nothing");
  EXPECT_FALSE(PartStore::manifest_in(folder_ / "cache", parts_.digest()));
}

TEST_F(PartStoreTest, TwoFillOneFolder) {
  PartStore one(folder_ / "cache", parts_.manifest());
  PartStore two(folder_ / "cache", parts_.manifest());
  one.keep_hashes(0, parts_.hashes(0).value());
  const std::vector<uint32_t> missing = one.missing(0);
  EXPECT_EQ(two.missing(0), missing);
  for (const uint32_t piece : missing) one.write(0, piece, parts_.piece(0, piece).value());
  ASSERT_THAT(one.missing(0), IsEmpty());
  one.finish(0);
  two.write(0, 0, parts_.piece(0, 0).value());  // Which it has asked for before.
  EXPECT_THAT(two.missing(0), IsEmpty());
  two.finish(0);
  EXPECT_EQ(fs::file_size(one.file(0)), one.num_bytes(0));
  EXPECT_FALSE(fs::exists(folder_ / "cache/layer-00000.part"));
}

}  // namespace
}  // namespace atl::weights
