#pragma once
// What programs do first and last, so that nothing is lost without a word; and where they lie.
#include <string>

namespace atl {

/// Its host name; empty where it has none.
std::string machine_name();

/// The path of a program in the folder of the running one.
std::string sibling_program(const std::string& name);

/// At the start of main. Standard streams that the caller closed lead to /dev/null: otherwise the
/// next file opened would become the stream, and progress text would land in it. A write over the
/// limit on file sizes (ulimit -f) then fails with a reason instead of killing the process.
/// And whatever ends it, it leaves no core: its keys would be there to read.
void prepare_process();

/// At the start of the main of a program that takes part in a run: memory that is let go of is kept
/// for what comes next. Given back to the system at every frame, its pages would have to be cleared
/// again (a fifth of an exchange). Large tensors have a pool of their own (model/pooled_tensors.h).
void keep_freed_memory();

/// This thread, and those that it starts, compute when nobody else wants to.
void yield_to_others();

/// Writes out what stdout still holds. Throws InputError when that, or anything printed before,
/// failed: a full disk, a closed pipe.
void flush_standard_output();

}  // namespace atl
