// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/pace"
)

// I14: who has a revoked certificate, and the right uid, takes no place and no attach of the cluster that was invited again.
func TestI14ARevokedCertificateTakesNoPlaceOfItsCluster(t *testing.T) {
	h := newHub(t, handler{})
	h.server.attaches = pace.New[string](pace.Limits{Rate: 1e-3, Burst: time.Second, Least: 2}, clock.RealClock{})
	revoked := h.credentials("a")
	h.beginWith("a", revoked, &federationv1.Hello{Incarnation: 1}) // the first attach of two
	_, err := h.fleet.Revoke(t.Context(), "a")
	h.must(err)
	for range 2 {
		w := h.dialWith("a", revoked)
		if got := w.hello(&federationv1.Hello{Incarnation: 1, Stream: 2}).GetRefused().GetReason(); got != "Revoked" {
			t.Errorf("a revoked certificate is told %q", got)
		}
		w.end()
	}
	ended := make(chan error, maxOpening+1)
	for range maxOpening + 1 {
		w := h.dialWith("a", revoked) // and says nothing
		go func() {
			_, err := w.stream.Recv()
			ended <- err
		}()
	}
	if err := <-ended; status.Code(err) != codes.ResourceExhausted { // the others have their places
		t.Errorf("a stream too many ended with %v", err)
	}
	h.beginWith("a", h.credentials("a"), &federationv1.Hello{Incarnation: 1, Stream: 3})
}

// I14: a tunnel with a revoked certificate is refused before it names a token, and so takes no place of the cluster.
func TestI14TunnelsOfARevokedCertificateTakeNoPlace(t *testing.T) {
	h := newHub(t, handler{})
	revoked := h.credentials("a")
	h.beginWith("a", revoked, &federationv1.Hello{Incarnation: 1})
	_, err := h.fleet.Revoke(t.Context(), "a")
	h.must(err)
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	stream, err := h.linkClient(revoked).Tunnel(ctx)
	h.must(err)
	if _, err := stream.Recv(); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a tunnel without a token ended with %v", err)
	}
	if n := h.server.unnamed.Len(); n != 0 {
		t.Errorf("tunnels of %d clusters have named no token", n)
	}
}
