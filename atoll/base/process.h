#pragma once
// What both programs do first and last, so that nothing is lost without a word.

namespace atl {

/// At the start of main. Standard streams that the caller closed lead to /dev/null: otherwise the
/// next file opened would become the stream, and progress text would land in it. A write over the
/// limit on file sizes (ulimit -f) then fails with a reason instead of killing the process.
void prepare_process();

/// Writes out what stdout still holds. Throws InputError when that, or anything printed before,
/// failed: a full disk, a closed pipe.
void flush_standard_output();

}  // namespace atl
