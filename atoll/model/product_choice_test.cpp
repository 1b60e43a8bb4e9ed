#include "atoll/model/product_choice.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::model {
namespace {

using enum Library;

constexpr ProductShape kShape{.types = ProductTypes::kBf16,
                              .m = 4096,
                              .n = 1408,
                              .k = 512,
                              .a_is_transposed = false,
                              .b_is_transposed = true,
                              .accumulates = false,
                              .num_threads = 2};

ProductShape with_rows(int64_t m) {
  ProductShape shape = kShape;
  shape.m = m;
  return shape;
}

/// A machine on which each library takes a known time, and which counts measurements.
struct Machine {
  double mkl = 1;
  double onednn = 1;
  double widened = 1;
  int measured = 0;

  double seconds_of(Library library) const {
    return library == kMkl ? mkl : library == kOneDnn ? onednn : widened;
  }
  Library choose(ProductChoices& choices, const ProductShape& shape = kShape) {
    return choices.choose(shape, std::vector{kMkl, kOneDnn, kWidened}, [this](const ProductShape&) {
      ++measured;
      return [this](Library library) { return seconds_of(library); };
    });
  }
};

ProductChoices remembering(const std::filesystem::path& file) {
  return ProductChoices({.file = file});
}

TEST(ProductChoiceTest, AnotherIsTakenOnlyWhereItGains) {
  const auto among = [](double usual, double other) {
    return quickest(std::vector{kMkl, kOneDnn},
                    [=](Library library) { return library == kMkl ? usual : other; });
  };
  EXPECT_EQ(among(1e-3, 2e-3), kMkl);
  EXPECT_EQ(among(1e-3, 1e-3), kMkl);
  EXPECT_EQ(among(1e-3, 0.96e-3), kMkl);
  EXPECT_EQ(among(1e-3, 0.94e-3), kOneDnn);
}

/// Who happens to measure while a neighbour uses AMX.
TEST(ProductChoiceTest, TilesAreFavoured) {
  const auto among = [](double usual, double tiles) {
    return quickest(std::vector{kMkl, kTiles},
                    [=](Library library) { return library == kMkl ? usual : tiles; });
  };
  EXPECT_EQ(among(0.96e-3, 1e-3), kTiles);
  EXPECT_EQ(among(0.94e-3, 1e-3), kMkl);
  EXPECT_EQ(quickest(std::vector{kMkl, kOneDnn, kTiles},
                     [](Library library) {
                       return library == kTiles ? 1 : library == kMkl ? 1e-3 : 0.96e-3;
                     }),
            kMkl)
      << "hopeless tiles favour the first";
  int runs = 0;
  const auto quiet_once = [&](Library library) {
    return library == kMkl ? 1e-3 : ++runs == 9 ? 0.7e-3 : 1.4e-3;
  };
  EXPECT_EQ(quickest(std::vector{kMkl, kTiles}, quiet_once), kTiles);
}

TEST(ProductChoiceTest, OneRunDecidesNothing) {
  // What oneDNN takes in its run of that number, where the first makes what the others find.
  const auto with_onednn = [](const std::function<double(int run)>& seconds) {
    int runs = 0;
    return quickest(std::vector{kMkl, kOneDnn},
                    [&](Library library) { return library == kMkl ? 1e-3 : seconds(++runs); });
  };
  EXPECT_EQ(with_onednn([](int run) { return run == 3 ? 9e-3 : 0.5e-3; }), kOneDnn) << "disturbed";
  EXPECT_EQ(with_onednn([](int run) { return run == 3 ? 0.5e-3 : 9e-3; }), kMkl) << "lucky";
  EXPECT_EQ(with_onednn([](int run) { return run == 1 ? 0.5e-3 : 9e-3; }), kMkl) << "not counted";
  EXPECT_EQ(with_onednn([](int run) { return run == 1 ? 9e-3 : 0.5e-3; }), kOneDnn) << "nor this";
}

TEST(ProductChoiceTest, MeasuringIsBounded) {
  const auto runs_of = [](double mkl, double onednn) {
    std::pair<int, int> runs;
    quickest(std::vector{kMkl, kOneDnn}, [&](Library library) {
      ++(library == kMkl ? runs.first : runs.second);
      return library == kMkl ? mkl : onednn;
    });
    return runs;
  };
  EXPECT_EQ(runs_of(1e-4, 1e-4), std::pair(25, 25));
  EXPECT_EQ(runs_of(1, 1), std::pair(5, 5));
  EXPECT_EQ(runs_of(0.011, 2), std::pair(11, 1)) << "who is hopeless is not run again";
  EXPECT_EQ(runs_of(2, 0.011), std::pair(1, 11)) << "nor is the usual one";
}

TEST(ProductChoiceTest, WhatIsMeasuredIsAPart) {
  for (const ProductTypes types : {ProductTypes::kFp32, ProductTypes::kBf16}) {
    ProductShape shape = kShape;
    shape.types = types;
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{4096, 2816, 512},
                                  {1, 5'000'000, 1},
                                  {100'000, 1, 100'000},
                                  {9, 8192, 100'003},
                                  {200, 200, 200}}) {
      shape.m = m;
      shape.n = n;
      shape.k = k;
      const ProductShape part = measured_part(shape);
      EXPECT_LE(part.m * part.n * part.k, int64_t{1} << (types == ProductTypes::kFp32 ? 29 : 31));
      for (const int64_t elements : {part.m * part.n, part.m * part.k, part.k * part.n}) {
        EXPECT_LE(elements, int64_t{1} << 23);
      }
      EXPECT_TRUE(part.m >= 1 && part.m <= m && part.n >= 1 && part.n <= n && part.k >= 1);
      if (m == 200) {
        EXPECT_EQ(text_of(part), text_of(shape));
      }
    }
  }
}

TEST(ProductChoiceTest, RowsOfOneClassAreMeasuredOnce) {
  const TestFolder folder;
  Machine machine{.onednn = 0.5};
  ProductChoices choices = remembering(folder / "products");
  for (const int64_t rows : {4096, 4000, 2049, 3333}) {
    EXPECT_EQ(machine.choose(choices, with_rows(rows)), kOneDnn);
  }
  EXPECT_EQ(machine.measured, 1);
  machine.choose(choices, with_rows(2048));
  EXPECT_EQ(machine.measured, 2);
}

/// What differs in anything that speeds hang on is another shape.
TEST(ProductChoiceTest, EachPropertyIsInTheName) {
  std::vector<ProductShape> shapes(9, kShape);
  shapes[1].types = ProductTypes::kFp32;
  shapes[2].m = 1;
  shapes[3].n = 1;
  shapes[4].k = 1;
  shapes[5].a_is_transposed = true;
  shapes[6].b_is_transposed = false;
  shapes[7].accumulates = true;
  shapes[8].num_threads = 1;
  std::set<std::string> texts;
  for (const ProductShape& shape : shapes) texts.insert(text_of(shape));
  EXPECT_EQ(texts.size(), shapes.size());
  Machine machine;
  const TestFolder folder;
  ProductChoices choices = remembering(folder / "products");
  for (const ProductShape& shape : shapes) machine.choose(choices, shape);
  EXPECT_EQ(machine.measured, 9);
}

TEST(ProductChoiceTest, TheNextProcessChoosesAlikeWhateverItWouldMeasure) {
  const TestFolder folder;
  const auto file = folder / "not" / "yet" / "there";
  {
    ProductChoices choices = remembering(file);
    EXPECT_EQ((Machine{.widened = 0.5}).choose(choices), kWidened);
  }
  const std::string text = read_file(file);
  EXPECT_NE(text.find("bf16 m=4096 n=2048 k=512 a=rows b=columns threads=2 = widened\n"),
            text.npos);
  Machine other{.onednn = 0.1};
  ProductChoices choices = remembering(file);
  EXPECT_EQ(other.choose(choices), kWidened);
  EXPECT_EQ(other.measured, 0);
  EXPECT_EQ(other.choose(choices, with_rows(64)), kOneDnn);
  EXPECT_NE(read_file(file).find(" = widened\n"), std::string::npos) << "what was there stays";
}

TEST(ProductChoiceTest, AFileThatGoesChangesNothingForWhoHasReadIt) {
  const TestFolder folder;
  Machine machine{.onednn = 0.5};
  ProductChoices choices = remembering(folder / "products");
  machine.choose(choices);
  std::filesystem::remove(folder / "products");
  machine = {.widened = 0.5};
  EXPECT_EQ(machine.choose(choices), kOneDnn);
  EXPECT_EQ(machine.choose(choices, with_rows(1)), kWidened);
  ProductChoices next = remembering(folder / "products");
  EXPECT_EQ(machine.choose(next), kOneDnn) << "what a process has used is written again";
}

TEST(ProductChoiceTest, ADamagedFileIsPutAside) {
  const TestFolder folder;
  const auto file = folder / "products";
  Machine machine{.onednn = 0.5};
  ProductChoices first = remembering(file);
  machine.choose(first);
  const std::string whole = read_file(file);
  ASSERT_TRUE(parse_memory(whole));
  std::vector<std::string> damaged{"", "garbage", std::string(5'000'000, 'x'), whole + "more\n"};
  for (size_t size = 1; size < whole.size(); size += 7) damaged.push_back(whole.substr(0, size));
  for (size_t place = 0; place < whole.size(); place += 5) {
    damaged.push_back(whole);
    damaged.back()[place] ^= 1;
  }
  for (const std::string& text : damaged) {
    folder.write("products", text);
    machine = {.widened = 0.5};
    ProductChoices choices = remembering(file);
    EXPECT_EQ(machine.choose(choices), kWidened) << text.substr(0, 400);
    EXPECT_EQ(machine.measured, 1);
    EXPECT_EQ(read_file(folder / "products.damaged"), text);
    EXPECT_TRUE(parse_memory(read_file(file)));
  }
}

TEST(ProductChoiceTest, AnAnswerThatNobodyKnowsIsTheUsualOne) {
  const TestFolder folder;
  folder.write("products", memory_text({{text_of(class_of(kShape)), "magic"}}));
  Machine machine{.onednn = 0.5};
  ProductChoices choices = remembering(folder / "products");
  EXPECT_EQ(machine.choose(choices), kMkl);
  EXPECT_EQ(machine.measured, 0);
}

TEST(ProductChoiceTest, WhereNothingCanBeRememberedNothingIsMeasured) {
  const TestFolder folder;
  Machine machine{.onednn = 0.5};
  // A file where a folder should be; not even root can write there.
  folder.write("file", "");
  ProductChoices choices = remembering(folder / "file" / "products");
  EXPECT_EQ(machine.choose(choices), kMkl);
  // The name is taken by a folder.
  std::filesystem::create_directory(folder / "taken");
  ProductChoices others = remembering(folder / "taken");
  EXPECT_EQ(machine.choose(others), kMkl);
  EXPECT_EQ(machine.measured, 0);
}

TEST(ProductChoiceTest, AReadOnlyFolderIsReadOnly) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  const TestFolder folder;
  Machine machine{.onednn = 0.5};
  ProductChoices first = remembering(folder / "products");
  machine.choose(first);
  ::chmod(folder.path().c_str(), 0500);
  ProductChoices choices = remembering(folder / "products");
  EXPECT_EQ(machine.choose(choices), kOneDnn);
  EXPECT_EQ(machine.choose(choices, with_rows(1)), kMkl);
  EXPECT_EQ(machine.measured, 1);
  ::chmod(folder.path().c_str(), 0700);
}

/// Processes that would all measure something else agree, on each shape.
TEST(ProductChoiceTest, ProcessesAtTheSameTimeChooseAlike) {
  constexpr int kProcesses = 8;
  constexpr int kShapes = 12;
  const TestFolder folder;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      Machine machine{.onednn = process % 3 == 1 ? 0.5 : 1, .widened = process % 3 == 2 ? 0.5 : 1};
      ProductChoices choices = remembering(folder / "products");
      for (int i = 0; i < kShapes; ++i) {  // Each begins with another one.
        machine.choose(choices, with_rows(int64_t{1} << ((i + process) % kShapes)));
      }
      std::string answers;
      for (int i = 0; i < kShapes; ++i) {
        answers += std::string(name_of(machine.choose(choices, with_rows(int64_t{1} << i)))) + " ";
      }
      folder.write("answers" + std::to_string(process), answers);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (int process = 1; process < kProcesses; ++process) {
    EXPECT_EQ(read_file(folder / ("answers" + std::to_string(process))),
              read_file(folder / "answers0"));
  }
  EXPECT_EQ(parse_memory(read_file(folder / "products"))->size(), kShapes);
}

TEST(ProductChoiceTest, APinnedLibraryIsTakenWhereItCanDoIt) {
  Machine machine{.widened = 0.5};
  ProductChoices choices({.pinned = kOneDnn});
  EXPECT_EQ(machine.choose(choices), kOneDnn);
  ProductShape fp32 = kShape;
  fp32.types = ProductTypes::kFp32;
  ProductChoices widened({.pinned = kWidened});
  EXPECT_EQ(widened.choose(fp32, std::vector{kOneDnn, kMkl}, {}), kOneDnn);
  ProductChoices usual({});
  EXPECT_EQ(machine.choose(usual), kMkl);
  EXPECT_EQ(machine.measured, 0);
}

TEST(ProductChoiceTest, TheEnvironmentSaysWhereChoicesComeFrom) {
  const auto file = [](const char* setting, const char* cache, const char* home,
                       std::string_view machine = "this one") {
    return product_policy(setting, cache, home, machine).file.value_or("").string();
  };
  EXPECT_TRUE(file(nullptr, "/c", "/h").starts_with("/c/atoll/products-"));
  EXPECT_TRUE(file("", "", "/h").starts_with("/h/.cache/atoll/products-"));
  EXPECT_EQ(file("measured", nullptr, "/h"), file(nullptr, "", "/h"));
  EXPECT_NE(file(nullptr, "/c", "/h"), file(nullptr, "/c", "/h", "another"));
  EXPECT_EQ(file(nullptr, nullptr, ""), "");
  EXPECT_EQ(file("usual", "/c", "/h"), "");
  EXPECT_EQ(file("./here", "/c", "/h"), "./here");
  EXPECT_EQ(product_policy("onednn", "/c", "/h", "").pinned, kOneDnn);
  EXPECT_EQ(product_policy("mkl", nullptr, nullptr, "").pinned, kMkl);
  EXPECT_NE(message_of<UsageError>([] {
              product_policy("openblas", nullptr, nullptr, "");
            }).find("ATOLL_PRODUCTS is 'openblas': it must be measured, usual, mkl"),
            std::string::npos);
}

}  // namespace
}  // namespace atl::model
