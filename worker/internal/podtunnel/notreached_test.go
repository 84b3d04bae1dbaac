// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"errors"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

func TestAPortWithoutAListenerIsToldAsThat(t *testing.T) {
	for why, want := range map[string]string{
		"dial tcp 127.0.0.1:81: connect: connection refused\n": "UNAVAILABLE: nothing listens on the port: dial tcp 127.0.0.1:81: " +
			"connect: connection refused",
		"pod not found": "UNAVAILABLE: the port was not reached: pod not found",
	} {
		if got := notReached(why).Error(); got != want {
			t.Errorf("%q is told as %q, want %q", why, got, want)
		}
	}
}

// A kubelet that cannot connect resets the stream for data, sometimes before it has replied to it. The reason is on the stream for errors.
func TestAStreamThatIsResetAtOnceHasItsReason(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	served := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err != nil {
			served <- err
			return
		}
		var failure httpstream.Stream
		kubelet, err := streamspdy.NewServerConnection(conn, func(stream httpstream.Stream, _ <-chan struct{}) error {
			if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failure = stream
				return nil
			}
			_, err := failure.Write([]byte("dial tcp 127.0.0.1:81: connect: connection refused"))
			return errors.Join(errors.New("the stream is reset"), err, failure.Close())
		})
		if err == nil {
			<-kubelet.CloseChan()
		}
		served <- err
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String())
	must.Succeed(t, err)
	over, err := overSPDY(conn)
	must.Succeed(t, err)
	_, err = openPort(t.Context(), over, 81)
	if e := problem.FromError(err); e.Reason != problem.Unavailable || !strings.HasPrefix(e.Message, reach.NothingListens) {
		t.Errorf("opening returned %v", err)
	}
	must.Succeed(t, <-served)
}
