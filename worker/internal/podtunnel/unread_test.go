// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"

	"navix.sh/atoll/e2e/must"
)

// stamp is the byte at a place of what a port sends.
func stamp(at int64) byte { return byte(at >> 10) }

// I14: of what a port sends, the worker takes no more than maxUnread bytes that its caller has not read, or one frame; and it takes
// more as soon as the caller reads. A connection that waits for its caller can be closed.
func TestI14WhatIsNotReadIsNotTaken(t *testing.T) {
	for size, want := range map[int]int64{4 << 10: maxUnread, 32 << 10: maxUnread, 100 << 10: 100 << 10, 1 << 20: 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe() // holds no bytes itself
				var sent atomic.Int64
				server, err := streamspdy.NewServerConnection(theirs, func(stream httpstream.Stream, replied <-chan struct{}) error {
					if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
						go func() {
							<-replied
							send(stream, size, &sent)
						}()
					}
					return nil
				})
				must.Succeed(t, err)
				conn, err := overSPDY(ours)
				must.Succeed(t, err)
				tunnel, err := newPortTunnel(conn, 80)
				must.Succeed(t, err)
				synctest.Wait()
				if got := sent.Load(); got != want {
					t.Errorf("%d bytes were taken before the caller read any, want %d", got, want)
				}
				read := int64(0)
				for read < 4<<20 {
					message, err := tunnel.Recv()
					must.Succeed(t, err)
					for i, b := range message {
						if at := read + int64(i); b != stamp(at) {
							t.Fatalf("byte %d is %d, want %d", at, b, stamp(at))
						}
					}
					read += int64(len(message))
				}
				synctest.Wait()
				if got, most := sent.Load()-read, max(maxUnread, int64(size)); got > most {
					t.Errorf("%d bytes were taken beyond what the caller has read, want at most %d", got, most)
				}
				tunnel.Close(nil)
				_ = server.Close() // its connection is closed
			})
		})
	}
}

// send writes frames until it cannot.
func send(to httpstream.Stream, size int, sent *atomic.Int64) {
	frame := make([]byte, size)
	for {
		for i := range frame {
			frame[i] = stamp(sent.Load() + int64(i))
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
		sent.Add(int64(size))
	}
}
