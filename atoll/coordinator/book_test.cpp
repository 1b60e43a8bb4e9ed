#include "atoll/coordinator/book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/testing/temporary_folder.h"

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Committed commit(uint64_t index, int32_t fragment, int64_t round,
                 std::vector<int64_t> num_trained = {2, 2}) {
  return {.index = index,
          .held = {.fragment = fragment, .round = round, .step = 10 * round},
          .count = 5,
          .segment_values = 5,
          .members = {0, 1},
          .weights = {1, 1},
          .num_trained = std::move(num_trained)};
}

/// A run of two, each with four units, and a commit of two of each.
std::vector<Record> story() {
  return {TermBegan{3},
          RunBegan{"r", 20, 2, {{"data", "d"}}},
          Admitted{{0, "a", "h:1"}},
          Admitted{{1, "b", "h:2"}},
          Granted{{0, 1}, 4},
          commit(0, 0, 5)};
}

Book told(const std::vector<Record>& records) {
  Book book;
  for (const Record& record : records) book.apply(record);
  return book;
}

std::string complaint(Book book, const Record& record) {
  return message_of([&] { book.apply(record); });
}

std::vector<Bytes> journal_of(const std::vector<Record>& records) {
  std::vector<Bytes> journal;
  for (const Record& record : records) journal.push_back(encode(record));
  return journal;
}

TEST(BookTest, KnowsWhatItWasTold) {
  const Book book = told(story());
  EXPECT_EQ(book.term(), 3U);
  EXPECT_EQ(book.first_term(), 3U);
  EXPECT_EQ(book.run(), "r");
  EXPECT_EQ(book.start_step(), 20);
  EXPECT_EQ(book.next_number(), 2);
  EXPECT_EQ(book.num_commits(), 1U);
  EXPECT_EQ(book.held().at(0).round, 5);
  EXPECT_EQ(book.last_round(), 5);
  EXPECT_EQ(book.last_step(), 50);
  EXPECT_EQ(book.leases().members().at(0).num_consumed, 2);
  EXPECT_EQ(book.leases().next(), 20 * 2 + 8) << "units before the start step are consumed";
}

/// Three islands in a run that began with two: more rows are consumed than two would have had.
TEST(BookTest, ACheckpointBehindTheLastCommitFreesNoRowThatIsConsumed) {
  std::vector<Record> records = story();
  records.push_back(Admitted{{2, "c", "h:3"}});
  records.push_back(Granted{{2}, 20});
  Committed all = commit(1, 0, 6, {4, 4, 20});
  all.members = {0, 1, 2};
  all.weights = {1, 1, 1};
  records.push_back(all);  // At step 60: units 40 to 67.
  Book book = told(records);
  const int64_t next = book.leases().next();
  book.apply(RunBegan{"r", 61, 2, {{"data", "d"}}});  // 61 * 2 = 122.
  EXPECT_EQ(book.leases().next(), 122) << "a checkpoint has the rows of its steps";
  Book crowded = told(records);
  crowded.apply(Granted{{2}, 100});
  Committed more = commit(2, 0, 7, {4, 4, 100});
  more.members = {0, 1, 2};
  more.weights = {1, 1, 1};
  crowded.apply(more);  // At step 70: up to unit 147.
  crowded.apply(RunBegan{"r", 71, 2, {{"data", "d"}}});
  EXPECT_EQ(crowded.leases().next(), next + 80);
}

TEST(BookTest, AJournalMakesTheSameBookFromRecordsOrContents) {
  const std::vector<Record> records = story();
  const Book book = told(records);
  std::vector<Bytes> journal = journal_of(records);
  EXPECT_EQ(read_book(journal), book);
  for (size_t i = 0; i <= records.size(); ++i) {  // Made short in between.
    std::vector<Bytes> rest = {told({records.begin(), records.begin() + i}).contents()};
    rest.insert(rest.end(), journal.begin() + static_cast<ptrdiff_t>(i), journal.end());
    EXPECT_EQ(read_book(rest), book) << i;
  }
}

std::vector<int32_t> numbers_of(const Outliers::Norms& norms) {
  std::vector<int32_t> numbers;
  for (const auto& one : norms) numbers.push_back(one.number);
  return numbers;
}

TEST(BookTest, KnowsTheLastNormsThatCounted) {
  auto records = story();
  Committed second = commit(1, 0, 6, {3, 3});
  second.weights = {0, 7};
  second.norms = {0, 2.5};
  records.emplace_back(second);
  Committed third = commit(2, 0, 7, {3, 3});
  third.norms = {1, 2};
  records.emplace_back(third);
  Book book = told(records);
  EXPECT_THAT(numbers_of(book.norms(0)), ElementsAre(1, 0, 1)) << "the first one told none";
  EXPECT_EQ(book.norms(0)[0], (Outliers::Contributed{1, 2.5, 7}));
  EXPECT_TRUE(book.norms(1).empty());
  EXPECT_TRUE(book.history().back().norms.empty()) << "they would be there twice";
  EXPECT_EQ(read_book(journal_of(records)), book);
  EXPECT_EQ(read_book(std::vector<Bytes>{book.contents()}), book);
  for (int64_t round = 8; round < 200; ++round) {
    third.index += 1;
    third.held.round = round;
    book.apply(third);
  }
  EXPECT_EQ(book.norms(0).size(), Outliers::kMemory);
  book.apply(RunBegan{"r", 10, 2, {}});
  EXPECT_TRUE(book.norms(0).empty()) << "they were of other members, and further on";
}

/// As it was written by a program that knew no norms.
TEST(BookTest, AJournalWithoutNormsIsRead) {
  const std::vector<Record> records = story();
  std::vector<Bytes> journal = journal_of(records);
  Bytes& commit = journal.back();
  ASSERT_EQ(commit[0], std::byte{kCommittedKind});
  commit[0] = std::byte{5};
  commit.resize(commit.size() - sizeof(uint32_t));  // The empty list.
  EXPECT_EQ(read_book(journal), told(records));
  Bytes contents = told(records).contents();
  ASSERT_EQ(contents[0], std::byte{254});
  contents[0] = std::byte{255};
  contents.resize(contents.size() - sizeof(uint32_t));
  EXPECT_EQ(read_book(std::vector<Bytes>{contents}), told(records));
}

TEST(BookTest, GrantsSayWhatEachGot) {
  Book book = told(story());
  const auto grants = book.apply(Granted{{0, 1}, 2});
  EXPECT_THAT(grants.at(0), ElementsAre(Units{48, 2, 2}));
  EXPECT_THAT(grants.at(1), ElementsAre(Units{49, 2, 2}));
}

TEST(BookTest, RowsOfWhoIsRemovedAreFree) {
  Book book = told(story());
  book.apply(Removed{1});
  EXPECT_FALSE(book.members().contains(1));
  EXPECT_EQ(num_units(book.leases().returned()), 2);
  book.apply(Admitted{{2, "b", "h:3"}});
  EXPECT_EQ(book.apply(Granted{{2}, 2}).at(2)[0].first, 45) << "its third unit was 41 + 2 * 2";
}

TEST(BookTest, WhoHasLeftIsRemembered) {
  Book book = told(story());
  book.apply(Left{1});
  EXPECT_TRUE(book.members().contains(1));
  EXPECT_TRUE(book.left().contains(1));
  EXPECT_EQ(num_units(book.leases().returned()), 2);
  EXPECT_EQ(read_book(std::vector<Bytes>{book.contents()}), book);
  EXPECT_THAT(complaint(book, Left{1}), HasSubstr("a member that left twice"));
}

TEST(BookTest, ARunThatBeginsAnewKeepsTermsNumbersAndIndices) {
  Book book = told(story());
  book.apply(TermBegan{7});
  book.apply(RunBegan{"r", 10, 2, {}});
  EXPECT_TRUE(book.members().empty());
  EXPECT_TRUE(book.held().empty());
  EXPECT_TRUE(book.history().empty());
  EXPECT_EQ(book.next_number(), 2);
  EXPECT_EQ(book.num_commits(), 1U);
  EXPECT_EQ(book.last_round(), -1);
  EXPECT_EQ(book.first_term(), 7U);
  EXPECT_EQ(book.leases().next(), 20);
}

TEST(BookTest, RowsOfCommitsThatAreVoidAreFreeAndNoOthers) {
  auto records = story();  // Units 40 to 47; the commit of step 50 has 40 to 43.
  records.emplace_back(commit(1, 0, 6, {4, 3}));  // Of step 60: 44, 45 and 46.
  const auto begun_again = [&](int64_t step) {
    Book book = told(records);
    book.apply(RunBegan{"r", step, 2, {}});
    return book.leases();
  };
  EXPECT_EQ(begun_again(60), LeaseBook(47)) << "both stand";
  EXPECT_EQ(begun_again(50), LeaseBook(44)) << "the second is void";
  EXPECT_EQ(begun_again(22), LeaseBook(44))
      << "a checkpoint of that step has learned from 40 to 43";
  EXPECT_EQ(begun_again(70), LeaseBook(140)) << "more than this book knows of";
  EXPECT_EQ(begun_again(10), LeaseBook(20)) << "before its beginning";
}

TEST(BookTest, ContradictionsAreRefused) {
  const Book book = told(story());
  EXPECT_THAT(complaint(book, TermBegan{3}), HasSubstr("a term that does not rise"));
  EXPECT_THAT(complaint(book, RunBegan{"other", 0, 2, {}}), HasSubstr("another run"));
  EXPECT_THAT(complaint(book, Admitted{{1, "c", "h"}}), HasSubstr("a number out of turn"));
  EXPECT_THAT(complaint(book, Removed{5}), HasSubstr("a member that is none"));
  EXPECT_THAT(complaint(book, Granted{{5}, 1}), HasSubstr("a stranger's grant"));
  EXPECT_THAT(complaint(book, Granted{{0, 0}, 1}), HasSubstr("a grant to one member twice"));
  EXPECT_THAT(complaint(book, commit(2, 0, 6)), HasSubstr("a commit out of turn"));
  EXPECT_THAT(complaint(book, commit(1, 0, 5)), HasSubstr("a round twice"));
  EXPECT_THAT(complaint(book, commit(1, 0, 6, {3, 5})), HasSubstr("rows that were not leased"));
  Committed short_lists = commit(1, 0, 6);
  short_lists.weights.pop_back();
  EXPECT_THAT(complaint(book, short_lists), HasSubstr("a commit's lists"));
  Committed short_norms = commit(1, 0, 6);
  short_norms.norms = {1};
  EXPECT_THAT(complaint(book, short_norms), HasSubstr("a commit's norms"));
  short_norms.norms = {1, NAN};
  EXPECT_THAT(complaint(book, short_norms), HasSubstr("a norm that is none"));
}

TEST(BookTest, DamagedEntriesAreRefused) {
  const std::vector<Bytes> journal = journal_of(story());
  for (size_t i = 0; i < journal.size(); ++i) {
    std::vector<Bytes> damaged = journal;
    damaged[i].pop_back();
    EXPECT_THROW(read_book(damaged), InputError) << i;
    damaged = journal;
    damaged[i].push_back(std::byte{0});
    EXPECT_THROW(read_book(damaged), InputError) << i;
    damaged = journal;
    damaged[i][0] = std::byte{77};
    EXPECT_THROW(read_book(damaged), InputError) << i;
  }
  Bytes contents = told(story()).contents();
  contents.pop_back();
  EXPECT_THROW(read_book(std::vector<Bytes>{contents}), InputError);
}

}  // namespace
}  // namespace atl::swarm
