// SPDX-License-Identifier: Apache-2.0

// Package linkfaults makes streams of the link lose, repeat, reorder and delay frames, as no TCP connection would; because hub and worker
// must rely on the protocol's numbers.
//
// In: a file of Rules, reread when it changes. Out: interceptors for both ends, which may share the file: each spoils what it sends. The
// same seed and frames hit the same frames. Only programs built with the tag atolltest include it (ATOLL_TEST_LINK_FAULTS names the file).
package linkfaults
