// SPDX-License-Identifier: Apache-2.0

// Package linkfaults makes streams of the link lose, repeat, reorder and delay frames, as no TCP connection would: what
// hub and worker rest on is the protocol's own numbers, and this shows that they do.
//
// In goes a file of Rules that is read again as it changes, so that a test turns faults on and off while programs run; out
// come interceptors for both ends. Each end spoils what it sends; one file may serve both, since the kinds of frames tell
// which end a rule is about. With the same seed and the same frames in the same order the same frames are hit.
//
// It is for tests. Only programs built with the tag atolltest have it, with the file in ATOLL_TEST_LINK_FAULTS.
package linkfaults
