#include "atoll/tasks/documents.h"

#include <gmock/gmock.h>

#include "atoll/testing/packed_text.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DocumentsTest, EveryDocumentHasEveryField) {
  const Documents found =
      parse_documents("{\"a\": 1, \"b\": \"x\"}\n\n{\"c\": null, \"a\": 2.5}\r\n", "t");
  EXPECT_THAT(found.fields, ElementsAre("a", "b", "c"));
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[0].dump(), R"({"a":1.0,"b":"x","c":null})");
  EXPECT_EQ(found.rows[1].dump(), R"({"a":2.5,"b":null,"c":null})");
}

TEST(DocumentsTest, AnArrayIsLines) {
  const Documents found = parse_documents("\n [{\"a\": 1},\n {\"a\": true}]\n", "t");
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[1]["a"], true);
}

TEST(DocumentsTest, FilesPlainAndCompressed) {
  const TestFolder folder;
  const auto plain = folder.write("a.jsonl", "{\"a\": 1}\n");
  const auto gzip = folder.write("b.jsonl.gz", data::gzipped("{\"a\": 2}\n{\"b\": 3}"));
  const auto zstd = folder.write("c.jsonl.zst", data::zstd_packed("[{\"b\": 4}]"));
  const Documents found = read_documents({plain, gzip, zstd});
  EXPECT_EQ(found.rows.size(), 4U);
  EXPECT_THAT(found.fields, ElementsAre("a", "b"));
}

TEST(DocumentsTest, RefusesWhatIsNoDocument) {
  const auto refusal = [](std::string_view text) {
    return message_of([&] { parse_documents(text, "t"); });
  };
  EXPECT_THAT(refusal("{\"a\": 1}\n{\"a\": \n"), HasSubstr("'t', line 2: not valid JSON"));
  EXPECT_THAT(refusal("{\"a\": 1}\n3\n"), HasSubstr("'t', line 2: not a JSON object"));
  EXPECT_THAT(refusal("[{\"a\": 1}, 3]"), HasSubstr("'t', document 1: not a JSON object"));
  EXPECT_THAT(refusal("[{\"a\": 1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(" \n"), HasSubstr("'t' has no documents"));
  EXPECT_THAT(refusal("[]"), HasSubstr("'t' has no documents"));
  EXPECT_THAT(refusal("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of([] { read_documents({"/nowhere/x.jsonl"}); }),
              HasSubstr("/nowhere/x.jsonl"));
}

}  // namespace
}  // namespace atl::tasks
