// SPDX-License-Identifier: Apache-2.0

// Package linkfaults makes streams of the link lose, repeat, reorder and delay frames, which a TCP connection would not do; because hub and
// worker must rely on the protocol's sequence numbers.
//
// In: a file of Rules, reread when it changes. Out: interceptors for both ends, which may use the same file; each affects what its end
// sends. The same seed and frames affect the same frames. Only programs built with the tag atolltest include it (ATOLL_TEST_LINK_FAULTS
// names the file).
package linkfaults
