#pragma once
// What a piece of work costs a core, however busy the machine is.

namespace atl {

/// Seconds that a core has worked for the calling thread so far.
double thread_cpu_seconds();

}  // namespace atl
