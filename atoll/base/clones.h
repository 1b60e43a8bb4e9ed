#pragma once
// For hot loops: one copy of the function per instruction set; the dynamic linker picks. Sanitizers
// instrument the picking itself, before they are ready for it, so there only the plain copy exists.
// All copies give the same bits: without fused multiply-adds and reassociation (cmake/compiler) the
// width of a register changes the speed alone. Sums aside (omp simd reduction), which have as many
// lanes as a register.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ATOLL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATOLL_CLONES
#endif

/// For what such functions call: a callee that is not inlined has the plain copy only.
#define ATOLL_INLINE __attribute__((always_inline)) inline
