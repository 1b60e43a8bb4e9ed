// What templates give and how they end. That every edge of the language is Jinja2's own is what
// tests/oracle/jinja_oracle.py shows.
#include "atoll/text/jinja.h"

#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::text {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const JinjaOptions& options = kChatTemplate) {
  return JinjaTemplate(source, options, "test").render(variables);
}

std::string refusal(const std::string& source, const Json& variables = Json::object(),
                    const JinjaOptions& options = kChatTemplate) {
  return message_of([&] { render(source, variables, options); });
}

const Json kMessages = {
    {"messages",
     {{{"role", "system"}, {"content", " Be kind. "}}, {{"role", "user"}, {"content", "Hi"}}}}};

TEST(JinjaTest, RendersAChat) {
  const std::string source = R"({%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- '[' + message['content'] | trim + ']\n' }}
    {%- else %}
        {{- loop.index0 ~ ': ' ~ message.content }}
    {%- endif %}
{%- endfor %}
{{ 'end' if messages[-1].role == 'user' }}
)";
  EXPECT_EQ(render(source, kMessages), "[Be kind.]\n1: Hiend");
}

TEST(JinjaTest, WritesValuesAsPythonDoes) {
  EXPECT_EQ(render("{{ [1, 2.0, none, true, 'it\\'s', {'a': (1,)}] }}"),
            "[1, 2.0, None, True, \"it's\", {'a': (1,)}]");
  EXPECT_EQ(render("{{ {'b': 'é', 'a': [1.5]} | tojson }}"), "{\"b\": \"é\", \"a\": [1.5]}");
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 4 / 2 }} {{ 1e16 }}"), "-4 2 2.0 1e+16");
  EXPECT_EQ(render("{{ 'héllo'[1] }}{{ 'héllo' | length }}{{ 'ß' | upper }}"), "é5SS");
}

TEST(JinjaTest, OptionsSayWhatWhiteSpaceStays) {
  const std::string source = "  {% if true %}\n a\n  {% endif %}\n";
  EXPECT_EQ(render(source), " a\n");
  EXPECT_EQ(render(source, Json::object(), {}), "  \n a\n  ");
  EXPECT_EQ(render(source, Json::object(), {.keep_trailing_newline = true}), "  \n a\n  \n");
}

TEST(JinjaTest, UndefinedIsEmptyOrAnError) {
  EXPECT_EQ(render("[{{ nope }}]"), "[]");
  EXPECT_EQ(refusal("\n{{ nope }}", Json::object(), {.strict_undefined = true}),
            "test, line 2: 'nope' is undefined");
  EXPECT_EQ(refusal("{{ nope.x }}"), "test, line 1: 'nope' is undefined");
}

TEST(JinjaTest, RefusesWhatItDoesNotKnowWhenItReadsIt) {
  EXPECT_EQ(
      message_of([] { JinjaTemplate("{% if false %}\n{{ 1 | nope }}{% endif %}", {}, "x.jinja"); }),
      "x.jinja, line 2: the filter 'nope' is not supported");
  EXPECT_EQ(refusal("{% import 'a' as b %}"),
            "test, line 1: the tag 'import' is not supported here");
  EXPECT_EQ(refusal("{{ 1 is nope }}"), "test, line 1: the test 'nope' is not supported");
  EXPECT_EQ(refusal("{{ [].append(1) }}"),
            "test, line 1: the method append of a list is not supported");
  EXPECT_EQ(refusal("{{ raise_exception('my words') }}"), "test, line 1: my words");
}

TEST(JinjaTest, EachSetOfOptionsHasItsFunctions) {
  EXPECT_EQ(refusal("{% for i in [1] %}{% break %}{% endfor %}", Json::object(), {}),
            "test, line 1: the tag 'break' belongs to chat templates");
  EXPECT_EQ(refusal("{{ raise_exception('x') }}", Json::object(), {}),
            "test, line 1: 'raise_exception' is undefined");
  EXPECT_EQ(render("{{ {'b': '<', 'a': 'é'} | tojson }}", Json::object(), {}),
            "{\"a\": \"\\u00e9\", \"b\": \"\\u003c\"}");
}

TEST(JinjaTest, HostileTemplatesEnd) {
  EXPECT_EQ(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "test, line 1: the template calls itself too deep");
  EXPECT_EQ(refusal("{{ 'a' * 99999999999 }}"), "test, line 1: a text gets longer than 64 MiB");
  EXPECT_EQ(refusal("{% set n = namespace(s='x') %}{% for i in range(99) %}"
                    "{% set n.s = n.s ~ n.s %}{% endfor %}"),
            "test, line 1: a text gets longer than 64 MiB");
  EXPECT_EQ(refusal("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                    "{% endfor %}"),
            "test, line 1: the template's lists get too long");
  EXPECT_EQ(refusal("{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}"),
            "test, line 1: the template lies too deep in brackets");
  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  EXPECT_EQ(refusal("", {{"x", deep}}), "test: the variables lie too deep in each other");
}

TEST(JinjaTest, RefusesBadVariablesAndSources) {
  EXPECT_EQ(refusal("", Json::array()), "test: the variables are not an object");
  EXPECT_EQ(refusal("", {{"x", uint64_t{1} << 63}}),
            "test: a variable holds a whole number of more than 64 bits");
  EXPECT_EQ(refusal("", {{"x", "\xff"}}), "test: a variable holds text that is not UTF-8");
  EXPECT_EQ(refusal("\xff"), "test, line 1: not UTF-8");
  EXPECT_EQ(refusal(std::string(2 << 20, 'x')), "test, line 1: a template has at most 1 MiB");
}

}  // namespace
}  // namespace atl::text
