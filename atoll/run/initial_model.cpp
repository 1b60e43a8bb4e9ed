#include "atoll/run/initial_model.h"

#include <algorithm>

#include "atoll/base/file.h"
#include "atoll/tokenizer/model_texts.h"
#include "atoll/weights/hf_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";

fs::path kept_in(const fs::path& run) { return run / "init"; }

}  // namespace

fs::path InitialModel::folder() const { return weights::resolve_model(path); }

void keep_model_texts(const fs::path& model, const fs::path& run) {
  const fs::path target = kept_in(run);
  fs::remove_all(target);  // Of an attempt with another model.
  fs::create_directories(target);
  for (const auto& [name, text] : tokenizer::model_texts(model)) {
    fs::create_directories((target / name).parent_path());
    write_file_atomically(target / name, text);
  }
  // Last: it says that the others are there.
  write_file_atomically(target / kConfig, weights::hf_config_text(model));
}

ModelTexts kept_model_texts(const fs::path& run, int64_t end_of_text) {
  ModelTexts texts;
  const fs::path folder = kept_in(run);
  if (fs::exists(folder / kConfig)) {
    texts.ids = weights::load_hf_config(folder).ids;
    texts.files = tokenizer::model_texts(folder);
    texts.are_kept = true;
  }
  if (std::ranges::find(texts.ids.ends, end_of_text) == texts.ids.ends.end()) {
    texts.ids.ends.push_back(end_of_text);
  }
  return texts;
}

}  // namespace atl::run
