#pragma once
// The options that name a corpus, shared by `tokenizer train` and `data pack`. `options` must
// outlive the parse.
#include <CLI/CLI.hpp>

#include "atoll/cli/whole_number.h"
#include "atoll/data/corpus.h"

namespace atl::cli {

inline void add_corpus_options(CLI::App& command, data::CorpusOptions& options) {
  command.add_option(
      "input,--data", options.inputs,
      "Folders, text files, .jsonl files, plain or .gz or .zst; none: the sources of Python's "
      "standard library on this machine");
  command
      .add_option("--include", options.include,
                  "Files of a folder to take, as shell patterns ('*.py', 'docs/*'); none: all "
                  "that look like text")
      ->allow_extra_args(false);
  command.add_option("--exclude", options.exclude, "Files of a folder to leave out")
      ->allow_extra_args(false);
  command.add_option("--field", options.text_field, "The jsonl field that holds the text")
      ->capture_default_str();
  command
      .add_option("--document-bytes", options.document_bytes,
                  "Cut a text file without <|endoftext|> lines into documents of about this size")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  command
      .add_option("--max-document-bytes", options.max_document_bytes,
                  "Refuse longer lines and documents, which have to be held in memory")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  command.add_flag("--strict", options.strict,
                   "Refuse bytes that are not UTF-8, else read as U+FFFD and counted, and in "
                   "folders what is not what its name says, else left out and counted");
}

}  // namespace atl::cli
