#include "atoll/tasks/python_functions.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Of lm-evaluation-harness 0.4.13, with another comment.
constexpr const char* kWinogrande = R"(# What fills the blank.
def doc_to_text(doc):
    answer_to_num = {"1": 0, "2": 1}
    return answer_to_num[doc["answer"]]

def doc_to_target(doc):
    idx = doc["sentence"].index("_") + 1
    return doc["sentence"][idx:].strip()

    # Two ways to go on.
def doc_to_choice(doc):
    idx = doc["sentence"].index("_")
    options = [doc["option1"], doc["option2"]]
    return [doc["sentence"][:idx] + opt for opt in options]
)";

constexpr const char* kHellaswag = R"(import re
import datasets
def preprocess(text):
    text = text.strip()
    text = text.replace(" [title]", ". ")
    text = re.sub("\\[.*?\\]", "", text)
    text = text.replace("  ", " ")
    return text
def process_docs(dataset: datasets.Dataset) -> datasets.Dataset:
    def _process_doc(doc):
        ctx = doc["ctx_a"] + " " + doc["ctx_b"].capitalize()
        out_doc = {
            "query": preprocess(doc["activity_label"] + ": " + ctx),
            "choices": [preprocess(ending) for ending in doc["endings"]],
            "gold": int(doc["label"]),
        }
        return out_doc
    return dataset.map(_process_doc)
)";

class PythonFunctionsTest : public ::testing::Test {
 protected:
  Json call(const std::string& name, const Json& document) const {
    return known_function(function_value(name, folder_)).call(document);
  }
  std::string refusal(const std::string& name, const Json& document = Json::object()) const {
    return message_of([&] { call(name, document); });
  }

  TestFolder folder_;
};

TEST_F(PythonFunctionsTest, WinograndesOptionsStandBeforeTheRest) {
  folder_.write("sub/wino.py", kWinogrande);
  const Json document{{"sentence", "The reef by _ was  wide. "},
                      {"option1", "Ann"},
                      {"option2", "Bo"},
                      {"answer", "2"}};
  EXPECT_EQ(call("sub.wino.doc_to_text", document), 1);
  EXPECT_EQ(call("sub.wino.doc_to_target", document), "was  wide.");
  EXPECT_EQ(call("sub.wino.doc_to_choice", document), Json({"The reef by Ann", "The reef by Bo"}));
  EXPECT_EQ(known_function(function_value("sub.wino.doc_to_target", folder_)).source,
            "def doc_to_target(doc):\n    idx = doc[\"sentence\"].index(\"_\") + 1\n"
            "    return doc[\"sentence\"][idx:].strip()\n\n    # Two ways to go on.\n");
  EXPECT_THAT(refusal("sub.wino.doc_to_text", {{"answer", ""}}), HasSubstr("neither 1 nor 2"));
  EXPECT_THAT(refusal("sub.wino.doc_to_target", {{"sentence", "x"}}), HasSubstr("no blank"));
  EXPECT_THAT(refusal("sub.wino.doc_to_choice", {{"sentence", 3}}), HasSubstr("no text"));
}

TEST_F(PythonFunctionsTest, HellaswagsTextsLoseTheirBrackets) {
  folder_.write("utils.py", kHellaswag);
  const Json document{{"activity_label", " Surf"},
                      {"ctx_a", "A [header] Wave [title] comes  [x\ny] in."},
                      {"ctx_b", "éLAN Ends"},
                      {"endings", {"[step] a  b", " [open", "c [a[b] d"}},
                      {"label", " 2 "}};
  const Json changed = call("utils.process_docs", document);
  EXPECT_EQ(changed["query"], "Surf: A Wave. comes [x\ny] in. Élan ends");
  EXPECT_EQ(changed["choices"], Json({" a b", "[open", "c d"}));
  EXPECT_EQ(changed["gold"], 2);
  EXPECT_EQ(changed["ctx_b"], "éLAN Ends");
  for (const Json& label : {Json(""), Json("x"), Json(nullptr)}) {
    Json other = document;
    other["label"] = label;
    EXPECT_THAT(refusal("utils.process_docs", other), HasSubstr("\"label\""));
  }
}

TEST_F(PythonFunctionsTest, AFileWithOtherContentIsAnother) {
  folder_.write("utils.py", std::string(kWinogrande) + "doc_to_text = len\n");
  EXPECT_THAT(refusal("utils.doc_to_text"),
              AllOf(HasSubstr("!function utils.doc_to_text"), HasSubstr("another function"),
                    HasSubstr("utils.py'"), HasSubstr("process_docs of hellaswag")));
  folder_.write("utils.py", kWinogrande);
  EXPECT_THAT(refusal("utils.process_docs"), HasSubstr("another function"));
  EXPECT_THAT(refusal("gone.doc_to_text"), HasSubstr("gone.py' is not there"));
  EXPECT_THAT(refusal("doc_to_text"), HasSubstr("names no module"));
}

TEST_F(PythonFunctionsTest, FoundAnywhereInAValue) {
  const Json value = function_value("a.b", "folder");
  EXPECT_EQ(value["file"], "folder/a.py");
  EXPECT_TRUE(is_function(value));
  EXPECT_TRUE(has_function(Json::array({1, {{"x", value}}})));
  EXPECT_FALSE(has_function(Json::array({1, {{"x", "!function a.b"}}})));
}

}  // namespace
}  // namespace atl::tasks
