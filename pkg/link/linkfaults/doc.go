// SPDX-License-Identifier: Apache-2.0

// Package linkfaults makes streams of the link lose, repeat, reorder and delay frames, as no TCP connection would. It shows that
// hub and worker rely on the protocol's own numbers.
//
// In goes a file of Rules, which is read again when it changes; because a test turns faults on and off while programs run. Out
// come interceptors for both ends. Each end spoils what it sends. Both ends may share one file; because the kind of a frame shows
// which end a rule is for. The same seed and the same frames in the same order hit the same frames.
//
// It is for tests. Only programs built with the tag atolltest include it; they name the file in ATOLL_TEST_LINK_FAULTS.
package linkfaults
