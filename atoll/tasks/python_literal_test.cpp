#include "atoll/tasks/python_literal.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::HasSubstr;

Json read(std::string_view text) { return parse_python_literal(text, "here"); }

TEST(PythonLiteralTest, ReadsWhatPythonReads) {
  EXPECT_EQ(read(R"(['a', "b's", 'c\'d'])"), Json({"a", "b's", "c'd"}));
  EXPECT_EQ(read(" [1, -2, 2.5, 1e3, True, False, None,]\n"),
            Json({1, -2, 2.5, 1000.0, true, false, nullptr}));
  EXPECT_EQ(read("('a', ['b', ()])"), Json({"a", Json::array({"b", Json::array()})}));
  EXPECT_EQ(read("('a')"), Json("a"));
  EXPECT_EQ(read("('a',)"), Json::array({"a"}));
  EXPECT_EQ(read("['a' 'b'\n 'c']"), Json::array({"abc"}));
  EXPECT_EQ(read(R"('''a
'b' ''')"),
            Json("a\n'b' "));
  EXPECT_EQ(read(R"('\n\t\\\x41\u00e9\U0001f642\101\0\q')"),
            Json(std::string("\n\t\\Aé🙂A\0\\q", 14)));
  EXPECT_EQ(read("0"), Json(0));
  EXPECT_EQ(read("00"), Json(0));
}

TEST(PythonLiteralTest, RefusesTheRest) {
  for (const char* text : {"",
                           "[",
                           "['a' 1]",
                           "['a'",
                           "'a",
                           "'a\nb'",
                           "[1 2]",
                           "007",
                           "{'a': 1}",
                           "b'x'",
                           "f'x'",
                           "os.system('x')",
                           "1 + 1",
                           "'\\x4'",
                           "'\\ud800'",
                           "'\\U00110000'",
                           "'\\N{DASH}'",
                           "--1",
                           "+",
                           "1.2.3",
                           "99999999999999999999",
                           "[,]"}) {
    EXPECT_THAT(message_of([&] { read(text); }), HasSubstr("here: not a Python")) << text;
  }
  EXPECT_THAT(message_of([] { read(std::string(1000, '[')); }), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace atl::tasks
